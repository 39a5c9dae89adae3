"""What two logs tell of a copy (F7): MirrorMaker 2's words are written by hand, and not true of the records."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kretain.embedded.cluster import EmbeddedKafka
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from tests.support.raw_headers import Raw, send_raw
from tests.support.world import HOUR, World, consumed, now_ms

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]

SYNCS, OFFSETS = "mm2-offset-syncs.dr.internal", "mm2-offsets.primary.internal"
BASE = now_ms() - 5 * HOUR
_numbers = itertools.count(1)
Pair = tuple[World, World]


@pytest.fixture(scope="module")
def clusters(
    archived_classes: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[EmbeddedKafka, EmbeddedKafka]]:
    with EmbeddedKafka(1) as here, EmbeddedKafka(1) as there:
        folder = tmp_path_factory.mktemp("state")
        World(here.bootstrap, folder).topic(name=SYNCS, cleanup_policy="compact")
        World(there.bootstrap, folder).topic(name=OFFSETS, cleanup_policy="compact")
        yield here, there


@pytest.fixture
def pair(clusters: tuple[EmbeddedKafka, EmbeddedKafka], tmp_path: Path) -> Pair:
    """The cluster that is copied, and the one that it is copied to."""
    here, there = clusters
    return World(here.bootstrap, tmp_path / "s", {"dr": there.bootstrap}), World(there.bootstrap, tmp_path / "d")


def both(pair: Pair, **config: str) -> str:
    topic = pair[0].topic(name=f"h-{next(_numbers)}-{os.getpid()}")
    pair[1].topic("t", 1, 1, f"primary.{topic}", **config)
    return topic


def put(
    world: World, topic: str, numbers: Iterable[int], value: Callable[[int], bytes] = lambda n: b"v%d" % n, **more: Any
) -> None:
    producer = Producer({"bootstrap.servers": world.bootstrap, "linger.ms": 5})
    for number in numbers:
        key = more.get("key", b"k%d" % number)
        headers = [(name, content % number) for name, content in more.get("headers", ())]
        producer.produce(topic, value(number), key, partition=0, timestamp=BASE + number, headers=headers)
    assert producer.flush(30) == 0


def tell(pair: Pair, topic: str, upstream: int, downstream: int, committed: int | None = None) -> None:
    """Write what MirrorMaker 2 writes once it has copied this record."""
    name = topic.encode()
    key = struct.pack(">h", len(name)) + name + struct.pack(">i", 0)
    about = ["MirrorSourceConnector", {"cluster": "primary", "partition": 0, "topic": topic}]
    done = {"offset": upstream if committed is None else committed}
    for world, where, content in (
        (pair[0], SYNCS, (key, struct.pack(">qq", upstream, downstream))),
        (pair[1], OFFSETS, (json.dumps(about).encode(), json.dumps(done).encode())),
    ):
        producer = Producer({"bootstrap.servers": world.bootstrap})
        producer.produce(where, content[1], content[0], partition=0)
        assert producer.flush(20) == 0


def policy(topic: str) -> str:
    return consumed(topic, after="0") + "\nfloors:\n  - {replica: dr, source.alias: primary}"


def said(decision: Any) -> str:
    return "; ".join(f"{one.code}: {one.text}" for one in decision.reasons)


def start_after_a_trim(pair: Pair, topic: str) -> tuple[int, str]:
    """Return S after a plan and a trim, and what the plan said."""
    world = pair[0]
    world.commit(f"{topic}-group", topic, world.ends(topic)[1])
    plan = world.plan(policy(topic))
    world.trim(plan, policy(topic))
    return world.ends(topic)[0], said(plan.decisions[0])


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("twice", [[], [8, 9]])
def test_true_copy_counts_at_any_offset_and_with_duplicates(pair: Pair, start: int, twice: list[int]) -> None:
    topic = both(pair)
    put(pair[0], topic, range(20))
    for some in (range(100, 107), range(10), twice, range(10, 20)):  # of an earlier log, then of this one
        put(pair[1], f"primary.{topic}", some)
    pair[0].delete_records(topic, start) if start else None
    tell(pair, topic, 18, 25 + len(twice))
    assert start_after_a_trim(pair, topic) == (19, "")
    tell(pair, topic, 19, 26 + len(twice), committed=18)
    assert start_after_a_trim(pair, topic) == (19, ""), "the connector goes on at 19"


def target_recreated(pair: Pair, topic: str) -> None:
    put(pair[0], topic, range(20))
    put(pair[1], f"primary.{topic}", range(10, 20))
    tell(pair, topic, 19, 9)


def target_trimmed(pair: Pair, topic: str) -> None:
    put(pair[0], topic, range(20))
    put(pair[1], f"primary.{topic}", range(20))
    pair[1].delete_records(f"primary.{topic}", 15)
    tell(pair, topic, 19, 19)


def one_left_out(pair: Pair, topic: str) -> None:
    put(pair[0], topic, range(20))
    put(pair[1], f"primary.{topic}", [number for number in range(20) if number != 4])
    tell(pair, topic, 19, 18)


def source_recreated(pair: Pair, topic: str) -> None:
    put(pair[1], f"primary.{topic}", range(10), lambda number: b"old%d" % number)
    put(pair[0], topic, range(20))
    put(pair[1], f"primary.{topic}", range(10, 20))
    tell(pair, topic, 19, 19)


def reloaded_with_the_same_times(pair: Pair, topic: str) -> None:
    put(pair[1], f"primary.{topic}", range(10))
    put(pair[0], topic, range(20), lambda number: b"v9" if number == 9 else b"corrected")
    tell(pair, topic, 9, 9)


def other_headers(pair: Pair, topic: str) -> None:
    put(pair[0], topic, range(20), key=None, headers=[("id", b"new%d")])
    put(pair[1], f"primary.{topic}", range(20), key=None, headers=[("id", b"old%d")])
    tell(pair, topic, 19, 19)


def the_middle_is_another(pair: Pair, topic: str) -> None:
    put(pair[0], topic, range(20))
    put(pair[1], f"primary.{topic}", range(20), lambda number: b"lost" if 8 <= number < 13 else b"v%d" % number)
    tell(pair, topic, 19, 19)


def ahead_of_the_log(pair: Pair, topic: str) -> None:
    put(pair[0], topic, range(20))
    put(pair[1], f"primary.{topic}", range(40))
    tell(pair, topic, 30, 30)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (target_recreated, "no copy of its first record, at offset 0, is found in"),
        (target_trimmed, "no copy of its first record, at offset 0, is found in"),
        (source_recreated, "no copy of its first record, at offset 0, is found in"),
        (reloaded_with_the_same_times, "no copy of its first record, at offset 0, is found in"),
        (other_headers, "is not a copy of offset 19"),
        (ahead_of_the_log, "its offset sync is of offset 30, which is not written yet"),
    ],
)
def test_claim_that_the_records_contradict_holds(pair: Pair, make: Callable[[Pair, str], None], text: str) -> None:
    topic = both(pair)
    make(pair, topic)
    start, reasons = start_after_a_trim(pair, topic)
    assert start == 0
    assert text in reasons


def no_copy_of_some_behind_some_twice(pair: Pair, topic: str) -> None:
    put(pair[0], topic, range(60))
    for some in (range(8), range(8), range(20, 60)):
        put(pair[1], f"primary.{topic}", some)
    tell(pair, topic, 59, 55)


def other_writers_instead(pair: Pair, topic: str) -> None:
    put(pair[0], topic, range(60))
    put(pair[1], f"primary.{topic}", range(8))
    put(pair[1], f"primary.{topic}", range(500, 600))
    put(pair[1], f"primary.{topic}", [59])
    tell(pair, topic, 59, 108)


def markers_of_transactions_instead(pair: Pair, topic: str) -> None:
    put(pair[0], topic, range(20))
    put(pair[1], f"primary.{topic}", range(8))
    for end in ("commit", "abort"):
        pair[1].transaction(f"primary.{topic}", [BASE] * 4, end=end)
    put(pair[1], f"primary.{topic}", range(12, 20))
    tell(pair, topic, 19, 25)


def equal_records_in_one_millisecond(pair: Pair, topic: str) -> None:
    for world, name in ((pair[0], topic), (pair[1], f"primary.{topic}")):
        put(world, name, [0] * 8, lambda _number: b"tick", key=b"t")
    put(pair[0], topic, range(1, 20))
    put(pair[1], f"primary.{topic}", range(9, 20))
    tell(pair, topic, 26, 18)


@pytest.mark.parametrize(
    "make",
    [
        one_left_out,
        the_middle_is_another,
        no_copy_of_some_behind_some_twice,
        other_writers_instead,
        markers_of_transactions_instead,
        equal_records_in_one_millisecond,
    ],
)
def test_trim_stops_at_the_first_uncopied_record(pair: Pair, make: Callable[[Pair, str], None]) -> None:
    topic = both(pair)
    make(pair, topic)
    assert start_after_a_trim(pair, topic) == (4 if make is one_left_out else 8, "")


def test_proof_stops_at_an_unreadable_record(pair: Pair) -> None:
    topic = both(pair)
    for world, name in ((pair[0], topic), (pair[1], f"primary.{topic}")):
        put(world, name, range(5))
        send_raw(world, name, Raw("bad"))
        put(world, name, range(6, 10))
    tell(pair, topic, 9, 9)
    assert start_after_a_trim(pair, topic)[0] == 5


def test_transaction_markers_need_no_copy(pair: Pair) -> None:
    topic = both(pair)
    put(pair[0], topic, range(5))
    pair[0].transaction(topic, [BASE + 6, BASE + 7], end="commit")
    put(pair[0], topic, range(8, 10))
    put(pair[1], f"primary.{topic}", range(5))
    put(pair[1], f"primary.{topic}", [6, 7], lambda _number: b"t" * 100, key=None)
    put(pair[1], f"primary.{topic}", range(8, 10))
    tell(pair, topic, 9, 8)
    assert start_after_a_trim(pair, topic) == (10, "")


def test_copy_with_new_timestamps_holds(pair: Pair) -> None:
    topic = both(pair, message_timestamp_type="LogAppendTime")
    put(pair[0], topic, range(20))
    put(pair[1], f"primary.{topic}", range(20))
    tell(pair, topic, 19, 19)
    start, reasons = start_after_a_trim(pair, topic)
    assert (start, "stamped anew" in reasons) == (0, True)


@pytest.mark.parametrize("lacks", ["topic", "partition", "cluster"])
def test_plan_whose_reads_contradict_the_sources_holds(pair: Pair, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    """A broker that is behind, or another cluster by the same name: the source's own reads are not the plan's."""
    topic = both(pair)
    put(pair[0], topic, range(20))
    put(pair[1], f"primary.{topic}", range(20))
    tell(pair, topic, 19, 19)
    again = ClusterReader.again

    def read(self: ClusterReader, timeout_s: float) -> ClusterReader:
        found = again(self, timeout_s)
        metadata = found.metadata

        def other(topics: Iterable[str] | None = None) -> ClusterMetadata:
            told = metadata(topics)
            if lacks == "cluster":
                return dataclasses.replace(told, cluster_id="another")
            rest = {name: one for name, one in told.topics.items() if name != topic}
            if lacks == "partition":
                rest[topic] = dataclasses.replace(told.topics[topic], partitions={})
            return dataclasses.replace(told, topics=rest)

        monkeypatch.setattr(found, "metadata", other)
        return found

    monkeypatch.setattr(ClusterReader, "again", read)
    start, reasons = start_after_a_trim(pair, topic)
    assert start == 0
    assert ("is another cluster by now" if lacks == "cluster" else "brokers don't agree on it") in reasons
