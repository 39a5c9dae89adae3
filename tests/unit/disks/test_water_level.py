"""R6's water level: equal to a plain walk over the segments, whatever the cluster is like (R6)."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_cli.disks.segments import Segments
from retention_cli.disks.water_level import NO_LEVEL, WaterLevel, in_the_way, water_level
from tests.support.disk_oracle import Row, simulate
from tests.support.disks import segments_of

MAD = 2**62
"""A clock in nanoseconds of another era: sums of it with anything overflow 64 bits."""


@dataclass
class Cluster:
    rows: list[Row]
    start: list[int]
    limit: list[int]
    excess: list[int]

    def level(self, rows: list[Row] | None = None) -> WaterLevel:
        segments = segments_of([tuple(row) for row in (self.rows if rows is None else rows)])
        return water_level(segments, np.array(self.start), np.array(self.limit), np.array(self.excess))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Partitions of a few replicas on few disks, sharing boundaries or not, with ties, holds and unknown times."""
    disks = draw(st.integers(1, 4))
    times = st.integers(0, 6) | st.sampled_from([-1, MAD, 50])
    rows, start, limit = [], [], []
    for partition in range(draw(st.integers(1, 4))):
        end = draw(st.integers(0, 40))
        cuts = st.lists(st.integers(1, max(1, end)), max_size=5, unique=True).map(sorted)
        shared, aligned = draw(cuts), draw(st.booleans())
        stamps = draw(st.lists(times, min_size=7, max_size=7))
        for disk in draw(st.lists(st.integers(0, disks - 1), max_size=3)):  # twice one disk: two dirs on a device
            bounds = [0, *(shared if aligned else draw(cuts)), end]
            for number, (base, following) in enumerate(itertools.pairwise(bounds)):
                time = stamps[number] if aligned and draw(st.integers(0, 9)) else draw(times)
                active = number == len(bounds) - 2 if draw(st.integers(0, 9)) else draw(st.booleans())
                rows.append(Row(disk, partition, base, max(base, following), draw(st.integers(0, 9)), time, active))
        start.append(draw(st.just(0) | st.integers(0, end)))
        limit.append(draw(st.just(end) | st.integers(-1, end)))
    excess = draw(st.lists(st.integers(-5, 60), min_size=disks, max_size=disks))
    return Cluster(draw(st.permutations(rows)), start, limit, excess)


@settings(max_examples=400, deadline=None)
@given(clusters())
def test_the_water_level_is_what_a_walk_over_the_segments_comes_to(cluster: Cluster) -> None:
    """The issue's oracle: replicas on shared disks, ties, boundaries that differ, unknown times, holds."""
    found = cluster.level()
    world, before = simulate(
        cluster.rows,
        dict(enumerate(cluster.start)),
        dict(enumerate(cluster.limit)),
        dict(enumerate(cluster.excess)),
    )
    disks = range(len(cluster.excess))
    assert found.bound.tolist() == list(world.bounds.values())
    assert found.already_freed.tolist() == [before.get(disk, 0) for disk in disks]
    assert (found.freed + found.already_freed).tolist() == [world.freed.get(disk, 0) for disk in disks]
    assert found.short.tolist() == [max(0, world.above[disk]) for disk in disks]


@settings(max_examples=100, deadline=None)
@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_plays_no_part(cluster: Cluster, chance: random.Random) -> None:
    shuffled = list(cluster.rows)
    chance.shuffle(shuffled)
    one, other = cluster.level(), cluster.level(shuffled)
    for name in ("bound", "already_freed", "freed", "short", "level_ms"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_no_bound_is_beyond_its_limit_or_frees_nothing_and_what_stays_is_named(cluster: Cluster) -> None:
    found = cluster.level()
    ends = {(row.partition, row.next) for row in cluster.rows if not row.active}
    for partition, (bound, start, limit) in enumerate(
        zip(found.bound.tolist(), cluster.start, cluster.limit, strict=True)
    ):
        assert bound >= start
        if bound > start:
            assert bound <= limit
            assert (partition, bound) in ends
    segments = segments_of([tuple(row) for row in cluster.rows])
    named = in_the_way(segments, found, np.array(cluster.limit))
    for disk, short in enumerate(found.short.tolist()):
        held = [row for row in cluster.rows if row.disk == disk]
        stays = sum(row.size for row in held) - found.freed[disk] - found.already_freed[disk]
        assert sum(one.size_bytes for one in named if one.disk == disk) == (stays if short else 0)


def test_many_at_random() -> None:
    """Larger clusters than hypothesis draws: dozens of partitions and disks."""
    chance = random.Random(7)
    for _ in range(20):
        disks, partitions = chance.randint(2, 9), chance.randint(5, 25)
        rows = []
        for partition in range(partitions):
            for disk in chance.sample(range(disks), min(3, disks)):
                base, clock = 0, chance.randint(0, 30)
                for number in range(chance.randint(1, 8)):
                    following = base + (10 if partition % 2 else chance.randint(1, 20))
                    clock += chance.randint(-3, 8)
                    rows.append(
                        Row(disk, partition, base, following, chance.randint(1, 100), max(0, clock), number == 7)
                    )
                    base = following
        chance.shuffle(rows)
        limit = [chance.choice([1000, 1000, 40, -1]) for _ in range(partitions)]
        start = [chance.choice([0, 0, 13]) for _ in range(partitions)]
        excess = [chance.randint(-100, 2500) for _ in range(disks)]
        found = Cluster(rows, start, limit, excess).level()
        world, _ = simulate(rows, dict(enumerate(start)), dict(enumerate(limit)), dict(enumerate(excess)))
        assert found.bound.tolist() == list(world.bounds.values())
        assert found.short.tolist() == [max(0, world.above[disk]) for disk in range(disks)]


def one_disk(excess: int, *rows: Row, start: int = 0, limit: int = 100) -> WaterLevel:
    partitions = 1 + max(row.partition for row in rows)
    return Cluster(list(rows), [start] * partitions, [limit] * partitions, [excess]).level()


def test_the_oldest_goes_first_and_no_more_than_needed() -> None:
    old, young = Row(0, 1, 0, 10, 100, 5, False), Row(0, 0, 0, 10, 100, 9, False)
    assert one_disk(1, young, old).bound.tolist() == [0, 10]
    assert one_disk(100, young, old).bound.tolist() == [0, 10]
    assert one_disk(101, young, old).bound.tolist() == [10, 10]
    assert one_disk(0, young, old).bound.tolist() == [0, 0]


def test_of_equally_old_segments_the_first_partitions_goes() -> None:
    rows = [Row(0, partition, 0, 10, 100, 5, False) for partition in (2, 1, 0)]
    assert one_disk(150, *rows).bound.tolist() == [10, 10, 0]


def test_an_old_segment_behind_a_young_one_waits_for_it() -> None:
    """A partition's segments go as a prefix: the running maximum is what an old one behind a young one counts as."""
    found = one_disk(1, Row(0, 0, 0, 10, 7, 90, False), Row(0, 0, 10, 20, 7, 1, False), Row(0, 1, 0, 10, 7, 50, False))
    assert found.bound.tolist() == [0, 10]
    assert found.level_ms.tolist() == [50]


def test_an_active_segment_frees_nothing_and_stands_in_the_way() -> None:
    rows = [Row(0, 0, 0, 10, 40, 1, False), Row(0, 0, 10, 20, 60, 2, True)]
    found = one_disk(70, *rows)
    assert (found.bound.tolist(), found.freed.tolist(), found.short.tolist()) == ([10], [40], [30])
    [left] = in_the_way(segments_of([tuple(row) for row in rows]), found, np.array([100]))
    assert (left.why, left.size_bytes) == ("active", 60)


def test_an_active_segment_that_other_rules_trimmed_past_frees_nothing_either() -> None:
    """After a trim to H its file stays: its bytes are not on their way."""
    found = one_disk(30, Row(0, 0, 0, 10, 40, 1, True), start=10)
    assert (found.already_freed.tolist(), found.freed.tolist(), found.short.tolist()) == ([0], [0], [30])


def test_what_the_other_rules_free_and_dead_bytes_count_as_already_on_their_way() -> None:
    rows = [Row(0, 0, 0, 10, 40, 1, False), Row(0, 0, 10, 20, 60, 2, False)]
    found = one_disk(40, *rows, start=10)
    assert (found.bound.tolist(), found.already_freed.tolist(), found.freed.tolist()) == ([10], [40], [0])


def test_a_trim_frees_on_every_disk_with_a_replica_and_by_its_own_boundaries() -> None:
    rows = [
        Row(0, 0, 0, 20, 5, 1, False),
        Row(1, 0, 0, 15, 3, 1, False),
        Row(1, 0, 15, 25, 3, 1, False),
    ]
    found = Cluster(rows, [0], [100], [1, 0]).level()
    assert (found.bound.tolist(), found.freed.tolist()) == ([20], [5, 3])


def test_a_segment_of_unknown_time_stops_its_partition_and_says_so() -> None:
    rows = [Row(0, 0, 0, 10, 4, 1, False), Row(0, 0, 10, 20, 5, -1, False), Row(0, 0, 20, 30, 6, 2, False)]
    found = one_disk(100, *rows)
    assert found.bound.tolist() == [10]
    left = in_the_way(segments_of([tuple(row) for row in rows]), found, np.array([100]))
    assert [(one.why, one.size_bytes) for one in left] == [("undated", 11)]


def test_a_hold_stands_in_the_way() -> None:
    rows = [Row(0, 0, 0, 10, 4, 1, False), Row(0, 0, 10, 20, 5, 3, False)]
    found = one_disk(9, *rows, limit=19)
    left = in_the_way(segments_of([tuple(row) for row in rows]), found, np.array([19]))
    assert [(one.why, one.size_bytes) for one in left] == [("limit", 5)]
    assert found.short.tolist() == [5]


def test_nothing_at_all() -> None:
    found = water_level(segments_of([]), np.array([0]), np.array([9]), np.array([5]))
    assert (found.bound.tolist(), found.short.tolist(), found.level_ms.tolist()) == ([0], [5], [NO_LEVEL])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (Row(1, 0, 0, 1, 1, 1, False), "a disk"),
        (Row(0, 5, 0, 1, 1, 1, False), "a partition"),
        (Row(0, -1, 0, 1, 1, 1, False), "a partition"),
        (Row(0, 0, 0, 1, -1, 1, False), "negative size"),
        (Row(0, 0, 9, 1, 1, 1, False), "before it begins"),
    ],
)
def test_columns_that_cannot_be_are_refused(row: Row, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Cluster([row], [0], [9], [5]).level()


def test_columns_of_unequal_length_are_refused() -> None:
    one = segments_of([tuple(Row(0, 0, 0, 1, 1, 1, False))])
    wrong = Segments(
        one.disk, one.partition, one.base_offset, one.next_offset, one.size_bytes[:0], one.disk, one.active
    )
    with pytest.raises(ValueError, match="unequal length"):
        water_level(wrong, np.array([0]), np.array([9]), np.array([5]))
    with pytest.raises(ValueError, match="limits"):
        water_level(one, np.array([0]), np.array([9, 9]), np.array([5]))
