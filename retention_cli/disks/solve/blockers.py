"""Find the bytes that R6 could not free on disks that stay above their ceilings, and why (R6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from retention_cli.disks.solve.segments import Ints, Segments
from retention_cli.disks.solve.water_level import WaterLevel, wholly_below

Why = Literal["active", "limit", "undated"]
_WHY: tuple[Why, ...] = ("active", "limit", "undated")


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


def in_the_way(segments: Segments, result: WaterLevel, limit: Ints) -> list[Remaining]:
    """Return the bytes that stay on the disks that are short, by disk, the largest first.

    Args:
        segments: the segments given to the walk.
        result: the walk's result.
        limit: the limits given to the walk.
    """
    stays = (result.short > 0)[segments.disk] & ~wholly_below(segments, result.bound)
    rows = np.flatnonzero(stays)
    if not len(rows):
        return []
    disk, partition = segments.disk[rows].astype(np.int64), segments.partition[rows].astype(np.int64)
    allowed = segments.next_offset[rows] <= np.asarray(limit)[partition]
    why = np.where(segments.active[rows], 0, np.where(allowed, 2, 1))
    key = (disk * len(result.bound) + partition) * len(_WHY) + why
    keys, group = np.unique(key, return_inverse=True)
    size = np.zeros(len(keys), dtype=np.int64)
    np.add.at(size, group, segments.size_bytes[rows])
    found = []
    for one, total in zip(keys.tolist(), size.tolist(), strict=True):
        place, reason = divmod(one, len(_WHY))
        on, of = divmod(place, len(result.bound))
        found.append(Remaining(on, of, _WHY[reason], total))
    return sorted(found, key=lambda one: (one.disk, -one.size_bytes, one.partition, one.why))
