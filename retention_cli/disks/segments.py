"""The segments of all replicas as columns, with disks and partitions by number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[Any]
"""Integers: 32 bits suffice for disks and partitions; offsets, bytes and times need 64."""
Flags = NDArray[np.bool_]

UNDATED: Final = -1
"""An unknown largest timestamp, Kafka's own value for none. It never counts as old."""

NO_END: Final = 2**63 - 1
"""The next offset of a segment whose end is unknown: it is never wholly below a bound."""


@dataclass(frozen=True, slots=True)
class Segments:
    """One row per segment of a replica, in any order; all columns have the same length.

    ``disk`` and ``partition`` are numbers from 0. Partitions are numbered in the order of (topic, partition): of two
    equally old segments, the walk takes the smaller number first. ``next_offset`` is the first offset after the
    segment: it is wholly below a bound b if ``next_offset <= b``. ``size_bytes`` are the bytes that its deletion frees
    on the disk. ``largest_timestamp`` is Unix ms, negative if unknown (:data:`UNDATED`). ``active``: the segment is
    the one being written to.
    """

    disk: Ints
    partition: Ints
    base_offset: Ints
    next_offset: Ints
    size_bytes: Ints
    largest_timestamp: Ints
    active: Flags

    def __len__(self) -> int:
        return len(self.disk)

    def take(self, which: Ints | Flags | slice) -> Segments:
        """Return some of the rows."""
        return Segments(*(getattr(self, name)[which] for name in Segments.__slots__))

    def check(self, partitions: int, disks: int) -> None:
        """Check that the columns are possible: a wrong number would count bytes that don't exist.

        Raises:
            ValueError: unequal lengths, a disk or partition out of range, a negative size, a segment that ends
                before it begins.
        """
        lengths = {field.name: len(getattr(self, field.name)) for field in fields(self)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of unequal length: {lengths}")
        if not len(self):
            return
        for name, column, end in (("disk", self.disk, disks), ("partition", self.partition, partitions)):
            if int(column.min()) < 0 or int(column.max()) >= end:
                raise ValueError(f"a {name} that is not from 0 to {end - 1}")
        if int(self.size_bytes.min()) < 0:
            raise ValueError("a segment of negative size")
        if any(bool((self.next_offset[some] < self.base_offset[some]).any()) for some in slabs(len(self))):
            raise ValueError("a segment that ends before it begins")


SLAB: Final = 1 << 20
"""So many rows are a slab."""


def slabs(count: int) -> Iterator[slice]:
    """Yield stretches of so many rows: what is computed of one at a time is in memory for some rows, not for all."""
    return (slice(first, first + SLAB) for first in range(0, count, SLAB))


def add_up(size_bytes: Ints, groups: Ints, count: int) -> Ints:
    """Return the sum of bytes per group, as integers: a float would lose bytes beyond 2^53."""
    result = np.zeros(count, dtype=np.int64)
    for some in slabs(len(groups)):
        np.add.at(result, groups[some], size_bytes[some])
    return result


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
