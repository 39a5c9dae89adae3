"""How far a replica's size can be trusted: what is said, and what to do (R5, R6)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import LogDirState, Replica
from retention_cli.core.model import PartitionFacts, Reason, Tail, TopicPartition, Unknown
from retention_cli.decide.decision import decide
from retention_cli.disks.disk import Disk, Room
from retention_cli.disks.estimate import estimated_tail
from retention_cli.disks.inventory_view import exact_tails, exact_topic_tails
from retention_cli.disks.replica_sizes import Sizes, smaller_replicas
from retention_cli.memory.partition import PartitionMemory
from retention_cli.policy.settings import Settings
from tests.support.disk_oracle import Row
from tests.support.disks import segments_of
from tests.support.facts import HOUR, NOW, Log, why

ORDERS = TopicPartition("orders", 0)
DISK = Disk(1, ("/a",), Room(9_000, 5_000, 1_000), {ORDERS: 1_000})
FAILED = RequestFailedError("not allowed", retriable=False)
MINUTE = 60_000


@dataclass
class Brokers:
    check: Any = field(default_factory=lambda: {"log.retention.check.interval.ms": "300000"})
    topic: Any = field(default_factory=lambda: {"segment.bytes": "100", "file.delete.delay.ms": "60000"})

    def broker_values(self, brokers: list[int], _: object) -> dict[int, Any]:
        return dict.fromkeys(brokers, self.check)

    def topic_values(self, topics: list[str], _: object) -> dict[str, Any]:
        return dict.fromkeys(topics, self.topic)


def looked(
    memory: PartitionMemory,
    minute: int,
    start: int,
    size: int,
    brokers: Brokers | None = None,
    *,
    future: bool = False,
    path: str = "/a",
) -> Sizes:
    """One look: 100 offsets in all, a replica of this size on broker 1."""
    facts = Log(start, [0] * (100 - start)).facts(Settings())
    copies = [Replica(ORDERS, size, future=False), *([Replica(ORDERS, 1, future=True)] if future else ())]
    sizes, reader = Sizes(), brokers or Brokers()
    dirs = {1: [LogDirState(path, 9_000, 4_000, copies)], 2: FAILED}
    sizes.add(reader, dirs, {ORDERS: facts}, {ORDERS: memory}, minute * MINUTE)  # type: ignore[arg-type]
    return sizes


def doubt(sizes: Sizes) -> str:
    return why(sizes.doubt(DISK, ORDERS, "R6"))


def test_replica_seen_for_the_first_time_is_doubted_for_two_checks() -> None:
    memory = PartitionMemory()
    first = looked(memory, 0, 50, 1_000)
    assert "watched it for 11 m" in doubt(first)
    assert "--inventory" in doubt(first)
    assert (first.dead_bytes(DISK, ORDERS), first.doubtful_bytes(DISK, ORDERS)) == (0, 500)
    assert doubt(looked(memory, 10, 50, 1_000))
    assert not doubt(looked(memory, 11, 50, 1_000))
    assert memory.changed


def test_replica_is_doubted_after_a_log_start_move_until_its_size_falls() -> None:
    memory = PartitionMemory()
    assert not doubt(looked(memory, 0, 0, 1_000))
    moved = looked(memory, 60, 40, 1_000)
    assert "has moved since its size on broker 1 last fell" in doubt(moved)
    assert (moved.dead_bytes(DISK, ORDERS), moved.doubtful_bytes(DISK, ORDERS)) == (400, 0)
    assert doubt(looked(memory, 600, 40, 1_000))
    fallen = looked(memory, 601, 40, 600)
    assert not doubt(fallen)
    assert fallen.leaving_bytes(DISK) == 400
    assert looked(memory, 603, 40, 600).leaving_bytes(DISK) == 0


def test_replica_moving_to_another_dir_is_doubted_and_restarts_there() -> None:
    memory = PartitionMemory()
    looked(memory, 0, 50, 1_000)
    assert "being moved" in doubt(looked(memory, 60, 50, 1_000, future=True))
    there = looked(memory, 61, 50, 1_000, path="/b")
    assert there.doubt(Disk(1, ("/b",), DISK.room, DISK.replicas), ORDERS, "R6") is not None


def test_unreadable_sweep_settings_leave_the_replica_doubted() -> None:
    for brokers in (Brokers(check=FAILED), Brokers(topic=FAILED), Brokers(check={}), Brokers(topic={})):
        memory = PartitionMemory()
        looked(memory, 0, 50, 1_000, brokers)
        sizes = looked(memory, 6_000, 50, 1_000, brokers)
        assert "could not be read" in doubt(sizes)
        assert sizes.longest([1], ["orders"]) != (300_000, 60_000)
    assert looked(PartitionMemory(), 0, 50, 1_000, Brokers(topic=FAILED)).segment_bytes == {}


@pytest.mark.parametrize(
    ("setting", "bytes_"),
    [({}, 0), ({"cleanup.policy": "compact,delete"}, 1_200), ({"remote.storage.enable": "true"}, 1_200)],
    ids=["plain", "compacted", "tiered"],
)
def test_segments_deleted_without_a_move_of_the_log_start_may_be_leaving(setting: dict[str, str], bytes_: int) -> None:
    """A cleaner, or a local retention, deletes them; growth hides it. All that the replica had may be leaving."""
    memory, brokers = PartitionMemory(), Brokers()
    brokers.topic |= {"cleanup.policy": "delete", "remote.storage.enable": "false", **setting}
    assert looked(memory, 0, 0, 1_200, brokers).may_leave_bytes(DISK, None) is None
    assert looked(memory, 60, 0, 1_000, brokers).may_leave_bytes(DISK, 0) == 200 + bytes_
    assert looked(memory, 120, 0, 1_000, brokers).may_leave_bytes(DISK, 60 * MINUTE) == (1_000 if bytes_ else 0)


def test_replica_that_was_away_at_the_last_look_at_its_disk_counts_as_come() -> None:
    memory, brokers = PartitionMemory(), Brokers()
    brokers.topic |= {"cleanup.policy": "delete", "remote.storage.enable": "false"}
    looked(memory, 0, 0, 1_000, brokers)
    assert looked(memory, 60, 0, 1_000, brokers).may_leave_bytes(DISK, 30 * MINUTE) is None
    assert looked(memory, 120, 0, 1_000, brokers).may_leave_bytes(DISK, 60 * MINUTE) == 0


def test_replica_that_was_never_seen_is_doubted() -> None:
    doubt = looked(PartitionMemory(), 0, 0, 1_000).doubt(Disk(3, ("/a",), DISK.room, DISK.replicas), ORDERS, "R6")
    assert "could not be compared" in why(doubt)


def test_replica_smaller_by_more_than_two_segments_counts_as_lagging() -> None:
    room, first, second = Room(10_000, 5_000, 5_000), TopicPartition("a", 0), TopicPartition("b", 0)
    disks = [Disk(1, ("/d",), room, {first: 1_000, second: 900}), Disk(2, ("/d",), room, {first: 799, second: 700})]
    found = smaller_replicas(disks, {first, second}, {"a": 100, "b": 100})
    assert found.keys() == {(1, first)}
    [reason] = found[1, first].reasons
    assert reason.code == "R6"
    assert reason.text.startswith("its replica on broker 2 takes 799 B, another 1000 B: it lags or is still filling")
    assert smaller_replicas(disks, {second}, {"a": 100, "b": 100}) == {}
    assert smaller_replicas(disks, {first, second}, {}).keys() == {(1, first), (1, second)}, (
        "how large segments are is not known"
    )


# -- r5, and rounding to whole segments: the smallest offset whose tail fits (R5, granularity) --


NOT_SWEPT = Unknown.because("R5", "its size has dead bytes in it")
BYTES = Settings(max_bytes=100, unconsumed="trim")
LOG = Log(10, [NOW - HOUR] * 10)


@given(st.integers(0, 10**9), st.integers(1, 10**9), st.integers(1, 10**12), st.integers(0, 10**12))
def test_estimated_tail_is_the_first_offset_that_fits(start: int, records: int, size: int, most: int) -> None:
    end = start + records

    def fits(offset: int) -> bool:
        return size * (end - offset) <= most * records

    found = estimated_tail(start, end, size, most)
    assert start <= found <= end
    assert fits(found)
    assert found == start or not fits(found - 1)


logs = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20), st.integers(0, 5)), max_size=6), st.integers(0, 15)
    ),
    min_size=1,
    max_size=4,
)


def built(drawn: list[tuple[list[tuple[int, int, int]], int]]) -> tuple[list[Row], list[int]]:
    """Each partition's segments: (records, bytes, time); the last is active. And where each log starts."""
    rows, starts = [], []
    for partition, (segments, start) in enumerate(drawn):
        base = 0
        for number, (records, size, time) in enumerate(segments):
            rows.append(Row(0, partition, base, base + records, size, time, number == len(segments) - 1))
            base += records
        starts.append(min(start, base))
    return rows, starts


def live(rows: list[Row], partition: int, start: int) -> list[Row]:
    return [row for row in rows if row.partition == partition and (row.next > start or row.active)]


@given(logs, st.lists(st.integers(-1, 60), min_size=4, max_size=4))
def test_exact_tail_starts_at_a_segment_base(drawn: list, most: list[int]) -> None:
    rows, starts = built(drawn)
    segments = segments_of(rows)
    most = most[: len(starts)]
    found = exact_tails(segments, np.array(starts), np.array(most))
    for partition, (start, limit) in enumerate(zip(starts, most, strict=True)):
        own = live(rows, partition, start)
        fitting = [row.base for n, row in enumerate(own) if row.active or sum(one.size for one in own[n:]) <= limit]
        assert found[partition] == (start if limit < 0 or not own else max(start, min(fitting)))


@given(logs, st.integers(-1, 120))
def test_topic_size_limit_trims_the_oldest_segments_until_it_fits(drawn: list, most: int) -> None:
    rows, starts = built(drawn)
    of_topic = [partition % 2 for partition in range(len(starts))]
    found = exact_topic_tails(segments_of(rows), np.array(starts), np.array(of_topic), np.array([most, -1]))
    assert [bound for n, bound in enumerate(found.tolist()) if of_topic[n]] == [
        start for n, start in enumerate(starts) if of_topic[n]
    ]
    bounds = list(starts)
    while most >= 0:
        left = [row for n in range(0, len(starts), 2) for row in live(rows, n, bounds[n])]
        may_go = [row for row in left if not row.active]
        if sum(row.size for row in left) <= most or not may_go:
            break

        def youngest_with(row: Row) -> tuple[int, int, int]:
            begun = live(rows, row.partition, starts[row.partition])
            return max(o.time for o in begun if not o.active and o.next <= row.next), row.partition, row.next

        oldest = min(may_go, key=youngest_with)
        bounds[oldest.partition] = oldest.next
    assert found.tolist()[::2] == bounds[::2]


def with_tails(**tails: Tail | Unknown) -> PartitionFacts:
    keys = {"each": "retention.bytes", "topic": "retention.topic.bytes"}
    return LOG.facts(BYTES)._replace(tails={keys[name]: tail for name, tail in tails.items()})


def test_larger_of_two_size_bounds_decides_and_names_its_source() -> None:
    both = replace(BYTES, max_topic_bytes=1000)
    found = decide(with_tails(each=Tail(12, exact=True), topic=Tail(15, exact=False)), both, NOW)
    assert (found.trim_to, found.rule) == (15, "size")
    assert "retention.topic.bytes" in found.reasons[0].text
    assert "estimated" in found.reasons[0].text
    found = decide(with_tails(each=Tail(16, exact=True), topic=NOT_SWEPT), both, NOW)
    assert (found.trim_to, found.reasons[-1]) == (16, NOT_SWEPT.reasons[0])
    assert "by the inventory" in found.reasons[0].text


def test_unknown_or_unread_size_holds() -> None:
    assert decide(with_tails(each=NOT_SWEPT), BYTES, NOW).reasons == NOT_SWEPT.reasons
    assert decide(LOG.facts(BYTES), BYTES, NOW).action == "hold"


def test_size_rule_stops_at_the_floor() -> None:
    """G2: R5 too trims nothing unread, unless the policy says so."""
    held = replace(BYTES, unconsumed="hold")
    facts = with_tails(each=Tail(18, exact=True))._replace(floor=replace(LOG, floor=13).facts(held).floor)
    found = decide(facts, held, NOW)
    assert (found.trim_to, found.limited_by) == (13, "G2")
    assert decide(facts, replace(held, max_bytes=None), NOW).action == "keep"


WHOLE = replace(BYTES, whole_segments=True)


@pytest.mark.parametrize(
    ("bases", "trim_to"), [([0, 14, 17], 14), ([15], 15), ([16, 20], None), ([0, 10], None), ([], None)]
)
def test_size_bound_is_rounded_down_to_a_segment_base(bases: list[int], trim_to: int | None) -> None:
    found = decide(with_tails(each=Tail(15, exact=True))._replace(segment_bases=bases), WHOLE, NOW)
    assert found.trim_to == trim_to
    assert found.action == ("keep" if trim_to is None else "trim")
    if trim_to is None:
        assert isinstance(found.reasons[-1], Reason)
        assert found.reasons[-1].code == "granularity"


def test_whole_segments_without_an_inventory_hold_and_name_the_scan_command() -> None:
    found = decide(with_tails(each=Tail(15, exact=True)), WHOLE, NOW)
    assert found.action == "hold"
    assert any("kretain segments scan" in reason.text for reason in found.reasons)
