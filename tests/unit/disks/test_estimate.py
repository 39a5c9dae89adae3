"""R6 without an inventory: levels found by bisecting times, close to what the segments themselves say."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from retention_cli.brokers.log_offsets import Found
from retention_cli.core.codes import Code
from retention_cli.core.model import TopicPartition
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
