"""What is remembered of a disk: how much of it was in use and when, and so how fast it grows. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, NamedTuple

from pydantic import ConfigDict, Field

from retention_cli.core.model import Maybe, Unknown
from retention_cli.core.units import format_duration
from retention_cli.memory.partition import thinned_by_age

DISK_SAMPLES_AT_MOST: Final = 64
APART_MS: Final = 60_000
"""Looks closer together than this are dropped: a trim looks before each batch."""
LEAST_MS: Final = 3_600_000
"""Growth needs looks at least this far apart: of a few minutes, a topic that is being filled is all it sees."""
WINDOW_MS: Final = 7 * 86_400_000
"""Growth is measured over at most this long, unless the last look is older."""
DAY_MS: Final = 86_400_000
_ROW: Final = struct.Struct("<3q")
DISK_SAMPLE_BYTES: Final = _ROW.size


class DiskSample(NamedTuple):
    """A disk's used and total bytes at a moment of our wall clock (Unix ms)."""

    wall_ms: int
    used_bytes: int
    total_bytes: int


class Growth(NamedTuple):
    """How fast a disk grows, net of deletes: bytes per day (negative: it shrinks), measured over ``over_ms``.

    ``full_in_ms`` is how long until it is full at that rate; None if it does not grow.
    """

    bytes_per_day: int
    over_ms: int
    full_in_ms: int | None


@dataclass(slots=True)
class DiskMemory:
    """The looks at one disk, oldest first, packed (:func:`unpack`)."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    packed: bytes = b""
    changed: Annotated[bool, Field(exclude=True)] = False

    @property
    def samples(self) -> tuple[DiskSample, ...]:
        """The looks, oldest first."""
        return unpack(self.packed)

    def add(self, sample: DiskSample, *, lowest: bool = False) -> None:
        """Remember a look, unless it is too close to the last one, or before it (a clock was set back).

        With ``lowest`` one that is not remembered lowers the last one's used bytes, if it has fewer. So does one that
        is thinned out: the look after it has its used bytes, if it had fewer.
        """
        samples = self.samples
        same_size = [one for one in samples if one.total_bytes == sample.total_bytes]
        apart = not same_size or sample.wall_ms - same_size[-1].wall_ms >= APART_MS
        if apart and (not samples or sample >= samples[-1]):
            self.packed, self.changed = pack(_lowered([*samples, sample]) if lowest else [*samples, sample]), True
        elif lowest and samples:
            last = samples[-1]
            if last.total_bytes == sample.total_bytes and sample.used_bytes < last.used_bytes:
                self.packed, self.changed = pack([*samples[:-1], last._replace(used_bytes=sample.used_bytes)]), True

    def merged(self, other: DiskMemory) -> DiskMemory:
        """Return what both remember; their order does not matter. The smallest amounts are kept, as by :meth:`add`."""
        return DiskMemory(pack(_lowered(sorted({*self.samples, *other.samples}))))

    def covers(self, other: DiskMemory) -> bool:
        """Return whether this memory has all that the other has."""
        return self.merged(other).packed == self.packed


def growth(samples: Sequence[DiskSample], now: DiskSample) -> Maybe[Growth]:
    """Return how fast a disk grows: from the oldest look of the last seven days to now.

    Looks at another total size, by its broker or by the policy, do not count. Unknown until one is old enough.
    """
    same = [one for one in samples if one.wall_ms <= now.wall_ms and one.total_bytes == now.total_bytes]
    within = [one for one in same if now.wall_ms - one.wall_ms <= WINDOW_MS]
    oldest = within[0] if within else same[-1] if same else now  # after a longer pause the last look counts
    if (over_ms := now.wall_ms - oldest.wall_ms) < LEAST_MS:
        return Unknown.because("disk", f"growth needs two samples at least {format_duration(LEAST_MS)} apart")
    grown, left = now.used_bytes - oldest.used_bytes, now.total_bytes - now.used_bytes
    full_in_ms = 0 if left <= 0 else left * over_ms // grown if grown > 0 else None
    return Growth(grown * DAY_MS // over_ms, over_ms, full_in_ms)


def pack(samples: Iterable[DiskSample]) -> bytes:
    """Return looks, oldest first, as bytes. If there are too many they are thinned: the older, the farther apart."""
    return b"".join(_ROW.pack(*one) for one in _thinned(list(samples)))


def _thinned(samples: Sequence[DiskSample]) -> Sequence[DiskSample]:
    return samples if len(samples) <= DISK_SAMPLES_AT_MOST else thinned_by_age(samples)


def _lowered(samples: Sequence[DiskSample]) -> list[DiskSample]:
    """Return thinned looks: the used bytes of one that is dropped go to the next at that total size, if it has more."""
    left, found = frozenset(_thinned(samples)), list[DiskSample]()
    least: dict[int, int] = {}  # of the looks dropped since the last one that was kept, by total size
    for one in samples:
        used_bytes = min(one.used_bytes, least.pop(one.total_bytes, one.used_bytes))
        if one in left:
            found.append(one._replace(used_bytes=used_bytes))
        else:
            least[one.total_bytes] = used_bytes
    return found


def unpack(packed: bytes) -> tuple[DiskSample, ...]:
    """Return the looks that :func:`pack` packed.

    Raises:
        ValueError: they are cut short.
    """
    if len(packed) % DISK_SAMPLE_BYTES:
        raise ValueError("looks at a disk are cut short")
    return tuple(DiskSample(*row) for row in _ROW.iter_unpack(packed))
