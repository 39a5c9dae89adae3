"""R6's water level: equal to a plain walk over the segments, whatever the cluster is like (R6)."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, NotFound
from retention_cli.core.model import (
    Code,
    Decision,
    LookUp,
    Maybe,
    PartitionFacts,
    TopicPartition,
    Unknown,
    Usage,
    Watermark,
)
from retention_cli.decide.decision import Limit, decide, weigh
from retention_cli.decide.triggers.watermarks import scaled_ms
from retention_cli.disks.disk import Disk, Leaving, Room, reached, usage_for
from retention_cli.disks.estimate import Known, estimate, estimated_segments
from retention_cli.disks.water_level import NO_LEVEL, OldestFirst, WaterLevel, in_the_way, water_level, wholly_below
from retention_cli.policy.settings import DiskRules, Settings
from tests.support.disks import Closed, Row, Walk, in_the_way_bytes, segments_of
from tests.support.facts import HOUR, NOW, UNKNOWN, Log, topic, wanted_lookups

MAD = 2**62
"""A clock in nanoseconds of another era: sums of it with anything overflow 64 bits."""


@dataclass
class Cluster:
    rows: list[Row]
    start: list[int]
    limit: list[int]
    excess: list[int]

    def level(self) -> WaterLevel:
        return water_level(
            segments_of([tuple(row) for row in self.rows]),
            np.array(self.start),
            np.array(self.limit),
            np.array(self.excess),
        )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
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
    return Cluster(
        draw(st.permutations(rows)), start, limit, draw(st.lists(st.integers(-5, 60), min_size=disks, max_size=disks))
    )


@given(clusters())
def test_water_level_equals_a_simulated_walk_over_the_segments(cluster: Cluster) -> None:
    """The issue's oracle: replicas on shared disks, ties, boundaries that differ, unknown times, holds."""
    found = cluster.level()
    start, excess = dict(enumerate(cluster.start)), cluster.excess
    closed = [row for row in cluster.rows if not row.active]
    freed = Counter[int]()
    for row in closed:
        freed[row.disk] += row.size * (row.next <= start[row.partition])
    walk = Walk(
        {n: [Closed(row.disk, row.next, row.size, row.time) for row in closed if row.partition == n] for n in start},
        start,
        {disk: above - freed[disk] for disk, above in enumerate(excess)},
    )
    bounds = start | walk.bounds(dict(enumerate(cluster.limit)))
    assert found.bound.tolist() == list(bounds.values())
    assert {
        "already freed": found.already_freed.tolist(),
        "freed in all": (found.freed + found.already_freed).tolist(),
        "short": found.short.tolist(),
    } == {
        "already freed": [freed[disk] for disk in walk.left],
        "freed in all": [excess[disk] - left for disk, left in walk.left.items()],
        "short": [max(0, left) for left in walk.left.values()],
    }


@given(clusters())
def test_bytes_that_keep_a_disk_above_its_ceiling_are_named_in_full(cluster: Cluster) -> None:
    found = cluster.level()
    named = in_the_way(segments_of([tuple(row) for row in cluster.rows]), found, np.array(cluster.limit))
    for disk, short in enumerate(found.short.tolist()):
        held = sum(row.size for row in cluster.rows if row.disk == disk)
        stays = held - found.freed[disk] - found.already_freed[disk]
        assert sum(size_bytes for on, _, _, size_bytes in named if on == disk) == (stays if short else 0)


def test_disk_without_segments_is_short_by_its_excess() -> None:
    found = water_level(segments_of([]), np.array([0]), np.array([9]), np.array([5]))
    assert (found.bound.tolist(), found.short.tolist(), found.level_ms.tolist()) == ([0], [5], [NO_LEVEL])


# -- R7: a disk that fills shortens R1's and R4's times, never below the minimum, and never past G2 --


MARKS = (Watermark(70, 0.5, HOUR), Watermark(90, 0.1, 2 * HOUR))
FULL = Usage("broker 1, /data", 75.0, MARKS[0])


UNREAD = Unknown.because("R7", "broker 1 did not answer")


@pytest.mark.parametrize(
    ("used", "mark"), [(0, None), (699, None), (700, MARKS[0]), (899, MARKS[0]), (900, MARKS[1]), (1200, MARKS[1])]
)
def test_highest_reached_watermark_counts(used: int, mark: Watermark | None) -> None:
    assert (reached(MARKS, Room(1000, used, 0)), reached(MARKS[::-1], Room(1000, used, 0))) == (mark, mark)


@pytest.mark.parametrize(
    ("marks", "rooms", "usage"),
    [
        pytest.param(
            MARKS, {"a": Room(100, 10, 0), "b": Room(100, 75, 0)}, Usage("b", 75.0, MARKS[0]), id="the fullest counts"
        ),
        pytest.param(MARKS, {"a": Room(100, 10, 0)}, None, id="none is full"),
        pytest.param(MARKS, {"a": Room(100, 10, 0), "b": UNREAD}, UNREAD, id="one is unknown"),
        pytest.param(
            *(MARKS, {"a": UNREAD, "b": Room(100, 95, 0)}, Usage("b", 95.0, MARKS[1])),
            id="the unknown one cannot be above the highest mark",
        ),
        pytest.param((), {"a": UNREAD}, None, id="no watermarks"),
    ],
)
def test_fullest_disk_counts_and_an_unknown_disk_makes_usage_unknown(
    marks: tuple[Watermark, ...], rooms: dict[str, Maybe[Room]], usage: Maybe[Usage | None]
) -> None:
    assert usage_for(marks, list(rooms.items())) == usage


@given(st.integers(0, 10**12), st.floats(0.001, 1), st.integers(0, 10**12))
def test_scaled_time_stays_between_the_minimum_and_the_original(time: int, factor: float, minimum: int) -> None:
    assert min(time, minimum) <= scaled_ms(time, Watermark(80, factor, minimum)) <= time


def decided(log: Log, chosen: Settings, usage: Maybe[Usage | None]) -> Decision:
    return decide(with_usage(log, chosen, usage), chosen, NOW)


def with_usage(log: Log, chosen: Settings, usage: Maybe[Usage | None]) -> PartitionFacts:
    facts = log.facts(chosen)._replace(usage=usage)
    wanted = wanted_lookups(facts, chosen, NOW)
    return facts._replace(lookups={**facts.lookups, **{time: LookUp(log.offset_at(time)) for time in wanted.times}})


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


@pytest.mark.parametrize(
    ("chosen", "usage", "about", "weighed"),
    [
        pytest.param(Settings(), FULL, {}, [], id="no time to shorten"),
        pytest.param(A, Usage("d", 80.0, Watermark(70, 0.5, 20 * HOUR)), {}, [("R4", False)], id="no shorter time"),
        pytest.param(A, FULL, {"diskless": True}, [("R4", False)], id="a diskless topic, a full disk"),
        pytest.param(A, UNREAD, {"diskless": True}, [("R4", False)], id="a diskless topic, an unread disk"),
        pytest.param(
            *(T, FULL, {"retention_ms": HOUR}, [("R1", True), ("R7", True)]),
            id="R1: T longer than the forced retention is unknown, however full the disk is",
        ),
    ],
)
def test_watermark_adds_no_known_time_where_none_is_shorter_or_r1_is_unknown(
    chosen: Settings, usage: Maybe[Usage | None], about: dict[str, Any], weighed: list[tuple[str, bool]]
) -> None:
    assert [
        (one.code, isinstance(one.allowed, Unknown))
        for one in weigh(with_usage(LOG, chosen, usage)._replace(topic=topic(**about)), chosen, NOW)
    ] == weighed


# -- R6 without an inventory: levels found by bisecting times, close to what the segments themselves say --

SEGMENT = 1000
EACH = 10
"""Records of a segment, of 100 bytes each."""


def cluster(chance: random.Random, partitions: int, disks: int) -> tuple[list[Row], list[list[int]]]:
    rows, stamps = [], []
    for partition in range(partitions):
        clock, count = chance.randint(0, 10_000_000), chance.randint(30, 400)
        times = list(itertools.accumulate((chance.randint(1, 200_000) for _ in range(count)), initial=clock))[1:]
        stamps.append(times)
        for disk in chance.sample(range(disks), 2):
            for base in range(0, count, EACH):
                end = min(base + EACH, count)
                rows.append(Row(disk, partition, base, end, 100 * (end - base), times[end - 1], end == count))
    return rows, stamps


@dataclass
class Brokers:
    stamps: list[list[int]]

    def list_offsets(self, wanted: Sequence[Mapping[TopicPartition, Any]], _: object) -> list[dict[Any, Found]]:
        return [{tp: self.answer(self.stamps[tp.partition], spec) for tp, spec in one.items()} for one in wanted]

    def answer(self, stamps: list[int], spec: Any) -> Found:
        if spec == "max-timestamp":
            return Found(0, max(stamps))
        return next((Found(n, stamp) for n, stamp in enumerate(stamps) if stamp >= spec), Found(len(stamps), None))


def estimated(
    rows: list[Row], stamps: list[list[int]], limit: list[int], excess: list[int], segment_bytes: int = SEGMENT
) -> OldestFirst:
    sizes: list[Counter[TopicPartition]] = [Counter() for _ in excess]
    for row in rows:
        sizes[row.disk][TopicPartition("t", row.partition)] += row.size
    disks = [
        Disk(n, ("/a",), Room(mine.total() - more, mine.total(), mine.total()), mine)
        for n, (mine, more) in enumerate(zip(sizes, excess, strict=True))
    ]
    ends = {TopicPartition("t", n): (0, len(times)) for n, times in enumerate(stamps)}
    limits: dict[TopicPartition, Any] = {tp: Limit(limit[tp.partition], Code.G2, "") for tp in ends}
    known = Known(ends, {}, limits, {"t": segment_bytes}, {}, {}, {}, [Leaving()] * len(disks))
    return estimate(Brokers(stamps), disks, DiskRules(percent=100), known, dict.fromkeys(ends), 10**9)  # type: ignore[arg-type]


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
    assert [one.short_bytes > 0 for one in found.outcomes] == [True, False]
    here = {row.partition for row in rows if row.disk == 0}
    assert found.bounds == {TopicPartition("t", n): bound for n, bound in ((0, 20), (3, 13)) if n in here}


@pytest.mark.parametrize(
    ("rows", "stamps", "excess", "bounds", "freed"),
    [
        pytest.param(
            *([Row(0, 0, 0, 25, 2500, 0, False), Row(0, 1, 0, 25, 900, 0, False)], [*range(25)], 3000, {0: 20}, 2000),
            id="active segments free nothing: by time all of 25 records may go, with ten a segment",
        ),
        pytest.param(
            *([Row(0, n, 0, 100, 10_000, 0, False) for n in (0, 1)], [500_000] * 100, 12_500, {0: 90, 1: 43}, 13_000),
            id="an import stamps a log alike: no level lies between its segments, the partitions' order does",
        ),
    ],
)
def test_estimate_frees_no_more_than_needed_and_only_complete_segments(
    rows: list[Row], stamps: list[int], excess: int, bounds: dict[int, int], freed: int
) -> None:
    found = estimated(rows, [stamps] * 2, [len(stamps)] * 2, [excess])
    assert (found.bounds, found.outcomes[0].freed_bytes, found.outcomes[0].short_bytes) == (
        {TopicPartition("t", n): bound for n, bound in bounds.items()},
        freed,
        max(0, excess - freed),
    )


def test_estimate_merges_segments_into_one_row_above_the_row_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retention_cli.disks.estimate.MOST_ROWS", 1)
    found = estimated_segments(
        np.array([0]), np.array([0]), np.array([100_000]), np.array([[0, 100_000, 0, 100_000, 10]])
    )
    assert (len(found), int(found.size_bytes.sum()), int(found.active.sum()), found.next_offset.tolist()[:2]) == (
        17,
        100_000,
        1,
        [6_252, 12_502],
    )


# -- R6 without an inventory, disks and decisions together: what goes, what holds, what is said (R6) --


OLD, NEW = TopicPartition("old", 0), TopicPartition("new", 0)
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
        return NOW - MINUTE * ({OLD: 200, NEW: 100}[tp] - offset)

    def list_offsets(self, wanted: Sequence[Mapping[TopicPartition, Any]], _: object) -> list[dict[Any, Answer]]:
        return [{tp: self.answer(tp, spec) for tp, spec in one.items()} for one in wanted]

    def answer(self, tp: TopicPartition, spec: Any) -> Answer:
        if spec == "max-timestamp":
            return NotFound() if tp in self.silent else Found(0, max(self.stamp(tp, n) for n in range(100)))
        self.times.append(spec)  # 0 asks for the first record
        if tp in self.wrong:
            return self.wrong[tp]
        return next((Found(n, at) for n in range(100) if (at := self.stamp(tp, n)) >= spec), NotFound())


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
    reader: Any = brokers or ByTheMinute()
    return estimate(reader, [disk], R6, Known(**(usual | facts)), dict.fromkeys((OLD, NEW)), NOW)  # type: ignore[arg-type]


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
    runs = ByTheMinute(), ByTheMinute()
    for brokers in runs:
        walked(brokers=brokers)
    assert (runs[0].times, {time % 512 for time in runs[0].times}) == (runs[1].times, {0})


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
    assert (one.short_bytes, in_the_way_bytes(one)) == (1_000, {OLD: 10_000, NEW: 1_000})


@pytest.mark.parametrize(
    ("more", "unknown"),
    [
        ({"doubts": {NEW: DOUBT}, "dead": 5_000}, {NEW}),
        ({"doubts": {NEW: DOUBT}, "doubtful": 5_000}, {NEW, OLD}),  # unknown, though nothing more is wanted
        ({"leaving": 5_000}, set()),
    ],
    ids=["dead", "doubtful", "leaving"],
)
def test_bytes_leaving_or_doubtful_are_not_trimmed_from_other_topics(
    more: dict[str, Any], unknown: set[TopicPartition]
) -> None:
    """R5, R6: else each pass would trim again what the last one has."""
    found = walked(15_000, **more)
    # R6 asks for nothing of a disk with 10,000 bytes
    assert (found.bounds, set(found.unknown), walked(16_000, **more).bounds, walked(10_000, **more).unknown) == (
        {},
        unknown,
        {OLD: 13},
        {},
    )


@pytest.mark.parametrize(
    "answer",
    [NotFound(), RequestFailedError("moved", retriable=True), Found(99), Found(99, 1)],
    ids=["minus one", "an error", "no timestamp", "an earlier record"],
)
@pytest.mark.parametrize(("silent", "bounds"), [({OLD}, {NEW: 53}), ((), {OLD: 53})], ids=["silent", "known"])
def test_partition_with_unanswered_look_ups_is_trimmed_only_if_its_newest_record_is_known(
    answer: Answer, silent: Collection[TopicPartition], bounds: dict[TopicPartition, int]
) -> None:
    """docs/rules.md, Look-ups: it means H only where MAX_TIMESTAMP bears it out; else nothing goes."""
    # after its newest record its end is known without an answer; where that is not known either, others must do
    found = walked(15_000, ByTheMinute({OLD: answer}, frozenset(silent)))
    assert found.bounds == bounds
    assert found.unanswered.keys() == {OLD}, "R5: of a topic's limit the others' younger records must not go instead"


@pytest.mark.parametrize(
    ("disk", "said"),
    [({"room": Unknown.because("disk", "offline")}, "offline"), ({"used": 50_000, "total": 60_000}, "disks.shared")],
    ids=["offline", "used mostly by others"],
)
def test_unknown_disk_holds_every_partition_on_it(disk: dict[str, Any], said: str) -> None:
    found = walked(**disk)
    assert (found.bounds, set(found.unknown)) == ({}, {OLD, NEW})
    assert said in found.unknown[OLD].reasons[0].text
