"""R6's water level: equal to a plain walk over the segments, whatever the cluster is like (R6)."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from retention_cli.core.model import Decision, LookUp, Maybe, PartitionFacts, Unknown, Usage, Watermark
from retention_cli.decide.decision import decide, weigh
from retention_cli.decide.triggers.watermarks import scaled_ms
from retention_cli.disks.disk import Room, reached, usage_for
from retention_cli.disks.water_level import NO_LEVEL, WaterLevel, in_the_way, water_level
from retention_cli.policy.settings import Settings
from tests.support.disk_oracle import Row, simulate
from tests.support.disks import segments_of
from tests.support.facts import HOUR, NOW, UNKNOWN, Log, topic, wanted_lookups

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
    named = in_the_way(segments_of([tuple(row) for row in cluster.rows]), found, np.array(cluster.limit))
    for disk, short in enumerate(found.short.tolist()):
        held = [row for row in cluster.rows if row.disk == disk]
        stays = sum(row.size for row in held) - found.freed[disk] - found.already_freed[disk]
        assert sum(size_bytes for on, _, _, size_bytes in named if on == disk) == (stays if short else 0)


def test_disk_without_segments_is_short_by_its_excess() -> None:
    found = water_level(segments_of([]), np.array([0]), np.array([9]), np.array([5]))
    assert (found.bound.tolist(), found.short.tolist(), found.level_ms.tolist()) == ([0], [5], [NO_LEVEL])


# -- r7: a disk that fills shortens R1's and R4's times, never below the minimum, and never past G2 --


MARKS = (Watermark(70, 0.5, HOUR), Watermark(90, 0.1, 2 * HOUR))
FULL = Usage("broker 1, /data", 75.0, MARKS[0])
UNREAD = Unknown.because("R7", "broker 1 did not answer")


@pytest.mark.parametrize(
    ("used", "mark"), [(0, None), (699, None), (700, MARKS[0]), (899, MARKS[0]), (900, MARKS[1]), (1200, MARKS[1])]
)
def test_highest_reached_watermark_counts(used: int, mark: Watermark | None) -> None:
    assert reached(MARKS, Room(1000, used, 0)) == mark
    assert reached(MARKS[::-1], Room(1000, used, 0)) == mark


def test_fullest_disk_counts_and_an_unknown_disk_makes_usage_unknown() -> None:
    assert usage_for(MARKS, [("a", Room(100, 10, 0)), ("b", Room(100, 75, 0))]) == Usage("b", 75.0, MARKS[0])
    assert usage_for(MARKS, [("a", Room(100, 10, 0))]) is None
    assert usage_for(MARKS, [("a", Room(100, 10, 0)), ("b", UNREAD)]) == UNREAD
    assert usage_for(MARKS, [("a", UNREAD), ("b", Room(100, 95, 0))]) == Usage("b", 95.0, MARKS[1])
    assert usage_for((), [("a", UNREAD)]) is None


@given(st.integers(0, 10**12), st.floats(0.001, 1), st.integers(0, 10**12))
def test_scaled_time_stays_between_the_minimum_and_the_original(time: int, factor: float, minimum: int) -> None:
    assert min(time, minimum) <= scaled_ms(time, Watermark(80, factor, minimum)) <= time


def decided(log: Log, chosen: Settings, usage: Maybe[Usage | None]) -> Decision:
    return decide(with_usage(log, chosen, usage), chosen, NOW)


def with_usage(log: Log, chosen: Settings, usage: Maybe[Usage | None]) -> PartitionFacts:
    facts = log.facts(chosen)._replace(usage=usage)
    wanted = wanted_lookups(facts, chosen, NOW)
    lookups = dict(facts.lookups)
    lookups |= {time: LookUp(log.offset_at(time)) for time in wanted.times}
    return facts._replace(lookups=lookups)


A = Settings(forced_age_ms=10 * HOUR)
T = Settings(consumed_after_ms=10 * HOUR)
LOG = Log(0, [NOW - age * HOUR for age in (12, 11, 8, 6, 4, 2)], floor=3)


BLIND = replace(LOG, floor=UNKNOWN)
"""Nobody knows how far groups have read."""


@pytest.mark.parametrize(
    ("log", "chosen", "usage", "expected"),
    [
        pytest.param(LOG, A, None, ("trim", 2, "forced-age", None), id="R4 alone"),
        pytest.param(LOG, A, FULL, ("trim", 3, "forced-age", "G2"), id="a shorter age stops at the floor"),
        pytest.param(
            *(LOG, replace(A, unconsumed="trim"), FULL, ("trim", 4, "forced-age", None)), id="unless the policy allows"
        ),
        pytest.param(BLIND, A, FULL, ("trim", 2, "forced-age", None), id="an unknown floor stops it, and not R4"),
        pytest.param(LOG, T, None, ("trim", 2, "consumed", None), id="R1 alone"),
        pytest.param(LOG, T, FULL, ("trim", 3, "consumed", None), id="a shorter time after consumption"),
        pytest.param(replace(LOG, floor=6), T, FULL, ("trim", 4, "consumed", None), id="where more has been read"),
        pytest.param(LOG, A, UNREAD, ("trim", 2, "forced-age", None), id="an unread disk holds only its own share"),
        pytest.param(replace(LOG, stamps=[NOW]), A, UNREAD, ("hold", None, None, None), id="and that it does hold"),
    ],
)
def test_full_disk_shortens_the_times_of_r1_and_r4(
    log: Log, chosen: Settings, usage: Maybe[Usage | None], expected: tuple[str, int | None, str | None, str | None]
) -> None:
    found = decided(log, chosen, usage)
    assert (found.action, found.trim_to, found.rule, found.limited_by) == expected


def test_full_disk_and_what_is_unknown_are_named_in_the_reasons() -> None:
    assert "75.0 % full" in decided(LOG, T, FULL).reasons[0].text
    assert "F4" in [one.code for one in decided(BLIND, A, FULL).reasons]
    assert decided(replace(LOG, stamps=[NOW]), A, UNREAD).reasons == UNREAD.reasons


def test_watermark_without_a_shorter_time_changes_nothing() -> None:
    assert [one.code for one in weigh(with_usage(LOG, Settings(), FULL), Settings(), NOW)] == []
    gentle = Usage("d", 80.0, Watermark(70, 0.5, 20 * HOUR))
    assert [one.code for one in weigh(with_usage(LOG, A, gentle), A, NOW)] == ["R4"]


@pytest.mark.parametrize("usage", [FULL, UNREAD])
def test_watermark_does_not_shorten_a_diskless_topics_times(usage: Maybe[Usage | None]) -> None:
    facts = with_usage(LOG, A, usage)
    about = topic(diskless=True)
    found = decide(facts._replace(topic=about), A, NOW)
    assert (found.trim_to, found.rule) == (2, "forced-age")
    assert [one.code for one in weigh(facts._replace(topic=about), A, NOW)] == ["R4"]


def test_time_above_the_forced_retention_makes_the_watermark_unknown_too() -> None:
    """R1: T longer than the forced retention is unknown, however full the disk is."""
    facts = with_usage(LOG, T, FULL)._replace(topic=topic(retention_ms=HOUR))
    assert {one.code: isinstance(one.allowed, Unknown) for one in weigh(facts, T, NOW)} == {"R1": True, "R7": True}
