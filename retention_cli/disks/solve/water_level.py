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
from typing import Final

import numpy as np

from retention_cli.disks.solve.segments import Flags, Ints, Segments, add_up

NO_LEVEL: Final = -1
_INT64_MAX: Final = 2**63 - 1
_SIEVE: Final = 1 << 21
"""How many sums the sieve by times has, over all disks."""


@dataclass(frozen=True, slots=True)
class WaterLevel:
    """R6's result. Arrays are by partition number or by disk number; bytes are those of whole segments.

    ``bound`` is the offset to trim each partition to: ``start``, or larger. ``already_freed`` are each disk's bytes
    that are freed without R6 (dead segments that are not swept yet, and the other rules' trims), ``freed`` the bytes
    that R6 frees in addition. ``short`` is how much is still above the ceiling after both, 0 if it is reached.
    ``level_ms`` is the newest time (Unix ms) trimmed for each disk's own sake, :data:`NO_LEVEL` if none was. ``limit``
    is how far each partition could be trimmed: the given limit, or less if a segment's time is unknown.
    """

    bound: Ints
    already_freed: Ints
    freed: Ints
    short: Ints
    level_ms: Ints
    limit: Ints


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
    gone = (segments.next_offset <= start[segments.partition]) & ~segments.active
    already = _bytes_on(segments, gone, disks)
    remaining = excess - already
    limit = _dated(segments, gone, limit)
    bound, level = start.copy(), np.full(disks, NO_LEVEL, dtype=np.int64)
    rows = _candidates(segments, gone, limit, remaining > 0)
    if len(rows):
        _walk(segments, rows, remaining, bound, level)
    freed = _bytes_on(segments, wholly_below(segments, bound), disks) - already
    short = np.maximum(remaining - freed, 0)
    return WaterLevel(bound, already, freed, short, level, limit)


def wholly_below(segments: Segments, bound: Ints) -> Flags:
    """Return a mask of the segments that are freed when partitions are trimmed to their bounds. Active ones stay."""
    below: Flags = segments.next_offset <= bound[segments.partition]
    below &= ~segments.active
    return below


def _bytes_on(segments: Segments, which: Flags, disks: int) -> Ints:
    return add_up(segments.size_bytes[which], segments.disk[which], disks)


def _dated(segments: Segments, gone: Flags, limit: Ints) -> Ints:
    """Return the limits, lowered to before each partition's first remaining segment whose time is unknown."""
    undated = np.flatnonzero((segments.largest_timestamp < 0) & ~segments.active & ~gone)
    if not len(undated):
        return limit
    lowered = limit.copy()
    np.minimum.at(lowered, segments.partition[undated], segments.next_offset[undated] - 1)
    return lowered


def _candidates(segments: Segments, gone: Flags, limit: Ints, over: Flags) -> Ints:
    """Return the rows that may be trimmed, of partitions that have such a row on a disk above its ceiling."""
    may_go = segments.next_offset <= limit[segments.partition]
    may_go &= ~gone
    may_go &= ~segments.active
    driving = may_go & over[segments.disk]
    driven = np.zeros(len(limit), dtype=np.bool_)
    driven[segments.partition[driving]] = True
    may_go &= driven[segments.partition]
    return np.flatnonzero(may_go)


def _walk(segments: Segments, rows: Ints, remaining: Ints, bound: Ints, level: Ints) -> None:
    """Raise ``bound`` for the rows that are trimmed, and set ``level``. ``remaining`` is what each disk must lose."""
    rows = _by_offset(segments, rows)
    oldest_first = _running_maximum(segments, rows)
    needed = _in_reach(segments, rows, oldest_first, remaining)
    rows, oldest_first = rows[needed], oldest_first[needed]
    del needed
    order = np.argsort(oldest_first, kind="stable")  # ties stay in the order of partition and offset
    rows, oldest_first = rows[order], oldest_first[order]
    order = np.argsort(_narrow(segments.disk[rows], len(remaining)), kind="stable")
    rows, oldest_first = rows[order], oldest_first[order]
    del order
    disk = segments.disk[rows]
    size = segments.size_bytes[rows].astype(np.int64, copy=False)
    before = np.cumsum(size)
    before -= size
    del size
    first = np.flatnonzero(np.concatenate(([True], disk[1:] != disk[:-1])))
    before -= np.repeat(before[first], np.diff(np.append(first, len(disk))))
    going = before < remaining[disk]
    rows, disk, oldest_first = rows[going], disk[going], oldest_first[going]
    np.maximum.at(bound, segments.partition[rows], segments.next_offset[rows])
    np.maximum.at(level, disk, oldest_first)


def _by_offset(segments: Segments, rows: Ints) -> Ints:
    """Return the rows sorted by (partition, next offset)."""
    partition, offset = segments.partition[rows], segments.next_offset[rows]
    same = partition[1:] == partition[:-1]
    if bool(((partition[1:] > partition[:-1]) | (same & (offset[1:] >= offset[:-1]))).all()):
        return rows  # as an inventory usually is
    bits = int(offset.max()).bit_length()
    if bits + int(partition.max()).bit_length() > 63:
        return rows[np.lexsort((offset, partition))]
    key = partition.astype(np.int64)
    key <<= bits
    key |= offset
    return rows[np.argsort(key)]


def _running_maximum(segments: Segments, rows: Ints) -> Ints:
    """Return, for rows sorted by (partition, next offset), the largest time of their partition up to that offset.

    Rows of one partition that end at the same offset are one candidate, with the same time.
    """
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


def _in_reach(segments: Segments, rows: Ints, oldest_first: Ints, remaining: Ints) -> Flags:
    """Return a mask of the rows that the walk can reach, by coarse times, so that fewer rows need sorting.

    Rows of disks that need no trim are not in it; those disks still lose what is trimmed for others.
    """
    disk = segments.disk[rows]
    low, high = int(oldest_first.min()), int(oldest_first.max())
    buckets = max(1, _SIEVE // len(remaining))
    bucket = (oldest_first - low) // ((high - low) // buckets + 1)
    slot = disk.astype(np.int64)
    slot *= buckets
    slot += bucket
    held = add_up(segments.size_bytes[rows], slot, len(remaining) * buckets).reshape(len(remaining), buckets)
    del slot
    # the buckets that end before enough is freed, and the one in which it becomes enough
    last = (np.cumsum(held, axis=1) < remaining[:, None]).sum(axis=1)
    last[remaining <= 0] = -1
    reach: Flags = bucket <= last[disk]
    return reach


def _narrow(disk: Ints, count: int) -> Ints:
    """Return disk numbers in 16 bits where they fit: numpy then sorts them by counting."""
    return disk.astype(np.uint16) if count <= 1 << 16 else disk
