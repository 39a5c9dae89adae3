"""What has yet to be copied to another cluster stays (F7): MirrorMaker 2 itself, and claims that the records contradict."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kretain.embedded import jars
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from tests.support.clusters import EmbeddedKafka
from tests.support.processes import beside
from tests.support.says import json_of, pick, rows_of
from tests.support.world import HOUR, Raw, World, consumed, now_ms, send_raw, texts, wait_until, written

VERSION = "4.3.0"
"""Kafka's 4.4.0 has no connect-mirror in the registry: this one copies between clusters of any version."""
SETTINGS = """
clusters = primary, dr
primary.bootstrap.servers = {primary}
dr.bootstrap.servers = {dr}
primary->dr.enabled = true
primary->dr.topics = {topics}
dr->primary.enabled = false
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.partitions = 1
status.storage.partitions = 1
dr.offset.flush.interval.ms = 1000
refresh.topics.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
"""


@contextmanager
def mirror_maker(folder: Path, primary: str, dr: str, topics: str) -> Iterator[subprocess.Popen[bytes]]:
    """Copy topics from ``primary`` to ``dr``; give the process."""
    settings = written(folder / "mm2.properties", SETTINGS.format(primary=primary, dr=dr, topics=topics))
    libraries = ":".join(f"{jars.resolve(name, VERSION, print)}/*" for name in ("connect-mirror", "connect-runtime"))
    command = [str(jars.find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", libraries]
    with beside([*command, "org.apache.kafka.connect.mirror.MirrorMaker", str(settings)], folder) as process:
        yield process


pytestmark = pytest.mark.timeout(600)

SYNCS, OFFSETS = "mm2-offset-syncs.dr.internal", "mm2-offsets.primary.internal"
_numbers = itertools.count(1)


def holding(topic: str) -> Iterator[EmbeddedKafka]:
    """Give a cluster that has a compacted topic."""
    with EmbeddedKafka(1) as cluster:
        World(cluster.bootstrap, Path()).topic(name=topic, cleanup_policy="compact")
        yield cluster


@pytest.fixture(scope="module")
def target(archived_classes: None) -> Iterator[EmbeddedKafka]:
    yield from holding(OFFSETS)


@pytest.fixture(scope="module")
def primary(archived_classes: None) -> Iterator[EmbeddedKafka]:
    yield from holding(SYNCS)


@pytest.fixture(scope="module")
def copying(
    primary: EmbeddedKafka, target: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[subprocess.Popen[bytes]]:
    with mirror_maker(tmp_path_factory.mktemp("mm2"), primary.bootstrap, target.bootstrap, "m-.*") as process:
        yield process


@pytest.fixture
def world(primary: EmbeddedKafka, target: EmbeddedKafka, tmp_path: Path) -> World:
    return World(primary.bootstrap, tmp_path / "state", {"dr": target.bootstrap})


@pytest.fixture
def dr(target: EmbeddedKafka, tmp_path: Path) -> World:
    return World(target.bootstrap, tmp_path / "dr-state")


@contextmanager
def paused(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def policy(topic: str, **more: str) -> str:
    keys = "".join(f", {key.replace('__', '.')}: '{value}'" for key, value in more.items())
    return consumed(topic, after="0") + f"\nfloors:\n  - {{replica: dr{keys}}}"


def make(world: World, count: int = 10) -> str:
    """Make a topic that is copied; ``TOPIC-group`` has read all of it."""
    return world.filled([5 * HOUR] * count, {"group": count}, name=f"m-{next(_numbers)}-{os.getpid()}")


def until(world: World, topic: str, trim_to: int) -> None:
    """Wait until a plan trims a topic to there."""
    wait_until(lambda: world.decide(policy(topic), topic).trim_to == trim_to, f"a plan of {topic}", 90)


# -- claims that the records contradict -----------------------------------------------------------


BASE = now_ms() - 5 * HOUR
Pair = tuple[World, World]


@pytest.fixture
def pair(world: World, dr: World) -> Pair:
    """The cluster that is copied, and the one that it is copied to."""
    return world, dr


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


Write = tuple[int, Iterable[int] | str | int] | tuple[int, Iterable[int], dict[str, Any]]
"""Where (0: the source, 1: its copy), the numbers of records and what is special of them.

Or how a transaction ends, or where the log is trimmed to.
"""


def write(pair: Pair, topic: str, *writes: Write) -> None:
    for where, what, *more in writes:
        name = f"primary.{topic}" if where else topic
        if isinstance(what, str):
            pair[where].transaction(name, [BASE] * 4, end=what)
        elif isinstance(what, int):
            pair[where].delete_records(name, what)
        else:
            put(pair[where], name, what, **dict(*more))


def tell(pair: Pair, topic: str, upstream: int, downstream: int, committed: int | None = None) -> None:
    """Write what MirrorMaker 2 writes once it has copied this record."""
    name = topic.encode()
    key = struct.pack(">h", len(name)) + name + struct.pack(">i", 0)
    about = ["MirrorSourceConnector", {"cluster": "primary", "partition": 0, "topic": topic}]
    done = {"offset": upstream if committed is None else committed}
    send(pair[0], SYNCS, key, struct.pack(">qq", upstream, downstream))
    send(pair[1], OFFSETS, json.dumps(about).encode(), json.dumps(done).encode())


def send(world: World, topic: str, key: bytes, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": world.bootstrap})
    producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0


def start_after_a_trim(pair: Pair, topic: str) -> tuple[int, str]:
    """Return S after a plan and a trim, and what the plan said."""
    world, rules = pair[0], policy(topic, source__alias="primary")
    world.commit(f"{topic}-group", topic, world.ends(topic)[1])
    plan = world.plan(rules)
    world.trim(plan, rules)
    return world.ends(topic)[0], texts(plan.decisions[0])


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("twice", [[], [8, 9]])
def test_true_copy_counts_at_any_offset_and_with_duplicates(pair: Pair, start: int, twice: list[int]) -> None:
    topic = both(pair)
    put(pair[0], topic, range(20))
    for some in (range(100, 107), range(10), twice, range(10, 20)):  # of an earlier log, then of this one
        put(pair[1], f"primary.{topic}", some)
    pair[0].delete_records(topic, start)
    tell(pair, topic, 18, 25 + len(twice))
    assert start_after_a_trim(pair, topic) == (19, "")
    tell(pair, topic, 19, 26 + len(twice), committed=18)
    assert start_after_a_trim(pair, topic) == (19, ""), "the connector goes on at 19"


OLD, LOST, TICK = {"value": b"old%d"}, {"value": b"lost"}, {"value": b"tick", "key": b"t"}
OF_A_TRANSACTION = {"value": b"t" * 100, "key": None}
CORRECTED = {"value": b"corrected"}
NO_FIRST = "no copy of its first record, at offset 0, is found in"


@pytest.mark.parametrize(
    ("writes", "sync", "start", "why"),
    [
        pytest.param([(0, range(20)), (1, range(10, 20))], (19, 9), 0, NO_FIRST, id="target recreated"),
        pytest.param([(0, range(20)), (1, range(20)), (1, 15)], (19, 19), 0, NO_FIRST, id="target trimmed"),
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
        pytest.param([(0, range(20)), (1, range(4)), (1, range(5, 20))], (19, 18), 4, None, id="one left out"),
        pytest.param(
            [(0, range(20)), (1, range(8)), (1, range(8, 13), LOST), (1, range(13, 20))],
            (19, 19),
            8,
            None,
            id="the middle is another",
        ),
        pytest.param(
            [(0, range(60)), (1, range(8)), (1, range(8)), (1, range(20, 60))],
            (59, 55),
            8,
            None,
            id="some have no copy, some have two",
        ),
        pytest.param(
            [(0, range(60)), (1, range(8)), (1, range(500, 600)), (1, [59])],
            (59, 108),
            8,
            None,
            id="other writers instead",
        ),
        pytest.param(
            [(0, range(20)), (1, range(8)), (1, "commit"), (1, "abort"), (1, range(12, 20))],
            (19, 25),
            8,
            None,
            id="markers of transactions instead",
        ),
        pytest.param(
            [(0, [0] * 8, TICK), (1, [0] * 8, TICK), (0, range(1, 20)), (1, range(9, 20))],
            (26, 18),
            8,
            None,
            id="equal records in one millisecond",
        ),
        pytest.param(
            [
                *((0, range(5)), (0, "commit"), (0, range(8, 10))),
                *((1, range(5)), (1, [0] * 4, OF_A_TRANSACTION), (1, range(8, 10))),
            ],
            (11, 10),
            12,
            None,
            id="none: markers need no copy",
        ),
    ],
)
def test_trim_stops_at_the_first_record_without_a_true_copy(
    pair: Pair, writes: list[Write], sync: tuple[int, int], start: int, why: str | None
) -> None:
    topic = both(pair)
    write(pair, topic, *writes)
    tell(pair, topic, *sync)
    found, reasons = start_after_a_trim(pair, topic)
    assert found == start, reasons
    assert reasons == "" if why is None else why in reasons


def test_proof_stops_at_an_unreadable_record(pair: Pair) -> None:
    topic = both(pair)
    for world, name in zip(pair, (topic, f"primary.{topic}"), strict=True):
        put(world, name, range(5))
        send_raw(world, name, Raw("bad"))
        put(world, name, range(6, 10))
    tell(pair, topic, 9, 9)
    assert start_after_a_trim(pair, topic)[0] == 5


def test_copy_with_new_timestamps_holds(pair: Pair) -> None:
    topic = both(pair, message_timestamp_type="LogAppendTime")
    write(pair, topic, (0, range(20)), (1, range(20)))
    tell(pair, topic, 19, 19)
    start, reasons = start_after_a_trim(pair, topic)
    assert (start, "get new timestamps" in reasons) == (0, True), reasons


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
            rest = {name: one for name, one in told.topics.items() if name != topic}
            changed: dict[str, Any] = {
                "cluster": {"cluster_id": "another"},
                "topic": {"topics": rest},
                "partition": {"topics": {**rest, topic: dataclasses.replace(told.topics[topic], partitions={})}},
            }
            return dataclasses.replace(told, **changed[lacks])

        monkeypatch.setattr(found, "metadata", other)
        return found

    monkeypatch.setattr(ClusterReader, "again", read)
    start, reasons = start_after_a_trim(pair, topic)
    why = "is now another cluster" if lacks == "cluster" else "brokers do not agree on it yet"
    assert (start, why in reasons) == (0, True), reasons


# -- MirrorMaker 2 itself --------------------------------------------------------------------------


def test_replica_without_any_copy_trims_nothing(world: World) -> None:
    topic = make(world)
    decision = world.decide(policy(topic, source__alias="primary", offset__syncs="mm2-none"), topic)
    why = "has no topic mm2-none, or this user may not describe it: write offset.syncs"
    assert (decision.action, why in texts(decision)) == ("hold", True), texts(decision)


def test_copied_records_are_trimmed_and_others_kept(world: World, dr: World, copying: subprocess.Popen[bytes]) -> None:
    topic = make(world)
    until(world, topic, 10)
    with paused(copying):
        world.produce(topic, [5 * HOUR] * 5)
        world.commit(f"{topic}-group", topic, 15)
        plan = world.plan(policy(topic))
        assert pick(plan.decisions[0], "trim_to", "min_commit", "min_commit_by") == (10, 10, "replica:dr")
        world.trim(plan, policy(topic))
        assert world.ends(topic) == (10, 15)
        late = make(world, 3)
        assert "MirrorMaker 2 has no offset sync of it" in texts(world.decide(policy(late), late))
    until(world, topic, 15)
    until(world, late, 3)
    assert len(dr.records(f"primary.{topic}")) == 15


def test_lost_copy_holds_even_if_new_records_took_its_offsets(
    world: World, dr: World, copying: subprocess.Popen[bytes]
) -> None:
    topic = make(world)
    copy = f"primary.{topic}"
    until(world, topic, 10)
    with paused(copying):
        dr.delete(copy)
        assert f"its copy {copy}-0 in dr does not exist" in texts(world.decide(policy(topic), topic))
        dr.topic(name=copy)
        lost = "the copy of offset 9 no longer exists: it was 9, and the copy has 0 to 0"
        assert lost in texts(world.decide(policy(topic), topic))
        dr.produce(copy, [5 * HOUR] * 20, value=b"another")
        decision = world.decide(policy(topic), topic)
        other = f"offset 9 of {copy} in dr is not a copy of offset 9"
        assert (decision.action, other in texts(decision)) == ("hold", True), texts(decision)


def test_copier_that_continues_in_another_log_is_rejected(
    world: World, dr: World, copying: subprocess.Popen[bytes]
) -> None:
    """A recreated topic, here or there: MirrorMaker 2 goes on at its old offset, and never copies what is before it."""
    here, there = make(world), make(world)
    for topic in (here, there):
        until(world, topic, 10)
    with paused(copying):
        world.renew(here)
        dr.renew(f"primary.{there}")
        world.produce(here, [4 * HOUR] * 15, value=b"new")
        world.produce(there, [4 * HOUR] * 5)
        for topic in (here, there):
            world.commit(f"{topic}-group", topic, 15)
    wait_until(lambda: dr.ends(f"primary.{here}")[1] > 10, "what is new here is copied")
    wait_until(lambda: dr.ends(f"primary.{there}")[1] == 5, "what is new is copied to the new topic there")
    for topic, remember in itertools.product((here, there), (True, False)):
        assert world.decide(policy(topic), topic, remember=remember).action == "hold", topic


def test_cluster_that_is_its_own_replica_is_an_error(world: World, copying: subprocess.Popen[bytes]) -> None:
    topic = make(world)
    world.contexts = {"dr": world.bootstrap}
    assert "context dr is this cluster itself" in texts(world.decide(policy(topic), topic))
    world.contexts = {"dr": "127.0.0.1:1"}
    decision = world.decide(policy(topic, timeout="1s"), topic)
    why = "replica:dr could not be read: 127.0.0.1:1"
    assert (decision.action, why in texts(decision)) == ("hold", True), texts(decision)


def test_groups_doctor_and_plan_use_the_replica_of_its_context(
    world: World, target: EmbeddedKafka, copying: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    topic = make(world)
    until(world, topic, 10)
    config = written(tmp_path / "config.yaml", f"contexts: {{dr: {{bootstrap-server: '{target.bootstrap}'}}}}\n")
    by = ("-p", str(written(tmp_path / "policy.yaml", policy(topic))))
    context: dict[str, Any] = {"KRETAIN_CONFIG": str(config)}
    [row] = [row for row in json_of(world, "groups", *by, **context)["groups"] if row["group"] == "replica:dr"]
    assert (row["type"], topic in row["topics"]) == ("replica", True)
    assert "replica:dr can be read: it has positions on" in world.cli("doctor", *by, **context).out
    for engine in ((), ("--spark", "--master", "local[2]")):
        assert pick(rows_of(world, "plan", *by, *engine, **context)[topic], "trim_to", "min_commit") == (10, 10)
    config.write_text("contexts: {other: {bootstrap-server: 'a:1'}}\n")
    assert "no context 'dr'; it has other" in rows_of(world, "plan", *by, **context)[topic]["reasons"][0]["text"]


def test_record_rejected_by_the_target_stays_until_copied(
    world: World, dr: World, copying: subprocess.Popen[bytes]
) -> None:
    """What follows was in flight: it is copied, and syncs tell so, but the connector, which has failed, is before it."""
    topic = make(world)
    until(world, topic, 10)
    dr.configure(f"primary.{topic}", {"max.message.bytes": "20000"})
    sizes = iter([100] * 5 + [60_000] + [100] * 394)
    # one batch, so that one fetch brings them all: a task that has only the one refused fails before the next fetch
    world.produce_at(topic, [now_ms() - 4 * HOUR] * 400, value=lambda: b"y" * next(sizes), compression="gzip")
    world.commit(f"{topic}-group", topic, 410)
    wait_until(lambda: dr.ends(f"primary.{topic}")[1] > 20, "records after the one that was refused", 60)
    for _ in range(20):
        world.trim(world.plan(policy(topic)), policy(topic))
        assert world.ends(topic)[0] <= 15
        time.sleep(0.2)


def test_unparsable_sync_message_makes_the_replica_unreadable(world: World, copying: subprocess.Popen[bytes]) -> None:
    """Last of all: MirrorMaker 2 can't read its topic any more, either."""
    topic = make(world)
    send(world, SYNCS, b"odd", b"odd")
    decision = world.decide(policy(topic), topic)
    assert (decision.action, f"{SYNCS}-0: the message at offset" in texts(decision)) == ("hold", True), texts(decision)
