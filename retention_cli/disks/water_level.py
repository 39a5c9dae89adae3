"""R6: trim the globally oldest segments until every disk is back at its ceiling (KIP-61, R6). Pure.

:func:`oldest_first` decides for all disks, for scanned and for estimated segments; :func:`water_level` is its walk.

The walk. A *candidate* is a partition and an offset at which a closed segment of at least one replica ends. The disks
that hold it are those of these segments: trimming to it, rather than to the candidate before it, frees exactly them.
Candidates are ordered by (running maximum timestamp, topic, partition, offset), where the running maximum is over all
segments of the partition, on any replica, that the trim includes: so a partition's candidates are in the order of
their offsets, and each trim is of a prefix. A candidate is trimmed if any disk that holds it is still above its
ceiling. Then *every* replica loses its own segments that end at or before that offset, including those whose own
candidate came earlier and was not trimmed because their disk was no longer above its ceiling.

If all replicas have the same boundaries, a candidate is a segment, and this is R6 word for word. If they differ, each
boundary of each replica is a candidate of its own: so every trim frees something.

Why this needs no loop. The segments that a candidate frees are at or before it in the order. So as long as a disk is
above its ceiling, it has lost exactly its segments before the walk's position in the order, regardless of the other
disks: a running sum over the disk's own segments determines where it stops, and disks are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from retention_cli.core.grouping import by_key
from retention_cli.core.model import Code, Maybe, TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks.disk import (
    Blocker,
    Disk,
    DiskOutcome,
    Leaving,
    above_ceiling,
    excess_bytes,
    mostly_others,
    named,
)
from retention_cli.policy.settings import DiskRules

Ints = NDArray[Any]
"""Integers: 32 bits suffice for disks and partitions; offsets, bytes and times need 64."""
Flags = NDArray[np.bool_]

UNDATED: Final = -1
"""An unknown largest timestamp, Kafka's own value for none. It never counts as old."""

NO_END: Final = 2**63 - 1
"""The next offset of a segment whose end is unknown: it is never completely below a bound."""

NO_LEVEL: Final = -1
NO_SEGMENTS: Final = Unknown.because(Code.R6, "the inventory has no segments of it: scan again")
UNMANAGED: Final = Unknown.because(Code.R6, "the policy does not manage it")

WHY: Final = ("active", "limit", "undated")
"""In the alphabet's order."""


@dataclass(frozen=True, slots=True)
class Segments:
    """One row per segment of a replica, in any order; all columns have the same length.

    ``disk`` and ``partition`` are numbers from 0. Partitions are numbered in the order of (topic, partition): of two
    equally old segments, the walk takes the smaller number first. ``next_offset`` is the first offset after the
    segment: it is completely below a bound b if ``next_offset <= b``. ``size_bytes`` are the bytes that its deletion
    frees on the disk. ``largest_timestamp`` is Unix ms, negative if unknown (:data:`UNDATED`). ``active``: the segment
    is the one being written to.
    """

    disk: Ints
    partition: Ints
    base_offset: Ints
    next_offset: Ints
    size_bytes: Ints
    largest_timestamp: Ints
    active: Flags

    def __len__(self) -> int:
        return len(self.disk)

    def take(self, which: Ints | Flags | slice) -> Segments:
        """Return some of the rows."""
        return Segments(*(getattr(self, name)[which] for name in Segments.__slots__))


def add_up(size_bytes: Ints, groups: Ints, count: int) -> Ints:
    """Return the sum of bytes per group, as integers: a float would lose bytes beyond 2^53."""
    result = np.zeros(count, dtype=np.int64)
    np.add.at(result, groups, size_bytes)
    return result


def wholly_below(segments: Segments, bound: Ints) -> Flags:
    """Return a mask of the segments that are freed when partitions are trimmed to their bounds. Active ones stay."""
    below: Flags = ~segments.active & (segments.next_offset <= bound[segments.partition])
    return below


def bytes_on(segments: Segments, which: Flags, disks: int) -> Ints:
    """Return, by disk number, the bytes of some segments."""
    return add_up(segments.size_bytes[which], segments.disk[which], disks)


@dataclass(frozen=True, slots=True)
class WaterLevel:
    """R6's result. Arrays are by partition number or by disk number; bytes are those of whole segments.

    ``bound`` is the offset to trim each partition to: ``start``, or larger. ``already_freed`` are each disk's bytes
    that are freed without R6 (dead segments that are not swept yet, and the other rules' trims), ``freed`` the bytes
    that R6 frees in addition. ``short`` is how much is still above the ceiling after both, 0 if it is reached.
    ``level_ms`` is the newest time (Unix ms) trimmed for each disk's own sake, :data:`NO_LEVEL` if none was.
    """

    bound: Ints
    already_freed: Ints
    freed: Ints
    short: Ints
    level_ms: Ints


def water_level(segments: Segments, start: Ints, limit: Ints, excess: Ints) -> WaterLevel:
    """Return how far R6 trims each partition (R6).

    Args:
        segments: the segments of all replicas on the disks, including those of topics that are not managed.
        start: each partition's bound without R6: its log start offset, or another rule's bound. A segment completely
            below it is freed anyway.
        limit: how far each partition's guards let it be trimmed (G1, G2, G5, G7); a limit below ``start`` means that
            it is not trimmed. A segment whose time is unknown limits its partition, too: it may not be among the
            oldest.
        excess: the bytes by which each disk is above its ceiling, before any trim; 0 or less if it is not, or if its
            usage is unknown.

    Returns:
        The bounds, and what they free on each disk. The result does not depend on the order of rows.
    """
    disks = len(excess)
    start, limit, excess = (np.asarray(one, dtype=np.int64) for one in (start, limit, excess))
    gone = wholly_below(segments, start)
    already = bytes_on(segments, gone, disks)
    remaining = excess - already
    limit = _dated(segments, gone, limit)
    rows = _candidates(segments, gone, limit, remaining > 0)
    bound, level = start.copy(), np.full(disks, NO_LEVEL, dtype=np.int64)
    if len(rows):
        rows, age = _walk(segments, rows, _ages(segments, rows), remaining)
        np.maximum.at(bound, segments.partition[rows], segments.next_offset[rows])
        np.maximum.at(level, segments.disk[rows], age)
    freed = bytes_on(segments, wholly_below(segments, bound), disks) - already
    return WaterLevel(bound, already, freed, np.maximum(remaining - freed, 0), level)


def in_the_way(segments: Segments, result: WaterLevel, limit: Ints) -> list[tuple[int, int, str, int]]:
    """Return the bytes that stay on the disks that are short: disk, partition, why and bytes, the largest first.

    ``active``: they are the active segment, which frees nothing. ``limit``: they are beyond the guards' limit (an
    unread record, a hold, a topic that is not managed); the limit itself has the reason. ``undated``: they are at or
    after a segment whose largest timestamp is unknown.

    Args:
        segments: the segments given to the walk.
        result: the walk's result.
        limit: the limits given to the walk.
    """
    bound = result.bound
    rows = np.flatnonzero((result.short > 0)[segments.disk] & ~wholly_below(segments, bound))
    disk, partition = segments.disk[rows].astype(np.int64), segments.partition[rows].astype(np.int64)
    why = np.where(segments.active[rows], 0, np.where(segments.next_offset[rows] <= np.asarray(limit)[partition], 2, 1))
    keys, group = np.unique((disk * len(bound) + partition) * len(WHY) + why, return_inverse=True)
    size = add_up(segments.size_bytes[rows], group, len(keys))
    place, why = np.divmod(keys, len(WHY))
    disk, partition = np.divmod(place, max(1, len(bound)))
    order = np.lexsort((why, partition, -size, disk))
    columns = zip(*(column[order].tolist() for column in (disk, partition, why, size)), strict=True)
    return [(where, whose, WHY[reason], most) for where, whose, reason, most in columns]


def _dated(segments: Segments, gone: Flags, limit: Ints) -> Ints:
    """Return the limits, lowered to before each partition's first remaining segment whose time is unknown."""
    undated = np.flatnonzero((segments.largest_timestamp < 0) & ~segments.active & ~gone)
    lowered = limit.copy()
    np.minimum.at(lowered, segments.partition[undated], segments.next_offset[undated] - 1)
    return lowered


def _candidates(segments: Segments, gone: Flags, limit: Ints, over: Flags) -> Ints:
    """Return the rows that may be trimmed, sorted by (partition, next offset).

    Only partitions that have such a row on a disk that must lose bytes are in it.
    """
    may_go = ~(gone | segments.active) & (segments.next_offset <= limit[segments.partition])
    driven = np.zeros(len(limit), dtype=np.bool_)
    driven[segments.partition[may_go & over[segments.disk]]] = True
    rows = np.flatnonzero(may_go & driven[segments.partition])
    return rows[np.lexsort((segments.next_offset[rows], segments.partition[rows]))]


def _ages(segments: Segments, rows: Ints) -> Ints:
    """Return the ages (Unix ms) of rows that are sorted by (partition, next offset).

    A segment's age is the largest time of all segments of its partition, on any replica, that a trim to its end
    includes. So within a partition ages are in the order of offsets, and the walk trims prefixes. Segments of one
    partition that end at the same offset have the same age.
    """
    partition, offset, age = segments.partition[rows], segments.next_offset[rows], segments.largest_timestamp[rows]
    begins = partition[1:] != partition[:-1]
    for first, end in pairwise((0, *(np.flatnonzero(begins) + 1).tolist(), len(rows))):
        np.maximum.accumulate(age[first:end], out=age[first:end])
    last = np.flatnonzero(np.append(begins | (offset[1:] != offset[:-1]), True))
    return np.repeat(age[last], np.diff(last, prepend=-1))


def _walk(segments: Segments, rows: Ints, age: Ints, remaining: Ints) -> tuple[Ints, Ints]:
    """Return the rows that go because of their own disk, and their ages.

    Of equally old ones the first by (partition, next offset) goes.

    Args:
        segments: all segments.
        rows: those that may go, sorted by (partition, next offset).
        age: their ages.
        remaining: the bytes that each disk must lose.
    """
    order = np.lexsort((age, segments.disk[rows]))  # ties stay in the order of partition and offset
    rows, age = rows[order], age[order]
    disk, size = segments.disk[rows], segments.size_bytes[rows].astype(np.int64)
    before = np.cumsum(size) - size  # of all disks' rows together
    _, first, count = np.unique(disk, return_index=True, return_counts=True)
    going = before - np.repeat(before[first], count) < remaining[disk]
    return rows[going], age[going]


@dataclass(frozen=True, slots=True)
class DiskSegments:
    """The segments on the disks: from an inventory, or estimated.

    ``segments.disk`` is the number of a disk, or the number after the last for dirs that no broker reports (any
    longer). Dead segments have no bytes: ``dead_bytes`` are, by disk number, the bytes of those that are likely still
    there. ``covered`` are the (broker, dir) that were scanned; None if no scan is needed. ``doubts`` are, by disk
    number and partition, why a replica's size may include dead bytes.

    ``dated`` is set for an estimate: it returns the segments with their times, given each partition's bound without R6
    and its limit, and the bytes that each disk must lose.
    """

    segments: Segments
    partitions: Sequence[TopicPartition]
    dead_bytes: Ints
    covered: AbstractSet[tuple[int, str]] | None = None
    doubts: Mapping[tuple[int, TopicPartition], Unknown] = field(default_factory=dict)
    dated: Callable[[Segments, Ints, Ints, Ints], Segments] | None = None


@dataclass(frozen=True, slots=True)
class OldestFirst:
    """R6's bounds, for the partitions that it trims, and each disk's outcome.

    ``unknown`` is why R6 could not judge managed partitions on disks that are, or may be, above their ceilings.
    ``unanswered``: of an estimate, the partitions whose leaders did not look up a time, with the reason.
    """

    bounds: Mapping[TopicPartition, int]
    outcomes: Sequence[DiskOutcome]
    unknown: Mapping[TopicPartition, Unknown]
    unanswered: Mapping[TopicPartition, str] = field(default_factory=dict)


def oldest_first(
    found: DiskSegments,
    disks: Sequence[Disk],
    rules: DiskRules,
    starts: Mapping[TopicPartition, int],
    limits: Mapping[TopicPartition, Maybe[Limit]],
    leaving: Sequence[Leaving],
) -> OldestFirst:
    """Return the bounds that bring each disk under its ceiling, the oldest segments first.

    Args:
        found: the segments on the disks.
        disks: all disks that could be read.
        rules: the policy's disk rules; ``percent`` is set.
        starts: the other rules' bounds, or S, of the partitions for which it is known.
        limits: how far R6 may trim the managed partitions. Others are not trimmed.
        leaving: per disk, the bytes that leave it without R6, except those in ``found``.
    """
    names, segments = found.partitions, found.segments
    allowed = [limits.get(tp, UNMANAGED) for tp in names]
    limit = np.array([-1 if isinstance(one, Unknown) else one.offset for one in allowed], dtype=np.int64)
    start = np.array([starts.get(tp, 0) for tp in names], dtype=np.int64)
    unknown = {n: why for n, disk in enumerate(disks) if (why := _unknown(disk, rules, found.covered)) is not None}
    excess = [
        0 if n in unknown or isinstance(disk.room, Unknown) else excess_bytes(disk.room, rules.percent)
        for n, disk in enumerate(disks)
    ]
    dead = found.dead_bytes + np.array([*(one.known_bytes for one in leaving), 0], dtype=np.int64)
    possible = np.array([*(one.uncertain_bytes for one in leaving), 0], dtype=np.int64)
    above = np.array([*excess, 0], dtype=np.int64) - dead - possible
    if found.dated is not None:
        segments = found.dated(segments, start, limit, above)
    result = water_level(segments, start, limit, above)
    blockers = by_key(
        (where, _blocker(names[whose], size_bytes, why, allowed[whose]))
        for where, whose, why, size_bytes in in_the_way(segments, result, limit)
    )
    outcomes = [
        DiskOutcome(
            disk=disk,
            percent=rules.percent,
            unknown=unknown.get(n),
            excess_bytes=max(0, excess[n]),
            dead_bytes=int(dead[n]),
            other_rules_bytes=int(result.already_freed[n]),
            freed_bytes=int(result.freed[n]),
            short_bytes=int(result.short[n]),
            level_ms=None if result.level_ms[n] == NO_LEVEL else int(result.level_ms[n]),
            in_the_way=tuple(blockers.get(n, ())),
            estimated=found.dated is not None,
            doubtful_bytes=leaving[n].uncertain_bytes,
            unexplained_bytes=leaving[n].possible_bytes,
        )
        for n, disk in enumerate(disks)
    ]
    present = {names[n] for n in np.unique(segments.partition).tolist()}
    bounds = {names[n]: int(result.bound[n]) for n in np.flatnonzero(result.bound > start).tolist()}
    return OldestFirst(bounds, outcomes, _unknown_partitions(outcomes, limits, found.doubts, present))


def _unknown_partitions(
    outcomes: Sequence[DiskOutcome],
    limits: Mapping[TopicPartition, Maybe[Limit]],
    doubts: Mapping[tuple[int, TopicPartition], Unknown],
    present: AbstractSet[TopicPartition],
) -> dict[TopicPartition, Unknown]:
    """Return why R6 could not judge managed partitions, on disks that are, or may be, above their ceilings."""
    found: dict[TopicPartition, Unknown] = {}
    for n, one in enumerate(outcomes):
        asks = one.excess_bytes > one.dead_bytes + one.other_rules_bytes
        for tp in one.disk.replicas if asks or one.excess_bytes or one.unknown is not None else ():
            if (limit := limits.get(tp)) is None:
                continue
            why = doubts.get((n, tp))
            if one.unknown is not None:
                why = named(one.disk, one.unknown)
            elif asks and tp not in present:
                why = NO_SEGMENTS
            elif asks and why is None:
                why = limit if isinstance(limit, Unknown) else one.waits and named(one.disk, one.waits)
            if why is not None:
                found.setdefault(tp, why)
    return found


def _unknown(disk: Disk, rules: DiskRules, covered: AbstractSet[tuple[int, str]] | None) -> Unknown | None:
    if isinstance(disk.room, Unknown):
        return disk.room
    if not above_ceiling(disk, rules):
        return None  # below its ceiling, no matter who uses it
    if (others := mostly_others(disk.room, rules)) is not None:
        return others
    missing = [path for path in disk.dirs if covered is not None and (disk.broker, path) not in covered]
    if missing and disk.replicas:
        return Unknown.because(
            Code.R6,
            f"the inventory has nothing of {', '.join(missing)} on broker {disk.broker}: scan it there with kretain "
            "segments scan, by the path that the broker uses",
        )
    return None


def _blocker(tp: TopicPartition, size_bytes: int, why: str, allowed: Maybe[Limit]) -> Blocker:
    if why == "active":
        return Blocker(tp, size_bytes, "active", "the active segment frees nothing")
    if isinstance(allowed, Unknown):
        return Blocker(tp, size_bytes, allowed.reasons[0].code, allowed.reasons[0].text)
    if why == "undated":
        return Blocker(tp, size_bytes, "undated", "a segment's newest timestamp is not known")
    return Blocker(tp, size_bytes, allowed.guard, allowed.text)
