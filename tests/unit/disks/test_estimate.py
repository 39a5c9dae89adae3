"""R6 without an inventory: levels found by bisecting times, close to what the segments themselves say."""

from __future__ import annotations

import random

import numpy as np
import pytest

from retention_cli.disks.solve.estimate import Bisection, Estimate, Logs, Replicas, freed_bytes
from retention_cli.disks.solve.segments import segments_of
from retention_cli.disks.solve.water_level import water_level, wholly_below
from tests.support.disk_oracle import Row

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


def bisected(rows: list[Row], stamps: list[list[int]], limit: np.ndarray, excess: np.ndarray) -> tuple[Estimate, int]:
    sizes: dict[tuple[int, int], int] = {}
    for row in rows:
        sizes[row.disk, row.partition] = sizes.get((row.disk, row.partition), 0) + row.size
    replicas = Replicas(
        np.array([disk for disk, _ in sizes]), np.array([one for _, one in sizes]), np.array(list(sizes.values()))
    )
    ends = np.array([len(times) for times in stamps])
    nothing = np.zeros(len(stamps), dtype=np.int64)
    logs = Logs(nothing, ends, nothing, limit, np.full(len(stamps), SEGMENT))
    search = Bisection(replicas, logs, excess, 0, 10**9)
    rounds = 0
    while len((asked := search.wanted())[0]):
        rounds += 1
        assert rounds < 64
        found = [
            next((n for n, stamp in enumerate(stamps[partition]) if stamp >= time), len(stamps[partition]))
            for partition, time in zip(asked[0].tolist(), asked[1].tolist(), strict=True)
        ]
        search.answer(*asked, np.array(found))
    return search.result(), rounds


@pytest.mark.parametrize("seed", range(8))
def test_the_estimate_frees_80_to_120_percent_of_what_the_inventory_says(seed: int) -> None:
    """The issue's figure, on disks with dozens of replicas, one in ten of them held."""
    chance = random.Random(seed)
    rows, stamps = cluster(chance, 80, 4)
    segments = segments_of(rows)
    limit = np.array([len(times) if chance.random() < 0.9 else 0 for times in stamps])
    held = np.bincount(segments.disk, weights=segments.size_bytes).astype(np.int64)
    excess = held * np.array([0, 20, 35, 50]) // 100
    found, _ = bisected(rows, stamps, limit, excess)
    exact = water_level(segments, np.zeros(len(stamps), dtype=np.int64), limit, excess)
    really = wholly_below(segments, found.bound)
    for disk in range(4):
        freed = int(segments.size_bytes[really & (segments.disk == disk)].sum())
        assert 0.8 * exact.freed[disk] <= freed <= 1.2 * exact.freed[disk], disk
        assert found.short[disk] == 0
    assert bool((found.bound <= limit).all())


def test_what_cannot_be_reached_is_said_and_all_that_frees_something_goes() -> None:
    """Of 15 records that may go the first ten are a segment, and a quarter of one may go for good measure."""
    rows, stamps = cluster(random.Random(1), 6, 2)
    limit = np.array([20, 0, 0, 15, 0, 0])
    found, rounds = bisected(rows, stamps, limit, np.array([10**9, -1]))
    assert rounds == 0
    assert found.short[0] > 0
    assert found.short[1] == 0
    for partition, bound in enumerate(found.bound.tolist()):
        here = any(row[:2] == (0, partition) for row in rows)
        assert bound == ({0: 20, 3: 13}.get(partition, 0) if here else 0)


def test_the_last_segment_stays_and_so_does_what_would_not_lose_a_whole_one() -> None:
    """Active segments free nothing: by time all of it may go, of 25 records with ten a segment."""
    logs = Logs(*(np.array([n, n]) for n in (0, 25, 0, 25, 1000)))
    search = Bisection(Replicas(*np.array([[0, 0], [0, 1], [2500, 900]])), logs, np.array([10**6]), 0, 10**6)
    found = search.result()
    assert (found.bound.tolist(), found.freed.tolist()) == ([20, 0], [2000])


def test_a_disk_below_its_ceiling_asks_for_nothing() -> None:
    rows, stamps = cluster(random.Random(2), 6, 2)
    found, rounds = bisected(rows, stamps, np.full(6, 10**6), np.array([0, -5]))
    assert (rounds, found.bound.tolist(), found.level_ms.tolist()) == (0, [0] * 6, [-1, -1])


def test_an_answer_to_something_else_is_refused() -> None:
    logs = Logs(*(np.array([n]) for n in (0, 100, 0, 100, 10)))
    search = Bisection(Replicas(*(np.array([n]) for n in (0, 0, 1000))), logs, np.array([500]), 0, 10**6)
    with pytest.raises(ValueError, match="nothing was answered"):
        search.answer(np.array([0]), np.array([1]), np.array([0]))


def test_an_unknown_answer_frees_nothing() -> None:
    logs = Logs(*(np.array([n]) for n in (0, 100, 0, 100, 10)))
    search = Bisection(Replicas(*(np.array([n]) for n in (0, 0, 1000))), logs, np.array([500]), 0, 10**6)
    while len((asked := search.wanted())[0]):
        search.answer(*asked, np.zeros(len(asked[0]), dtype=np.int64))
    assert search.result().level_ms.tolist() == [10**6]


@pytest.mark.parametrize(
    ("bound", "freed"), [(0, 0), (9, 0), (10, 1000), (19, 1000), (25, 2000), (30, 2000), (99, 2000)]
)
def test_only_whole_segments_are_freed_and_never_the_last(bound: int, freed: int) -> None:
    one = (np.array([n]) for n in (bound, 0, 30, 3000, 1000))
    assert freed_bytes(*one).tolist() == [freed]


def test_of_records_of_one_time_no_more_goes_than_the_disk_needs() -> None:
    """An import stamps a whole log alike: no level lies between its segments, the partitions' order does."""
    logs = Logs(*(np.array([n, n]) for n in (0, 100, 0, 100, 1000)))
    search = Bisection(Replicas(*np.array([[0, 0], [0, 1], [10_000, 10_000]])), logs, np.array([12_500]), 0, 10**6)
    while len((asked := search.wanted())[0]):
        search.answer(*asked, np.where(asked[1] > 500_000, 100, 0))
    found = search.result()
    assert (found.bound.tolist(), found.freed.tolist(), found.short.tolist()) == ([90, 43], [13_000], [0])
