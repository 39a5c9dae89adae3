"""Find the bytes that R6 could not free on disks that stay above their ceilings, and why (R6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np

from retention_cli.disks.solve.segments import Flags, Ints, Segments, add_up
from retention_cli.disks.solve.water_level import WaterLevel, wholly_below

Why = Literal["active", "limit", "undated"]
WHY: Final[tuple[Why, ...]] = ("active", "limit", "undated")
"""In the alphabet's order."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """``size_bytes`` of a partition that stay on a disk.

    ``active``: they are the active segment, which frees nothing. ``limit``: they are beyond the guards' limit (an
    unread record, a hold, a topic that is not managed); the limit itself has the reason. ``undated``: they are at or
    after a segment whose largest timestamp is unknown.
    """

    disk: int
    partition: int
    why: Why
    size_bytes: int


class Stays(NamedTuple):
    """Bytes that stay, by disk, partition and reason (its number in ``WHY``): columns of equal length."""

    disk: Ints
    partition: Ints
    why: Ints
    size_bytes: Ints


def stays(segments: Segments, bound: Ints, limit: Ints, short: Flags) -> Stays:
    """Return the bytes that stay on the disks that are short, in the order of disk, partition and reason.

    Args:
        segments: all segments of some partitions, without dead ones.
        bound: how far each partition is trimmed.
        limit: how far each partition could be trimmed by its guards.
        short: by disk number, whether the disk stays above its ceiling.
    """
    rows = np.flatnonzero(short[segments.disk] & ~wholly_below(segments, bound))
    disk, partition = segments.disk[rows].astype(np.int64), segments.partition[rows].astype(np.int64)
    allowed = segments.next_offset[rows] <= np.asarray(limit)[partition]
    why = np.where(segments.active[rows], 0, np.where(allowed, 2, 1))
    keys, group = np.unique((disk * len(bound) + partition) * len(WHY) + why, return_inverse=True)
    size = add_up(segments.size_bytes[rows], group, len(keys))
    place = keys // len(WHY)
    return Stays(place // max(1, len(bound)), place % max(1, len(bound)), keys % len(WHY), size)


def largest_first(found: Stays) -> Stays:
    """Return the bytes that stay by disk, the largest first; equally large ones by partition and reason."""
    order = np.lexsort((found.why, found.partition, -found.size_bytes, found.disk))
    return Stays(*(column[order] for column in found))


def in_the_way(segments: Segments, result: WaterLevel, limit: Ints) -> list[Remaining]:
    """Return the bytes that stay on the disks that are short, by disk, the largest first.

    Args:
        segments: the segments given to the walk.
        result: the walk's result.
        limit: the limits given to the walk.
    """
    found = largest_first(stays(segments, result.bound, np.asarray(limit), result.short > 0))
    columns = zip(*(column.tolist() for column in found), strict=True)
    return [Remaining(disk, partition, WHY[why], size) for disk, partition, why, size in columns]
