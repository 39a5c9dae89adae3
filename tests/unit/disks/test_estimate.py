"""R6 without an inventory: levels found by bisecting times, close to what the segments themselves say."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, NotFound
from retention_cli.core.model import Code, TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks import estimate as estimate_module
from retention_cli.disks.disk import Disk, Leaving, Room
from retention_cli.disks.estimate import Known, estimate, estimated_segments
from retention_cli.disks.water_level import OldestFirst, water_level, wholly_below
from retention_cli.policy.settings import DiskRules
from tests.support.disk_oracle import Row
from tests.support.disks import segments_of

SEGMENT = 1000
EACH = 10
"""Records of a segment, of 100 bytes each."""


def cluster(chance: random.Random, partitions: int, disks: int) -> tuple[list[Row], list[list[int]]]:
    """Replicas of partitions of equally large records; stamps rise within a partition."""
    rows, stamps = [], []
    for partition in range(partitions):
        clock, times = chance.randint(0, 10_000_000), []
        count = chance.randint(30, 400)
        for _ in range(count):
            clock += chance.randint(1, 200_000)
            times.append(clock)
        stamps.append(times)
        for disk in chance.sample(range(disks), 2):
            for base in range(0, count, EACH):
                end = min(base + EACH, count)
                rows.append(Row(disk, partition, base, end, 100 * (end - base), times[end - 1], end == count))
    return rows, stamps


class Brokers:
    """Answers for partitions ``t-0``, ``t-1``, … with these stamps."""

    def __init__(self, stamps: list[list[int]]) -> None:
        self.stamps = stamps

    def list_offsets(self, wanted: Sequence[Mapping[TopicPartition, Any]], _: object) -> list[dict[Any, Found]]:
        return [{tp: self.answer(self.stamps[tp.partition], spec) for tp, spec in one.items()} for one in wanted]

    def answer(self, stamps: list[int], spec: Any) -> Found:
        if spec == "max-timestamp":
            return Found(0, max(stamps))
        offset = next((n for n, stamp in enumerate(stamps) if stamp >= spec), None)
        return Found(len(stamps), None) if offset is None else Found(offset, stamps[offset])


def estimated(
    rows: list[Row], stamps: list[list[int]], limit: list[int], excess: list[int], segment_bytes: int = SEGMENT
) -> OldestFirst:
    sizes: list[dict[TopicPartition, int]] = [{} for _ in excess]
    for row in rows:
        tp = TopicPartition("t", row.partition)
        sizes[row.disk][tp] = sizes[row.disk].get(tp, 0) + row.size
    disks = [
        Disk(n, ("/a",), Room(held - more, held, held), mine)
        for n, (mine, more) in enumerate(zip(sizes, excess, strict=True))
        for held in [sum(mine.values())]
    ]
    names = [TopicPartition("t", n) for n in range(len(stamps))]
    ends = {tp: (0, len(times)) for tp, times in zip(names, stamps, strict=True)}
    limits: dict[TopicPartition, Any] = {tp: Limit(most, Code.G2, "") for tp, most in zip(names, limit, strict=True)}
    known = Known(ends, {}, limits, {"t": segment_bytes}, {}, {}, {}, [Leaving()] * len(disks))
    leaders: Any = dict.fromkeys(names)
    reader: Any = Brokers(stamps)
    return estimate(reader, disks, DiskRules(percent=100), known, leaders, 10**9)


@pytest.mark.parametrize("seed", range(8))
def test_estimate_frees_80_to_120_percent_of_the_exact_amount(seed: int) -> None:
    """The issue's figure, on disks with dozens of replicas, one in ten of them held."""
    chance = random.Random(seed)
    rows, stamps = cluster(chance, 80, 4)
    segments = segments_of(rows)
    limit = [len(times) if chance.random() < 0.9 else 0 for times in stamps]
    held = np.bincount(segments.disk, weights=segments.size_bytes).astype(np.int64)
    excess = held * np.array([0, 20, 35, 50]) // 100
    found = estimated(rows, stamps, limit, excess.tolist())
    exact = water_level(segments, np.zeros(len(stamps), dtype=np.int64), np.array(limit), excess)
    bounds = np.array([found.bounds.get(TopicPartition("t", n), 0) for n in range(len(stamps))])
    really = wholly_below(segments, bounds)
    for disk, outcome in enumerate(found.outcomes):
        freed = int(segments.size_bytes[really & (segments.disk == disk)].sum())
        assert 0.8 * exact.freed[disk] <= freed <= 1.2 * exact.freed[disk], disk
        assert outcome.short_bytes == 0
    assert bool((bounds <= limit).all())


def test_disk_that_stays_full_is_short_after_everything_useful_is_trimmed() -> None:
    """Of 15 records that may go the first ten are a segment, and a quarter of one may go for good measure."""
    rows, stamps = cluster(random.Random(1), 6, 2)
    found = estimated(rows, stamps, [20, 0, 0, 15, 0, 0], [10**6, -1])
    assert found.outcomes[0].short_bytes > 0
    assert found.outcomes[1].short_bytes == 0
    here = {row.partition for row in rows if row.disk == 0}
    assert found.bounds == {TopicPartition("t", n): bound for n, bound in ((0, 20), (3, 13)) if n in here}


def test_estimate_keeps_the_last_segment_and_frees_only_whole_ones() -> None:
    """Active segments free nothing: by time all of it may go, of 25 records with ten a segment."""
    rows = [Row(0, 0, 0, 25, 2500, 0, False), Row(0, 1, 0, 25, 900, 0, False)]
    found = estimated(rows, [[*range(25)]] * 2, [25, 25], [3000])
    assert found.bounds == {TopicPartition("t", 0): 20}
    assert found.outcomes[0].freed_bytes == 2000


def test_estimate_with_equal_timestamps_trims_no_more_than_needed() -> None:
    """An import stamps a whole log alike: no level lies between its segments, the partitions' order does."""
    rows = [Row(0, n, 0, 100, 10_000, 0, False) for n in (0, 1)]
    found = estimated(rows, [[500_000] * 100] * 2, [100, 100], [12_500])
    assert found.bounds == {TopicPartition("t", 0): 90, TopicPartition("t", 1): 43}
    assert (found.outcomes[0].freed_bytes, found.outcomes[0].short_bytes) == (13_000, 0)


def test_estimate_merges_segments_into_one_row_above_the_row_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate_module, "MOST_ROWS", 1)
    logs = np.array([[0, 100_000, 0, 100_000, 10]])
    found = estimated_segments(np.array([0]), np.array([0]), np.array([100_000]), logs)
    assert (len(found), int(found.size_bytes.sum()), int(found.active.sum())) == (17, 100_000, 1)
    assert found.next_offset.tolist()[:2] == [6_252, 12_502]


# -- r6 without an inventory, disks and decisions together: what goes, what holds, what is said (R6) --


OLD, NEW, OTHER = TopicPartition("old", 0), TopicPartition("new", 0), TopicPartition("other", 0)
NOW = 1_800_000_000_000
MINUTE = 60_000
SEGMENT_BYTES = 1_000
R6 = DiskRules(percent=50)
DOUBT = Unknown.because("R6", "its log start has moved since its size last fell")


@dataclass
class ByTheMinute:
    """Partitions of 100 records, one a minute, 100 bytes each; ``old`` ends where ``new`` begins."""

    wrong: Mapping[TopicPartition, Answer] = field(default_factory=dict)
    silent: frozenset[TopicPartition] = frozenset()
    """Whose MAX_TIMESTAMP is not answered."""
    times: list[int] = field(default_factory=list)

    def stamp(self, tp: TopicPartition, offset: int) -> int:
        return NOW - MINUTE * ({OLD: 200, NEW: 100, OTHER: 150}[tp] - offset)

    def list_offsets(self, wanted: Sequence[Mapping[TopicPartition, Any]], _: object) -> list[dict[Any, Answer]]:
        return [{tp: self.answer(tp, spec) for tp, spec in one.items()} for one in wanted]

    def answer(self, tp: TopicPartition, spec: Any) -> Answer:
        if spec == "max-timestamp":
            return NotFound() if tp in self.silent else Found(0, max(self.stamp(tp, n) for n in range(100)))
        self.times.append(spec)  # 0 asks for the first record
        if tp in self.wrong:
            return self.wrong[tp]
        return next((Found(n) for n in range(100) if self.stamp(tp, n) >= spec), NotFound())


def walked(
    used: int = 20_000,
    brokers: ByTheMinute | None = None,
    *,
    total: int = 20_000,
    room: Unknown | None = None,
    leaving: int = 0,
    **facts: Any,
) -> OldestFirst:
    """One disk of 20,000 bytes with ``old`` and ``new`` on it: half of them must go."""
    disk = Disk(1, ("/a",), room or Room(total, used, 20_000), {OLD: 10_000, NEW: 10_000})
    free = Limit(100, Code.G1, "the high watermark")
    doubts = {(0, tp): why for tp, why in facts.pop("doubts", {}).items()}
    usual: dict[str, Any] = {
        "ends": {OLD: (0, 100), NEW: (0, 100)},
        "decided": {},
        "limits": {OLD: free, NEW: free},
        "segment_bytes": {"old": SEGMENT_BYTES, "new": SEGMENT_BYTES},
        "doubts": doubts,
        "dead_bytes": dict.fromkeys(doubts, facts.pop("dead", 0)),
        "doubtful_bytes": dict.fromkeys(doubts, facts.pop("doubtful", 0)),
        "leaving": [Leaving(leaving)],
    }
    known = Known(**(usual | facts))
    reader: Any = brokers or ByTheMinute()
    return estimate(reader, [disk], R6, known, dict.fromkeys((OLD, NEW)), NOW)  # type: ignore[arg-type]


HELD = Limit(35, Code.G2, "group:a has read up to 35")


@pytest.mark.parametrize(
    ("used", "facts", "bounds", "outcome"),
    [
        pytest.param(
            *(20_000, {}, {OLD: 90, NEW: 13}),  # a segment is 10 records, and a quarter more for good measure
            {"excess_bytes": 10_000, "freed_bytes": 10_000, "short_bytes": 0, "estimated": True},
            id="the oldest partition is trimmed to its last segment before the next",
        ),
        pytest.param(15_000, {}, {OLD: 53}, {}, id="as far as is needed"),
        pytest.param(
            *(20_000, {"limits": {OLD: HELD, NEW: HELD}}, {OLD: 33, NEW: 33}, {"short_bytes": 4_000}),
            id="never past a limit (G2)",
        ),
        pytest.param(
            *(15_000, {"decided": {NEW: 50}}, {}, {"other_rules_bytes": 5_000}),
            id="what other rules trim is not freed again",
        ),
        pytest.param(
            *(15_000, {"decided": {NEW: 50}, "segment_bytes": {"old": SEGMENT_BYTES, "new": 1 << 30}}, {}),
            {"other_rules_bytes": 0, "doubtful_bytes": 5_000, "short_bytes": 0},
            id="below one segment nobody knows whether a trim frees anything",
        ),
    ],
)
def test_estimate_takes_the_oldest_records_that_nothing_else_frees(
    used: int, facts: dict[str, Any], bounds: dict[TopicPartition, int], outcome: dict[str, object]
) -> None:
    found = walked(used, **facts)
    assert found.bounds == bounds
    assert not found.unknown or found.outcomes[0].doubtful_bytes
    assert {name: getattr(found.outcomes[0], name) for name in outcome} == outcome


def test_look_up_times_of_an_estimate_are_deterministic() -> None:
    one, other = ByTheMinute(), ByTheMinute()
    walked(brokers=one)
    walked(brokers=other)
    assert one.times == other.times
    assert {time % 512 for time in one.times} == {0}


def test_young_record_out_of_order_ends_the_trimmed_prefix() -> None:
    """Only what stands before every record that is not older may go."""

    class Shuffled(ByTheMinute):
        def stamp(self, tp: TopicPartition, offset: int) -> int:
            return NOW if (tp, offset) == (OLD, 30) else super().stamp(tp, offset)

    assert walked(15_000, Shuffled()).bounds == {OLD: 23, NEW: 33}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"limits": {NEW: Limit(100, Code.G1, "")}}, None),
        ({"limits": {NEW: Limit(100, Code.G1, ""), OLD: Unknown.because("F4", "no group")}}, "F4"),
        ({"segment_bytes": {"new": SEGMENT_BYTES}}, "R6"),
        ({"doubts": {OLD: DOUBT}}, "R6"),
    ],
    ids=["not managed", "floor unknown", "segments of unknown size", "perhaps dead bytes in it"],
)
def test_partition_that_must_not_be_trimmed_is_not_estimated(change: dict[str, Any], why: str | None) -> None:
    found = walked(**change)
    assert OLD not in found.bounds
    assert [reason.code for one in found.unknown.values() for reason in one.reasons] == ([] if why is None else [why])
    [one] = found.outcomes
    assert one.short_bytes == 1_000
    assert sum(row.size_bytes for row in one.in_the_way if row.tp == OLD) == 10_000
    assert sum(row.size_bytes for row in one.in_the_way if row.tp == NEW) == 1_000


@pytest.mark.parametrize("way", ["dead", "doubtful", "leaving"])
def test_bytes_leaving_or_doubtful_are_not_trimmed_from_other_topics(way: str) -> None:
    """R5, R6: else each pass would trim again what the last one has."""
    more: dict[str, Any] = {way: 5_000} if way == "leaving" else {"doubts": {NEW: DOUBT}, way: 5_000}
    found = walked(15_000, **more)
    assert found.bounds == {}
    waiting = {"dead": {NEW}, "doubtful": {NEW, OLD}, "leaving": set()}  # unknown, though nothing more is wanted
    assert found.unknown.keys() == waiting[way]
    assert walked(16_000, **more).bounds == {OLD: 13}
    assert walked(10_000, **more).unknown == {}  # R6 asks for nothing there


@pytest.mark.parametrize(
    "answer", [NotFound(), RequestFailedError("moved", retriable=True)], ids=["minus one", "an error"]
)
@pytest.mark.parametrize("silent", [True, False])
def test_partition_with_unanswered_look_ups_is_trimmed_only_if_its_newest_record_is_known(
    answer: Answer, *, silent: bool
) -> None:
    """docs/rules.md, Look-ups: it means H only where MAX_TIMESTAMP bears it out; else nothing goes."""
    brokers = ByTheMinute({OLD: answer}, frozenset({OLD} if silent else ()))
    # after its newest record its end is known without an answer; where that is not known either, others must do
    assert walked(15_000, brokers).bounds == ({NEW: 53} if silent else {OLD: 53})


def test_unknown_disk_holds_every_partition_on_it() -> None:
    found = walked(room=Unknown.because("disk", "offline"))
    assert found.bounds == {}
    assert found.unknown.keys() == {OLD, NEW}
    shared = walked(50_000, total=60_000)
    assert shared.bounds == {}
    assert "disks.shared" in shared.unknown[OLD].reasons[0].text
