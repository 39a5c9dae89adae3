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

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import numpy as np

from retention_cli.disks.segments import SLAB, Flags, Ints, Segments, add_up, bytes_on, slabs, wholly_below

NO_LEVEL: Final = -1

_SIEVE: Final = 1 << 21
"""How many sums the sieve by times has, over all disks."""
_INT64_MAX: Final = 2**63 - 1

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

    Raises:
        ValueError: columns of unequal length, or impossible numbers.
    """
    partitions, disks = len(start), len(excess)
    segments.check(partitions, disks)
    if len(limit) != partitions:
        raise ValueError(f"{partitions} bounds and {len(limit)} limits")
    start, limit, excess = (np.asarray(one, dtype=np.int64) for one in (start, limit, excess))
    gone = wholly_below(segments, start)
    already = bytes_on(segments, gone, disks)
    remaining = excess - already
    limit = _dated(segments, gone, limit)
    rows, age = _ages(segments, _may_go(segments, gone, limit, remaining > 0), partitions)
    bound, level = start.copy(), np.full(disks, NO_LEVEL, dtype=np.int64)
    if len(rows):
        needed = _in_reach(segments, rows, age, remaining)
        rows, age = _walk(segments, rows[needed], age[needed], remaining)
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


def _may_go(segments: Segments, gone: Flags, limit: Ints, over: Flags) -> Ints:
    """Return the rows that may be trimmed, of partitions that have such a row on a disk that must lose bytes."""
    may_go = ~(gone | segments.active)
    driven = np.zeros(len(limit), dtype=np.bool_)
    for some in slabs(len(may_go)):
        partition = segments.partition[some]
        may_go[some] &= segments.next_offset[some] <= limit[partition]
        driven[partition[may_go[some] & over[segments.disk[some]]]] = True
    for some in slabs(len(may_go)):
        may_go[some] &= driven[segments.partition[some]]
    return np.flatnonzero(may_go).astype(np.int32 if len(may_go) < 1 << 31 else np.int64)


def _ages(segments: Segments, rows: Ints, partitions: int) -> tuple[Ints, Ints]:
    """Return rows that may go, sorted by (partition, next offset), and their ages (Unix ms). Sorts ``rows`` in place.

    A segment's age is the largest time of all segments of its partition, on any replica, that a trim to its end
    includes. So within a partition ages are in the order of offsets, and the walk trims prefixes. Segments of one
    partition that end at the same offset have the same age. Ages need no other partition's segments: they are computed
    in slabs of whole partitions.
    """
    age = np.empty(len(rows), dtype=np.int64)
    done = 0
    for slab in _partition_slabs(segments, rows, partitions) if len(rows) else ():
        some = slab[_by_offset(segments.partition[slab], segments.next_offset[slab])]
        age[done : done + len(some)] = _running_maximum(segments, some)
        rows[done : done + len(some)] = some
        done += len(some)
    return rows, age


def _partition_slabs(segments: Segments, rows: Ints, partitions: int) -> Iterator[Ints]:
    """Yield these rows in slabs of whole partitions, in the order of partitions."""
    if len(rows) <= SLAB:
        yield rows
        return
    count = np.zeros(partitions, dtype=np.int64)
    for some in slabs(len(rows)):
        count += np.bincount(segments.partition[rows[some]], minlength=partitions)
    slab = (np.cumsum(count) - 1) // SLAB  # of each partition, by where it ends
    numbers = slab.astype(np.uint16)[segments.partition[rows]]
    order = np.argsort(numbers, kind="stable")
    ordered = rows[order]
    ends = np.cumsum(np.bincount(numbers, minlength=1))
    del numbers, order
    for first, end in pairwise((0, *ends.tolist())):
        if first < end:
            yield ordered[first:end]


def _by_offset(partition: Ints, offset: Ints) -> Ints | slice:
    """Return an index that sorts by (partition, offset)."""
    same = partition[1:] == partition[:-1]
    if bool(((partition[1:] > partition[:-1]) | (same & (offset[1:] >= offset[:-1]))).all()):
        return slice(None)  # as an inventory usually is
    bits = int(offset.max()).bit_length()
    if bits + int(partition.max()).bit_length() > 63:
        return np.lexsort((offset, partition))
    key = partition.astype(np.int64)
    key <<= bits
    key |= offset
    return np.argsort(key)


def _running_maximum(segments: Segments, rows: Ints) -> Ints:
    """Return, for rows sorted by (partition, next offset), the largest time of their partition up to that offset."""
    partition, offset = segments.partition[rows], segments.next_offset[rows]
    last = np.flatnonzero(np.concatenate(((partition[1:] != partition[:-1]) | (offset[1:] != offset[:-1]), [True])))
    del offset
    time = segments.largest_timestamp[rows].astype(np.int64, copy=False)
    low, span = int(time.min()), int(time.max()) - int(time.min()) + 1
    ranked: Ints | None = None
    if (int(partition.max()) + 1) * span > _INT64_MAX:  # timestamps are absurd: use their ranks, which fit
        ranked, time = np.unique(time, return_inverse=True)
        low, span = 0, len(ranked)
    shelf = partition.astype(np.int64)  # lifts each partition's times above those of all partitions before it
    shelf *= span
    height = time - low
    height += shelf
    np.maximum.accumulate(height, out=height)
    height -= shelf
    del shelf
    height += low
    highest = np.repeat(height[last], np.diff(np.concatenate(([-1], last))))
    return highest if ranked is None else ranked[highest]


def _in_reach(segments: Segments, rows: Ints, age: Ints, remaining: Ints) -> Flags:
    """Return a mask of the candidates that the walk can reach, by coarse times, so that fewer need sorting.

    Those of disks that need no trim are not in it; those disks still lose what is trimmed for others.
    """
    low, high = int(age.min()), int(age.max())
    buckets = max(1, _SIEVE // len(remaining))
    width = (high - low) // buckets + 1
    held = np.zeros(len(remaining) * buckets, dtype=np.int64)
    for some in slabs(len(rows)):
        slot = segments.disk[rows[some]].astype(np.int64)
        slot *= buckets
        slot += (age[some] - low) // width
        np.add.at(held, slot, segments.size_bytes[rows[some]])
    # the buckets that end before enough is freed, and the one in which it becomes enough
    last = (np.cumsum(held.reshape(len(remaining), buckets), axis=1) < remaining[:, None]).sum(axis=1)
    last[remaining <= 0] = -1
    reach = np.zeros(len(rows), dtype=np.bool_)
    for some in slabs(len(rows)):
        reach[some] = (age[some] - low) // width <= last[segments.disk[rows[some]]]
    return reach


def _walk(segments: Segments, rows: Ints, age: Ints, remaining: Ints) -> tuple[Ints, Ints]:
    """Return the rows that go because of their own disk, and their ages.

    Of equally old ones the first by (partition, next offset) goes.

    Args:
        segments: all segments.
        rows: those that may go, sorted by (partition, next offset); of a disk all, or at least the oldest in reach.
        age: their ages.
        remaining: the bytes that each disk must lose.
    """
    order = np.argsort(age, kind="stable")  # ties stay in the order of partition and offset
    disk = segments.disk[rows[order]]
    if len(disk) and int(disk.max()) < 1 << 16:
        disk = disk.astype(np.uint16)  # numpy sorts 16 bits by counting
    order = order[np.argsort(disk, kind="stable")]
    rows, age = rows[order], age[order]
    disk, size = segments.disk[rows], segments.size_bytes[rows].astype(np.int64, copy=False)
    before = np.cumsum(size)
    before -= size
    first = np.flatnonzero(np.concatenate(([True], disk[1:] != disk[:-1]))) if len(disk) else disk
    before -= np.repeat(before[first], np.diff(np.append(first, len(size))))
    going = before < remaining[disk]
    return rows[going], age[going]
