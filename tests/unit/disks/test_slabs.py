"""R6 in slabs: ages by some partitions at a time, walks by some disks at a time, come to the water level (R6)."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_cli.disks.solve.ages import ages
from retention_cli.disks.solve.segments import Segments, segments_of
from retention_cli.disks.solve.steps import EVERYTHING, Steps, reach, steps_of, total
from retention_cli.disks.solve.walk import Candidates, candidates_of, walk
from retention_cli.disks.solve.water_level import bytes_on, wholly_below
from tests.unit.disks.test_water_level import Cluster, clusters


def slabs_of(cluster: Cluster, slab: list[int]) -> list[Segments]:
    """Return the cluster's segments by slab: ``slab`` is that of each partition."""
    numbers = sorted(set(slab))
    return [segments_of([tuple(row) for row in cluster.rows if slab[row.partition] == one]) for one in numbers]


@settings(max_examples=300, deadline=None)
@given(clusters(), st.data())
def test_slabs_of_partitions_and_disks_apart_come_to_the_water_level(cluster: Cluster, data: st.DataObject) -> None:
    """As Spark walks: sums and steps of each slab, then candidates in reach of each disk, then what they free."""
    disks, partitions = len(cluster.excess), len(cluster.start)
    slab = data.draw(st.lists(st.integers(0, 3), min_size=partitions, max_size=partitions))
    slabs = slabs_of(cluster, slab)
    start, limit, excess = (np.array(one) for one in (cluster.start, cluster.limit, cluster.excess))
    gone = [wholly_below(one, start) for one in slabs]
    already = sum((bytes_on(one, which, disks) for one, which in zip(slabs, gone, strict=True)), np.zeros(disks, int))
    aged = [ages(one, which, limit, excess > 0) for one, which in zip(slabs, gone, strict=True)]
    found = [candidates_of(one, rows, age) for one, (rows, age, _) in zip(slabs, aged, strict=True)]
    most = data.draw(st.integers(1, 4))
    steps = Steps(
        *(
            np.concatenate(one)
            for one in zip(*(steps_of(c.disk, c.age, c.size_bytes, most) for c in found), strict=True)
        )
    )
    steps = steps_of(*steps, most)
    remaining = excess - already
    youngest = reach(steps, remaining)
    short = np.where(excess > 0, np.maximum(0, remaining - total(steps, disks)), 0)
    bound, level = start.copy(), np.full(disks, -1)
    for disk in range(disks):
        if remaining[disk] <= 0:
            continue
        mine = [c.take((c.disk == disk) & (c.age <= youngest[disk])) for c in found]
        walked = walk(Candidates(*(np.concatenate(one) for one in zip(*mine, strict=True))), remaining)
        np.maximum.at(bound, walked.partition, walked.next_offset)
        level[disk] = max(walked.age.tolist(), default=-1)
    whole = cluster.level()
    assert bound.tolist() == whole.bound.tolist()
    assert level.tolist() == whole.level_ms.tolist()
    assert short.tolist() == whole.short.tolist()
    freed = sum((bytes_on(one, wholly_below(one, bound), disks) for one in slabs), np.zeros(disks, int))
    assert (freed - already).tolist() == whole.freed.tolist()


aged = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 3), st.integers(1, 5), st.integers(0, 2))


@settings(max_examples=300, deadline=None)
@given(st.lists(aged, max_size=12), st.lists(st.integers(-1, 15), min_size=2, max_size=2), st.data())
def test_a_walk_takes_the_same_in_whatever_order_candidates_come(
    rows: list[tuple[int, ...]], remaining: list[int], data: st.DataObject
) -> None:
    """Of equally old ones the first by (partition, next offset), one after the other until there is enough."""

    def walked(some: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        columns = Candidates(*(np.array([row[n] for row in some], dtype=np.int64) for n in range(5)))
        return list(zip(*(column.tolist() for column in walk(columns, np.array(remaining))), strict=True))

    expected, left = set(), list(remaining)
    for row in sorted(rows, key=lambda row: (row[4], row[1], row[2])):
        if left[row[0]] > 0:
            expected.add(row[:3])
        left[row[0]] -= row[3]
    assert {row[:3] for row in walked(data.draw(st.permutations(rows)))} == expected


candidates = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9) | st.just(2**62), st.integers(0, 5)), max_size=30)


@settings(deadline=None)
@given(candidates, st.integers(1, 6), st.lists(st.integers(1, 40), min_size=3, max_size=3))
def test_few_steps_reach_all_that_the_walk_takes_and_lose_no_byte(
    rows: list[tuple[int, int, int]], most: int, remaining: list[int]
) -> None:
    disk, age, size = (np.array([row[n] for row in rows], dtype=np.int64) for n in range(3))
    steps = steps_of(disk, age, size, most)
    assert max(np.bincount(steps.disk).tolist(), default=0) <= most
    assert total(steps, 3).tolist() == [sum(row[2] for row in rows if row[0] == one) for one in range(3)]
    youngest = reach(steps, np.array(remaining)).tolist()
    for one in range(3):
        held = [row for row in rows if row[0] == one]
        reached = sum(row[2] for row in held if row[1] <= youngest[one])
        assert reached >= min(remaining[one], sum(row[2] for row in held))
        assert youngest[one] in {EVERYTHING, *(row[1] for row in held)}


def test_with_a_step_for_each_candidate_no_more_than_needed_is_in_reach() -> None:
    one, ages_ms = np.zeros(4, dtype=np.int64), np.array([40, 10, 30, 20])
    steps = steps_of(one, ages_ms, np.full(4, 5), 4)
    assert [int(reach(steps, np.array([bytes_]))[0]) for bytes_ in (1, 5, 6, 20, 21)] == [10, 10, 20, 40, EVERYTHING]
