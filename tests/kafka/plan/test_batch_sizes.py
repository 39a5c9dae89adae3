"""R5 by the batches in logs, on real brokers: what leaders send is what lies in their files (R5)."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kretain.embedded import EmbeddedKafka
from retention_cli.brokers.batch_runs import RunsWanted
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.wire import frames
from retention_cli.brokers.wire.runs import Runs
from retention_cli.core.model import TopicPartition
from retention_cli.decide.guards.limits import Amount
from retention_cli.disks import batch_sizes
from retention_cli.disks.batch_sizes import BatchSizes, read_here
from retention_cli.plan.make import make_plan
from retention_cli.plan.value import Plan
from tests.support.world import HOUR, World, now_ms, reader_for

KIB = 1024


def batches_on_disk(kafka: EmbeddedKafka, topic: str, partition: int = 0) -> list[tuple[int, int]]:
    """Base offset and bytes of each batch in a leader's files, by lengths alone."""
    leader = leaders(kafka.bootstrap, topic)[TopicPartition(topic, partition)].leader
    assert leader is not None
    [folder] = [one for place in kafka.node(leader).log_dirs for one in place.glob(f"{topic}-{partition}")]
    found = []
    for file in sorted(folder.glob("*.log")):
        data, at = file.read_bytes(), 0
        while at < len(data):
            base, length = struct.unpack_from(">qi", data, at)
            found.append((base, 12 + length))
            at += 12 + length
    return found


def leaders(bootstrap: str, topic: str) -> dict[TopicPartition, PartitionMetadata]:
    with reader_for(bootstrap) as reader:
        partitions = reader.metadata([topic]).topics[topic].partitions
    return {TopicPartition(topic, number): one for number, one in partitions.items()}


def read(world: World, topic: str, start: int, end: int, run_bytes: int = 1, *, begin: bool = True) -> Runs:
    tp = TopicPartition(topic, 0)
    with reader_for(world.bootstrap) as reader:
        wanted = {tp: RunsWanted(start, end, run_bytes, begin)}
        found = reader.batch_runs(wanted, leaders(world.bootstrap, topic), lambda _: None)[tp]
    assert isinstance(found, Runs), found
    return found


def smallest_that_fits(batches: list[tuple[int, int]], start: int, most: int) -> int:
    """R5, written down once more: from the back, as long as it fits."""
    left, found = most, max(base for base, _ in batches)
    for base, size in reversed(batches):
        left -= size
        if left < 0:
            return found
        found = base
    return start


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "zstd"])
def test_what_leaders_send_is_what_lies_in_their_files(kafka: EmbeddedKafka, world: World, codec: str) -> None:
    """Compressed, with markers, with what was aborted, and over several segments."""
    topic = world.topic(segment_bytes=str(1 << 20))
    for _ in range(10):
        world.produce_at(topic, [now_ms()] * 40, value=os.urandom(4000), batch=10, compression=codec)
    world.transaction(topic, [now_ms()] * 3, end="commit")
    world.transaction(topic, [now_ms()] * 3, end="abort")
    _, high = world.ends(topic)
    there = batches_on_disk(kafka, topic)
    runs = read(world, topic, 0, high)
    assert list(zip(runs.base_offset, runs.size_bytes, strict=True)) == there
    assert runs.next_offset.tolist() == [*(base for base, _ in there[1:]), high]
    assert not runs.moved


def test_runs_are_batches_put_together_and_pieces_follow_on_each_other(kafka: EmbeddedKafka, world: World) -> None:
    """Wherever it is cut, within a batch too, each batch counts once."""
    topic = world.topic()
    world.produce_at(topic, [now_ms() + n for n in range(100)], value=os.urandom(500), batch=7)
    there = batches_on_disk(kafka, topic)
    total = sum(size for _, size in there)
    large = read(world, topic, 0, 100, run_bytes=10 * KIB)
    assert 3 < len(large.base_offset) < len(there)
    assert sum(large.size_bytes) == total
    assert min(large.size_bytes[:-1]) >= 10 * KIB
    assert {*large.base_offset} < {base for base, _ in there}
    for cut in (1, 7, 10, 50, 98, 99):
        found = read(world, topic, 0, cut)
        found.follow(read(world, topic, cut, 100, begin=False))
        assert list(zip(found.base_offset, found.size_bytes, strict=True)) == there, cut
        assert found.next_offset == read(world, topic, 0, 100).next_offset
    inside = there[2][0] + 3
    assert read(world, topic, inside, 100).base_offset[0] == there[2][0], "a log that begins in a batch has all of it"


def plan(world: World, policy: str, batches: BatchSizes, *topics: str) -> Plan:
    with reader_for(world.bootstrap) as reader:
        chosen = world.selection(policy, *topics)
        return make_plan(reader, chosen, now_ms(), past_day=lambda _: Amount(), inventory=batches)


def bounds(plan: Plan) -> dict[TopicPartition, tuple[str, int | None]]:
    return {one.tp: (one.action, one.trim_to) for one in plan.decisions}


def reasons(plan: Plan) -> str:
    return " ".join(reason.text for one in plan.decisions for reason in one.reasons)


class Counted(BatchSizes):
    """Tells which logs were read."""

    def __init__(self) -> None:
        self.seen: list[TopicPartition] = []

        def read(reader: ClusterReader, wanted: Mapping[TopicPartition, RunsWanted], *more: Any) -> Any:
            self.seen += wanted
            return read_here(reader, wanted, *more)

        super().__init__(read)


def test_a_partition_is_trimmed_to_its_size_to_the_batch(kafka: EmbeddedKafka, world: World) -> None:
    """Batches of many sizes: an estimate by offsets would be far off. What fits is not read."""
    topic = world.topic(partitions=3)
    for count, size in ((50, 2000), (300, 10), (20, 5000), (1, 30_000), (200, 50)):
        world.produce_at(topic, [now_ms()] * count, value=os.urandom(size), batch=25)
    world.produce_at(topic, [now_ms()] * 10, partition=1, value=os.urandom(100))
    batches = Counted()
    for most in (20 * KIB, 60 * KIB, 150 * KIB, 200 * KIB):
        policy = f"version: 1\ntopics:\n- {{match: {topic}, retention.bytes: {most}, unconsumed: trim}}\n"
        made = plan(world, policy, batches, topic)
        bound = smallest_that_fits(batches_on_disk(kafka, topic), 0, most)
        assert bound > 0
        assert bounds(made) == {
            TopicPartition(topic, 0): ("trim", bound),
            TopicPartition(topic, 1): ("keep", None),
            TopicPartition(topic, 2): ("keep", None),
        }
        assert "by the batches in its log" in reasons(made)
    assert batches.seen == [TopicPartition(topic, 0)], "once a command, and only what is too large"


def test_a_topic_is_trimmed_by_its_oldest_batches(kafka: EmbeddedKafka, world: World) -> None:
    topic = world.topic(partitions=2)
    now, sizes = now_ms(), []
    for step in range(20):  # by turns, ever younger
        upto = world.produce_at(topic, [now - HOUR + 1000 * step] * 5, step % 2, os.urandom(1000 + 300 * step))
        there = batches_on_disk(kafka, topic, step % 2)
        ends = [*(base for base, _ in there[1:]), upto]
        new = [(step % 2, end, size) for (base, size), end in zip(there, ends, strict=True) if base >= upto - 5]
        sizes += new
    most = 100 * KIB
    gone, excess = {0: 0, 1: 0}, sum(size for *_, size in sizes) - most
    for partition, end, size in sizes:
        if excess > 0:
            gone[partition], excess = end, excess - size
    policy = f"version: 1\ntopics:\n- {{match: {topic}, retention.topic.bytes: {most}, unconsumed: trim}}\n"
    assert bounds(plan(world, policy, BatchSizes(), topic)) == {
        TopicPartition(topic, partition): ("trim", bound) for partition, bound in gone.items()
    }


def test_a_log_that_retention_shortens_while_it_is_read_is_read_from_where_it_begins(
    kafka: EmbeddedKafka, world: World
) -> None:
    topic = world.topic()
    world.produce_at(topic, [now_ms()] * 60, value=os.urandom(1000), batch=6)
    there = batches_on_disk(kafka, topic)

    def read(reader: ClusterReader, wanted: Mapping[TopicPartition, RunsWanted], *more: Any) -> Any:
        world.delete_records(topic, 15)
        found = read_here(reader, wanted, *more)
        first = max(base for base, _ in there if base <= 15)
        [one] = found.values()
        assert isinstance(one, Runs)
        assert (one.moved, one.base_offset[0]) == (True, first)
        return found

    policy = f"version: 1\ntopics:\n- {{match: {topic}, retention.bytes: {20 * KIB}, unconsumed: trim}}\n"
    made = plan(world, policy, BatchSizes(read), topic)
    assert bounds(made) == {TopicPartition(topic, 0): ("trim", smallest_that_fits(there, 0, 20 * KIB))}


def test_pieces_before_where_a_log_now_begins_are_dropped(kafka: EmbeddedKafka, world: World) -> None:
    topic = world.topic()
    world.produce_at(topic, [now_ms()] * 30, value=os.urandom(100), batch=5)
    start = batches_on_disk(kafka, topic)[-1][0]
    first = read(world, topic, 0, 4)
    world.delete_records(topic, start)
    second, third = read(world, topic, 4, start, begin=False), read(world, topic, start, 30, begin=False)
    assert second.moved
    assert not second.base_offset
    first.follow(second)
    first.follow(third)
    assert (first.base_offset.tolist(), first.next_offset.tolist(), first.moved) == ([start], [30], True)


def test_what_can_not_be_read_holds(world: World) -> None:
    """Who leads it, the broker no longer agrees with us about: it is asked until the time is over, then unknown."""
    topic = world.topic()
    world.produce_at(topic, [now_ms()] * 30, value=os.urandom(1000))

    def read(reader: ClusterReader, wanted: Any, leaders: Mapping[TopicPartition, PartitionMetadata], on: Any) -> Any:
        with reader_for(world.bootstrap, timeout_s=1.0) as hasty:
            older = {tp: replace(one, leader_epoch=one.leader_epoch + 7) for tp, one in leaders.items()}
            found = read_here(hasty, wanted, older, on)
        assert all(isinstance(one, RequestFailedError) for one in found.values())
        return found

    policy = f"version: 1\ntopics:\n- {{match: {topic}, retention.bytes: {20 * KIB}, unconsumed: trim}}\n"
    made = plan(world, policy, BatchSizes(read), topic)
    assert bounds(made) == {TopicPartition(topic, 0): ("hold", None)}
    assert "what lies in its log could not be read: its leader has just changed (UNKNOWN_LEADER_EPOCH)" in reasons(made)


def test_a_batch_that_is_larger_than_any_answer_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_RESPONSE_BYTES", 1 << 20)
    topic = world.topic("large", max_message_bytes=str(8 << 20))
    world.produce(topic, 3)
    world.produce(topic, 1, value=bytes(2 << 20))
    with reader_for(world.bootstrap) as reader:
        tp = TopicPartition(topic, 0)
        wanted = {tp: RunsWanted(0, 4, 1)}
        found = reader.batch_runs(wanted, leaders(world.bootstrap, topic), lambda _: None)[tp]
    assert isinstance(found, RequestFailedError)
    assert str(found).startswith("the batch at offset ")
    assert "is larger than" in str(found)


def test_a_topic_made_anew_is_read_anew(kafka: EmbeddedKafka, world: World) -> None:
    topic = world.topic()
    policy = f"version: 1\ntopics:\n- {{match: {topic}, retention.bytes: {20 * KIB}, unconsumed: trim}}\n"
    world.produce_at(topic, [now_ms()] * 60, value=os.urandom(1000), batch=6)
    batches = Counted()
    plan(world, policy, batches, topic)
    world.delete(topic)
    world.topic(name=topic)
    world.produce_at(topic, [now_ms()] * 100, value=os.urandom(400), batch=5)
    made = plan(world, policy, batches, topic)
    bound = smallest_that_fits(batches_on_disk(kafka, topic), 0, 20 * KIB)
    assert bounds(made) == {TopicPartition(topic, 0): ("trim", bound)}
    assert len(batches.seen) == 2


def test_a_run_that_does_not_fit_goes_as_a_whole(
    kafka: EmbeddedKafka, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a run, which is a thousandth of a log: of what is put together the beginning counts, as of a segment."""
    monkeypatch.setattr(batch_sizes, "RUNS_A_LOG", 4)
    topic = world.topic()
    world.produce_at(topic, [now_ms()] * 100, value=os.urandom(1000), batch=2)
    there = batches_on_disk(kafka, topic)
    policy = f"version: 1\ntopics:\n- {{match: {topic}, retention.bytes: {40 * KIB}, unconsumed: trim}}\n"
    [one] = plan(world, policy, BatchSizes(), topic).decisions
    exact = smallest_that_fits(there, 0, 40 * KIB)
    assert one.trim_to is not None
    assert exact <= one.trim_to <= exact + 100 / 4 + 2


def test_a_trim_by_the_command_goes_by_what_its_plan_has_read(
    kafka: EmbeddedKafka, world: World, tmp_path: Path
) -> None:
    topic = world.topic()
    world.produce_at(topic, [now_ms()] * 200, value=os.urandom(1000), batch=9)
    bound = smallest_that_fits(batches_on_disk(kafka, topic), 0, 50 * KIB)
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"version: 1\ntopics:\n- {{match: {topic}, retention.bytes: 50KiB, unconsumed: trim}}\n")
    done = world.cli("trim", "-p", str(policy), "--exact-bytes", "--yes", "-o", "json", check=0).json()
    assert [(row["outcome"], row["log_start"]) for row in done["partitions"]] == [("trimmed", bound)], done
    assert world.ends(topic)[0] == bound
    again = world.cli("plan", "-p", str(policy), "--exact-bytes", "-o", "json", check=0).json()
    assert again["totals"]["trim"] == 0, "what is dead does not count: it fits now"
