"""What R6 could not reach: which bytes still lie on a disk that stays above its ceiling, and why (R6)."""

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

    ``active``: the segment that is being written to, which frees nothing. ``limit``: behind what its guards
    allow, so a group that has not read it, a hold, a topic that is not managed; who knows the limits knows which.
    ``undated``: at or behind a segment whose largest timestamp is not known.
    """

    disk: int
    partition: int
    why: Why
    size_bytes: int


def in_the_way(segments: Segments, result: WaterLevel, limit: Ints) -> list[Remaining]:
    """Return what stays on the disks that are short: by disk, of each the most first.

    Args:
        segments: as given to the walk.
        result: what it came to.
        limit: the limits as given to the walk.
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
