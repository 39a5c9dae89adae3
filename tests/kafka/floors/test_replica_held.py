"""What two logs tell of a copy (F7): MirrorMaker 2's words are written by hand, and not true of the records."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kretain.embedded.cluster import EmbeddedKafka
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from tests.support.raw_headers import Raw, send_raw
from tests.support.world import HOUR, World, consumed, now_ms

pytestmark = pytest.mark.timeout(300)

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


def put(world: World, topic: str, numbers: Iterable[int], value: bytes = b"v%d", **more: Any) -> None:
    """Append records of these times; ``value`` may have a place for the number."""
    producer = Producer({"bootstrap.servers": world.bootstrap, "linger.ms": 5})
    for number in numbers:
        key = more.get("key", b"k%d" % number)
        headers = [(name, content % number) for name, content in more.get("headers", ())]
        content = value % number if b"%d" in value else value
        producer.produce(topic, content, key, partition=0, timestamp=BASE + number, headers=headers)
    assert producer.flush(30) == 0


Write = tuple[int, Iterable[int] | str] | tuple[int, Iterable[int], dict[str, Any]]
"""Where (0: the source, 1: its copy), the numbers of records or how a transaction ends, and what is special of them."""


def write(pair: Pair, topic: str, *writes: Write) -> None:
    for where, numbers, *more in writes:
        name = f"primary.{topic}" if where else topic
        if isinstance(numbers, str):
            pair[where].transaction(name, [BASE] * 4, end=numbers)
        else:
            put(pair[where], name, numbers, **dict(*more))


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


OLD, LOST, TICK = {"value": b"old%d"}, {"value": b"lost"}, {"value": b"tick", "key": b"t"}
CORRECTED = {"value": b"corrected"}
NO_FIRST = "no copy of its first record, at offset 0, is found in"


@pytest.mark.parametrize(
    ("writes", "sync", "copy_start", "text"),
    [
        pytest.param([(0, range(20)), (1, range(10, 20))], (19, 9), 0, NO_FIRST, id="target recreated"),
        pytest.param([(0, range(20)), (1, range(20))], (19, 19), 15, NO_FIRST, id="target trimmed"),
        pytest.param(
            [(1, range(10), OLD), (0, range(20)), (1, range(10, 20))], (19, 19), 0, NO_FIRST, id="source recreated"
        ),
        pytest.param(
            [(1, range(10)), (0, range(9), CORRECTED), (0, [9]), (0, range(10, 20), CORRECTED)],
            (9, 9),
            0,
            NO_FIRST,
            id="reloaded with the same times",
        ),
        pytest.param(
            [
                (where, range(20), {"key": None, "headers": [("id", which)]})
                for where, which in enumerate((b"a%d", b"b%d"))
            ],
            (19, 19),
            0,
            "is not a copy of offset 19",
            id="other headers",
        ),
        pytest.param(
            [(0, range(20)), (1, range(40))],
            (30, 30),
            0,
            "its offset sync is of offset 30, which is not written yet",
            id="ahead of the log",
        ),
    ],
)
def test_claim_that_the_records_contradict_holds(
    pair: Pair, writes: list[Write], sync: tuple[int, int], copy_start: int, text: str
) -> None:
    topic = both(pair)
    write(pair, topic, *writes)
    if copy_start:
        pair[1].delete_records(f"primary.{topic}", copy_start)
    tell(pair, topic, *sync)
    start, reasons = start_after_a_trim(pair, topic)
    assert start == 0
    assert text in reasons


@pytest.mark.parametrize(
    ("writes", "sync", "expected"),
    [
        pytest.param([(0, range(20)), (1, range(4)), (1, range(5, 20))], (19, 18), 4, id="one left out"),
        pytest.param(
            [(0, range(20)), (1, range(8)), (1, range(8, 13), LOST), (1, range(13, 20))],
            (19, 19),
            8,
            id="the middle is another",
        ),
        pytest.param(
            [(0, range(60)), (1, range(8)), (1, range(8)), (1, range(20, 60))],
            (59, 55),
            8,
            id="some have no copy, some have two",
        ),
        pytest.param(
            [(0, range(60)), (1, range(8)), (1, range(500, 600)), (1, [59])], (59, 108), 8, id="other writers instead"
        ),
        pytest.param(
            [(0, range(20)), (1, range(8)), (1, "commit"), (1, "abort"), (1, range(12, 20))],
            (19, 25),
            8,
            id="markers of transactions instead",
        ),
        pytest.param(
            [(0, [0] * 8, TICK), (1, [0] * 8, TICK), (0, range(1, 20)), (1, range(9, 20))],
            (26, 18),
            8,
            id="equal records in one millisecond",
        ),
    ],
)
def test_trim_stops_at_the_first_uncopied_record(
    pair: Pair, writes: list[Write], sync: tuple[int, int], expected: int
) -> None:
    topic = both(pair)
    write(pair, topic, *writes)
    tell(pair, topic, *sync)
    assert start_after_a_trim(pair, topic) == (expected, "")


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
    of_the_transaction = {"value": b"t" * 100, "key": None}
    write(pair, topic, (0, range(8, 10)), (1, range(5)), (1, [6, 7], of_the_transaction), (1, range(8, 10)))
    tell(pair, topic, 9, 8)
    assert start_after_a_trim(pair, topic) == (10, "")


def test_copy_with_new_timestamps_holds(pair: Pair) -> None:
    topic = both(pair, message_timestamp_type="LogAppendTime")
    write(pair, topic, (0, range(20)), (1, range(20)))
    tell(pair, topic, 19, 19)
    start, reasons = start_after_a_trim(pair, topic)
    assert (start, "get new timestamps" in reasons) == (0, True)


@pytest.mark.parametrize("lacks", ["topic", "partition", "cluster"])
def test_plan_whose_reads_contradict_the_sources_holds(pair: Pair, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    """A broker that is behind, or another cluster by the same name: the source's own reads are not the plan's."""
    topic = both(pair)
    write(pair, topic, (0, range(20)), (1, range(20)))
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
    assert ("is now another cluster" if lacks == "cluster" else "brokers do not agree on it yet") in reasons
