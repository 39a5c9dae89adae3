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

from retention_cli.disks.solve.ages import ages
from retention_cli.disks.solve.segments import Flags, Ints, Segments, add_up, slabs
from retention_cli.disks.solve.walk import candidates_of, in_reach, walk

NO_LEVEL: Final = -1


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
    gone = wholly_below(segments, start)
    already = bytes_on(segments, gone, disks)
    remaining = excess - already
    rows, age, limit = ages(segments, gone, limit, remaining > 0)
    bound, level = start.copy(), np.full(disks, NO_LEVEL, dtype=np.int64)
    if len(rows):
        needed = in_reach(segments, rows, age, remaining)
        walked = walk(candidates_of(segments, rows[needed], age[needed]), remaining)
        np.maximum.at(bound, walked.partition, walked.next_offset)
        np.maximum.at(level, walked.disk, walked.age)
    freed = bytes_on(segments, wholly_below(segments, bound), disks) - already
    short = np.maximum(remaining - freed, 0)
    return WaterLevel(bound, already, freed, short, level, limit)


def wholly_below(segments: Segments, bound: Ints) -> Flags:
    """Return a mask of the segments that are freed when partitions are trimmed to their bounds. Active ones stay."""
    below: Flags = ~segments.active
    for some in slabs(len(segments)):
        below[some] &= segments.next_offset[some] <= bound[segments.partition[some]]
    return below


def bytes_on(segments: Segments, which: Flags, disks: int) -> Ints:
    """Return, by disk number, the bytes of some segments."""
    found = np.zeros(disks, dtype=np.int64)
    for some in slabs(len(segments)):
        here = which[some]
        found += add_up(segments.size_bytes[some][here], segments.disk[some][here], disks)
    return found
