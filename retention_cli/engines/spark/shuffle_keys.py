"""Keys by which Spark's hash partitioning takes each row where it is to go. Pure."""

from __future__ import annotations

import functools
from typing import Final

import numpy as np

from retention_cli.disks.solve.segments import Ints

_SEED: Final = 42


@functools.lru_cache(16)
def keys(count: int) -> Ints:
    """Return a key (an ``int`` column's value) for each of Spark's ``count`` shuffle partitions, which takes it there.

    Numbers from 0 on would meet in some partitions, and leave others empty. Should a Spark hash otherwise, that is what
    happens: slower, and nothing else. The array is shared: it can't be written to.
    """
    found = np.full(count, -1, dtype=np.int32)
    first, some = 0, max(64, 4 * count)
    while (found < 0).any():
        numbers = np.arange(first, first + some, dtype=np.int32)
        place = _spark_hash(numbers).astype(np.int64) % count
        found[place[::-1]] = np.where(found[place[::-1]] < 0, numbers[::-1], found[place[::-1]])
        first += some
    found.flags.writeable = False
    return found


def _spark_hash(numbers: Ints) -> Ints:
    """Return Spark's hash of 32-bit integers (Murmur3, as for bucketed tables)."""
    with np.errstate(over="ignore"):
        k = numbers.astype(np.uint32) * np.uint32(0xCC9E2D51)
        k = (k << np.uint32(15) | k >> np.uint32(17)) * np.uint32(0x1B873593)
        h = np.uint32(_SEED) ^ k
        h = (h << np.uint32(13) | h >> np.uint32(19)) * np.uint32(5) + np.uint32(0xE6546B64)
        h ^= np.uint32(4)
        h = (h ^ h >> np.uint32(16)) * np.uint32(0x85EBCA6B)
        h = (h ^ h >> np.uint32(13)) * np.uint32(0xC2B2AE35)
        return (h ^ h >> np.uint32(16)).view(np.int32)
