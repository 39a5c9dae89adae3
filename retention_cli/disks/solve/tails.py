"""Find where a tail of a given size begins (R5), estimated or from an inventory, and the bytes of a trim. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from retention_cli.disks.solve.segments import Flags, Ints, Segments, add_up
from retention_cli.disks.solve.water_level import water_level

MOST_OFFSETS: Final = 2**31
"""No segment has more offsets, as they are relative in 32 bits. Multiplied by its bytes they fit in 64 bits."""


def estimated_tail(log_start: int, high_watermark: int, size_bytes: int, most_bytes: int) -> int:
    """Return the smallest offset whose tail fits into ``most_bytes``, assuming records of equal size.

    It is from S to H, and S if everything fits. ``size_bytes`` must not include dead bytes.
    """
    if size_bytes <= most_bytes:
        return log_start
    kept = most_bytes * (high_watermark - log_start) // size_bytes
    return high_watermark - kept


def exact_tails(segments: Segments, leader: Flags, start: Ints, most_bytes: Ints) -> Ints:
    """Return, per partition, the smallest offset whose tail fits, exact to the segment.

    A segment's bytes are freed with its last record, so tails begin where segments do: the result is a base offset of
    the leader replica, or ``start`` if everything fits. The active segment always stays: it frees nothing, however
    large it is.

    Args:
        segments: the segments of all replicas.
        leader: a mask of the rows of leader replicas.
        start: each partition's log start offset. Segments wholly below it are dead, and not counted.
        most_bytes: how many bytes each partition may have, negative for any number.
    """
    rows = np.flatnonzero(leader & ((segments.next_offset > start[segments.partition]) | segments.active))
    rows = rows[np.asarray(most_bytes)[segments.partition[rows]] >= 0]
    found: Ints = start.copy()
    if not len(rows):
        return found
    rows = rows[np.lexsort((segments.base_offset[rows], segments.partition[rows]))]
    partition = segments.partition[rows]
    size = segments.size_bytes[rows].astype(np.int64)
    ends = np.flatnonzero(np.concatenate((partition[1:] != partition[:-1], [True])))
    upto = np.cumsum(size)
    counts = np.diff(np.concatenate(([-1], ends)))
    tail = np.repeat(upto[ends], counts) - upto + size
    last = np.zeros(len(rows), dtype=np.bool_)
    last[ends] = True
    fits = (tail <= np.asarray(most_bytes)[partition]) | last
    earliest = np.full(len(start), np.iinfo(np.int64).max)
    np.minimum.at(earliest, partition[fits], segments.base_offset[rows][fits])
    known = earliest != np.iinfo(np.int64).max
    found[known] = np.maximum(start[known], earliest[known])
    return found


def exact_topic_tails(segments: Segments, leader: Flags, start: Ints, topic: Ints, most_bytes: Ints) -> Ints:
    """Return, per partition, where it must begin so that its topic fits: the topic's oldest segments are trimmed first.

    This is R6's walk with a topic in place of a disk: over leader replicas' segments by (running maximum timestamp,
    partition, offset), until the topic has no more bytes than it may. Triggers ignore guards: records that guards keep
    are not made up for by other partitions.

    Args:
        segments: the segments of all replicas.
        leader: a mask of the rows of leader replicas.
        start: each partition's log start offset.
        topic: each partition's topic, by number.
        most_bytes: how many bytes each topic may have, negative for any number.
    """
    rows = np.flatnonzero(leader)
    of_topic = np.asarray(topic)[segments.partition[rows]]
    own = Segments(
        of_topic,
        segments.partition[rows],
        segments.base_offset[rows],
        segments.next_offset[rows],
        segments.size_bytes[rows],
        segments.largest_timestamp[rows],
        segments.active[rows],
    )
    most = np.asarray(most_bytes, dtype=np.int64)
    excess = np.where(most < 0, 0, add_up(own.size_bytes, of_topic, len(most)) - most)
    far = np.full(len(start), np.iinfo(np.int64).max - 1)
    return water_level(own, start, far, excess).bound


def bytes_between(segments: Segments, leader: Flags, start: Ints, end: Ints) -> tuple[Ints, Ints, Flags]:
    """Return, per partition, how many offsets of a range are in segments, their bytes, and whether a segment is cut.

    A segment that is partly in the range counts in proportion to its offsets. One whose end is unknown does not count.

    Args:
        segments: the segments of all replicas.
        leader: a mask of the rows of leader replicas.
        start: each partition's first offset of the range.
        end: each partition's end of the range (exclusive).
    """
    base, following, partition = segments.base_offset, segments.next_offset, segments.partition
    rows = np.flatnonzero(
        leader & (following > start[partition]) & (base < end[partition]) & (following - base <= MOST_OFFSETS)
    )
    base, following, partition = base[rows], following[rows], partition[rows]
    held = np.minimum(following, end[partition]) - np.maximum(base, start[partition])
    whole = held == following - base
    size = segments.size_bytes[rows].astype(np.int64)
    size = np.where(whole, size, size * held // np.maximum(following - base, 1))
    cut = np.zeros(len(start), dtype=np.bool_)
    cut[partition[~whole]] = True
    return add_up(held, partition, len(start)), add_up(size, partition, len(start)), cut
