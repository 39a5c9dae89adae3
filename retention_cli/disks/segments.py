"""The segments of all replicas as columns, with disks and partitions by number."""

from __future__ import annotations

from dataclasses import dataclass
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


def add_up(size_bytes: Ints, groups: Ints, count: int) -> Ints:
    """Return the sum of bytes per group, as integers: a float would lose bytes beyond 2^53."""
    result = np.zeros(count, dtype=np.int64)
    np.add.at(result, groups, size_bytes)
    return result


def wholly_below(segments: Segments, bound: Ints) -> Flags:
    """Return a mask of the segments that are freed when partitions are trimmed to their bounds. Active ones stay."""
    below: Flags = ~segments.active & (segments.next_offset <= bound[segments.partition])
    return below


def bytes_on(segments: Segments, which: Flags, disks: int) -> Ints:
    """Return, by disk number, the bytes of some segments."""
    return add_up(segments.size_bytes[which], segments.disk[which], disks)
