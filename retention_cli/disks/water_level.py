"""R6: trim the globally oldest segments until every disk is back at its ceiling (KIP-61, R6). Pure.

The walk. A *candidate* is a partition and an offset at which a closed segment of at least one replica ends. The disks
that hold it are those of these segments: trimming to it, rather than to the candidate before it, frees exactly them.
Candidates are ordered by (running maximum timestamp, topic, partition, offset), where the running maximum is over all
segments of the partition, on any replica, that the trim includes: so a partition's candidates are in the order of
their offsets, and each trim is of a prefix. A candidate is trimmed if any disk that holds it is still above its
ceiling. Then *every* replica loses its own segments wholly below that offset, including those whose own candidate came
earlier and was not trimmed because their disk was no longer above its ceiling.

If all replicas have the same boundaries, a candidate is a segment, and this is R6 word for word. If they differ, each
boundary of each replica is a candidate of its own: so no trim frees nothing.

Why this needs no loop. The segments that a candidate frees are at or before it in the order. So as long as a disk is
above its ceiling, it has lost exactly its segments before the walk's position in the order, whatever the other disks
are like: a running sum over the disk's own segments determines where it stops, and disks are independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import numpy as np

from retention_cli.disks.segments import Flags, Ints, Segments, add_up, bytes_on, wholly_below

NO_LEVEL: Final = -1

Why = Literal["active", "limit", "undated"]
WHY: Final[tuple[Why, ...]] = ("active", "limit", "undated")
"""In the alphabet's order."""


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
        start: each partition's bound without R6: its log start offset, or another rule's bound. A segment wholly
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
    short = np.maximum(remaining - freed, 0)
    return WaterLevel(bound, already, freed, short, level)


class Remaining(NamedTuple):
    """``size_bytes`` of a partition that stay on a disk.

    ``active``: they are the active segment, which frees nothing. ``limit``: they are beyond the guards' limit (an
    unread record, a hold, a topic that is not managed); the limit itself has the reason. ``undated``: they are at or
    after a segment whose largest timestamp is unknown.
    """

    disk: int
    partition: int
    why: Why
    size_bytes: int


def in_the_way(segments: Segments, result: WaterLevel, limit: Ints) -> list[Remaining]:
    """Return the bytes that stay on the disks that are short, by disk, the largest first.

    Args:
        segments: the segments given to the walk.
        result: the walk's result.
        limit: the limits given to the walk.
    """
    bound = result.bound
    rows = np.flatnonzero((result.short > 0)[segments.disk] & ~wholly_below(segments, bound))
    disk, partition = segments.disk[rows].astype(np.int64), segments.partition[rows].astype(np.int64)
    allowed = segments.next_offset[rows] <= np.asarray(limit)[partition]
    why = np.where(segments.active[rows], 0, np.where(allowed, 2, 1))
    keys, group = np.unique((disk * len(bound) + partition) * len(WHY) + why, return_inverse=True)
    size = add_up(segments.size_bytes[rows], group, len(keys))
    place, why = np.divmod(keys, len(WHY))
    disk, partition = np.divmod(place, max(1, len(bound)))
    order = np.lexsort((why, partition, -size, disk))
    columns = zip(*(column[order].tolist() for column in (disk, partition, why, size)), strict=True)
    return [Remaining(where, whose, WHY[reason], most) for where, whose, reason, most in columns]


def _dated(segments: Segments, gone: Flags, limit: Ints) -> Ints:
    """Return the limits, lowered to before each partition's first remaining segment whose time is unknown."""
    undated = np.flatnonzero((segments.largest_timestamp < 0) & ~segments.active & ~gone)
    if not len(undated):
        return limit
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
