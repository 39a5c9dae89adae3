"""R6's walk: on each disk the oldest segments go first, until it has lost what it must (R6). Pure.

Disks are independent (:mod:`retention_cli.disks.solve.water_level` explains why): disks can be walked apart, each with
all of its segments that may go (:mod:`retention_cli.disks.solve.ages`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from retention_cli.disks.solve.ages import by_offset
from retention_cli.disks.solve.segments import Flags, Ints, Segments, slabs

_SIEVE: Final = 1 << 21
"""How many sums the sieve by times has, over all disks."""


class Candidates(NamedTuple):
    """Segments that may go, in any order: columns of equal length, as in ``Segments``, with their ages (Unix ms).

    ``partition`` numbers partitions in the order of (topic, partition).
    """

    disk: Ints
    partition: Ints
    next_offset: Ints
    size_bytes: Ints
    age: Ints

    def take(self, which: Ints | Flags | slice) -> Candidates:
        """Return some of them."""
        return Candidates(*(column[which] for column in self))


def candidates_of(segments: Segments, rows: Ints, age: Ints) -> Candidates:
    """Return some segments, of these ages, as candidates."""
    s = segments
    return Candidates(s.disk[rows], s.partition[rows], s.next_offset[rows], s.size_bytes[rows], age)


def walk(candidates: Candidates, remaining: Ints) -> Candidates:
    """Return the candidates that go because of their own disk, sorted by disk and age.

    Of equally old ones the first by (partition, next offset) goes.

    Args:
        candidates: the segments that may go, of some disks; of a disk all, or at least the oldest in reach.
        remaining: the bytes that each disk must lose.
    """
    if not len(candidates.disk):
        return candidates
    found = candidates.take(by_offset(candidates.partition, candidates.next_offset))
    order = np.argsort(found.age, kind="stable")  # ties stay in the order of partition and offset
    order = order[np.argsort(narrow(found.disk[order]), kind="stable")]
    found = found.take(order)
    size = found.size_bytes.astype(np.int64, copy=False)
    before = np.cumsum(size)
    before -= size
    first = np.flatnonzero(np.concatenate(([True], found.disk[1:] != found.disk[:-1])))
    before -= np.repeat(before[first], np.diff(np.append(first, len(size))))
    going = before < remaining[found.disk]
    return found.take(going)


def in_reach(segments: Segments, rows: Ints, age: Ints, remaining: Ints) -> Flags:
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


def narrow(disk: Ints) -> Ints:
    """Return disk numbers in 16 bits where they fit: numpy then sorts them by counting."""
    return disk.astype(np.uint16) if not len(disk) or int(disk.max()) < 1 << 16 else disk
