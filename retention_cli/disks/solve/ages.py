"""The age by which R6 orders segments: the running maximum of its partition's times, over all replicas (R6). Pure.

A partition's ages need all of its segments and nothing of other partitions: the segments of a cluster can be split into
slabs, each with some partitions whole, and aged slab by slab. :mod:`retention_cli.disks.solve.walk` joins them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from retention_cli.disks.solve.segments import SLAB, Flags, Ints, Segments, slabs

_INT64_MAX: Final = 2**63 - 1


class Aged(NamedTuple):
    """The segments that may be trimmed: their row numbers, sorted by (partition, next offset), and ages (Unix ms).

    ``limit`` is how far each partition may be trimmed: the given limit, or less if a segment's time is unknown.
    """

    rows: Ints
    age: Ints
    limit: Ints


def ages(segments: Segments, gone: Flags, limit: Ints, over: Flags) -> Aged:
    """Return the segments that the walk may trim, with their ages.

    A segment's age is the largest time of all segments of its partition, on any replica, that a trim to its end
    includes. So within a partition ages are in the order of offsets, and the walk trims prefixes. Segments of one
    partition that end at the same offset have the same age. Nothing is trimmed at or after a segment whose time is
    unknown: it may not be among the oldest.

    Args:
        segments: all segments of some partitions.
        gone: a mask of those that are freed anyway.
        limit: how far each partition may be trimmed.
        over: by disk number, whether the disk must lose any bytes. Partitions with no segment to trim on such a disk
            are left out; others are included with all their replicas.
    """
    limit = _dated(segments, gone, limit)
    rows = _may_go(segments, gone, limit, over)
    if not len(rows):
        return Aged(rows, np.empty(0, dtype=np.int64), limit)
    age = np.empty(len(rows), dtype=np.int64)
    done = 0
    for slab in _partition_slabs(segments, rows, len(limit)):
        some = slab[by_offset(segments.partition[slab], segments.next_offset[slab])]
        age[done : done + len(some)] = _running_maximum(segments, some)
        rows[done : done + len(some)] = some
        done += len(some)
    return Aged(rows, age, limit)


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


def by_offset(partition: Ints, offset: Ints) -> Ints | slice:
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
