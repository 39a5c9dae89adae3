"""R6's water level: equal to a plain walk over the segments, whatever the cluster is like (R6)."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

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


@given(clusters())
def test_water_level_equals_a_simulated_walk_over_the_segments(cluster: Cluster) -> None:
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


@given(clusters(), st.randoms(use_true_random=False))
def test_water_level_is_independent_of_row_order(cluster: Cluster, chance: random.Random) -> None:
    shuffled = list(cluster.rows)
    chance.shuffle(shuffled)
    one, other = cluster.level(), cluster.level(shuffled)
    for name in ("bound", "already_freed", "freed", "short", "level_ms"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()


@given(clusters())
def test_bound_stays_within_its_limit_at_a_segment_end_and_the_rest_is_named(cluster: Cluster) -> None:
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


def test_disk_without_segments_is_short_by_its_excess() -> None:
    found = water_level(segments_of([]), np.array([0]), np.array([9]), np.array([5]))
    assert (found.bound.tolist(), found.short.tolist(), found.level_ms.tolist()) == ([0], [5], [NO_LEVEL])
