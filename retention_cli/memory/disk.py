"""What is remembered of a disk: how much of it was in use, and when; so, how fast it grows. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from retention_cli.core.model import Maybe, Unknown
from retention_cli.core.units import format_duration

LOOKS_AT_MOST: Final = 64
_THINNED_TO: Final = 40
_APART_MS: Final = 60_000
"""Looks that are closer together say nothing new: a trim looks before each batch."""
LEAST_MS: Final = 300_000
"""Growth is told from looks that are so far apart at least."""
WINDOW_MS: Final = 7 * 86_400_000
"""... and over so much time at the most."""
DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_LAST: Final = 3
"""So many looks count at least, however long ago they were."""
_ROW: Final = struct.Struct("<3q")
LOOK_BYTES: Final = _ROW.size


class Look(NamedTuple):
    """How many of a disk's bytes were in use, by our wall clock (Unix ms)."""

    wall_ms: int
    used_bytes: int
    total_bytes: int


class Growth(NamedTuple):
    """How fast a disk grows, net of all that was deleted: bytes a day (negative: it shrinks), over ``over_ms``.

    ``full_in_ms`` is when it is full if that goes on; None where it does not grow.
    """

    bytes_per_day: int
    over_ms: int
    full_in_ms: int | None


@dataclass(slots=True)
class DiskMemory:
    """The looks at one disk, oldest first, packed (:func:`unpack`)."""

    packed: bytes = b""
    changed: bool = False

    @property
    def looks(self) -> tuple[Look, ...]:
        """The looks, oldest first."""
        return unpack(self.packed)

    def add(self, look: Look) -> None:
        """Remember a look. One right after the last is dropped, and so is one before it: a clock was set back."""
        looks = self.looks
        same_size = [one for one in looks if one.total_bytes == look.total_bytes]
        if (not same_size or look.wall_ms - same_size[-1].wall_ms >= _APART_MS) and (not looks or look >= looks[-1]):
            self.packed, self.changed = pack([*looks, look]), True

    def add_lowest(self, look: Look) -> None:
        """Remember a look; one right after the last counts too where less was in use then."""
        before = self.packed
        self.add(look)
        looks = self.looks
        if self.packed == before and looks and look.wall_ms >= looks[-1].wall_ms:
            last = looks[-1]
            if last.total_bytes == look.total_bytes and look.used_bytes < last.used_bytes:
                self.packed, self.changed = pack([*looks[:-1], last._replace(used_bytes=look.used_bytes)]), True

    def take(self, other: DiskMemory) -> None:
        """Take over what somebody else remembers too."""
        self.packed = self.merged(other).packed

    def merged(self, other: DiskMemory) -> DiskMemory:
        """Return what both remember: the same, whichever is asked."""
        if self.packed.startswith(other.packed):
            return DiskMemory(self.packed)
        if other.packed.startswith(self.packed):
            return DiskMemory(other.packed)
        return DiskMemory(pack(sorted({*self.looks, *other.looks})))

    def covers(self, other: DiskMemory) -> bool:
        """Return whether the other knows nothing that this one doesn't."""
        return self.merged(other).packed == self.packed


def growth(looks: Sequence[Look], now: Look) -> Maybe[Growth]:
    """Return how fast a disk grows: from the oldest look of the last seven days to now.

    Looks from when the disk had another size, by its broker or by the policy, do not count. Unknown until one is old
    enough.
    """
    same = [one for one in looks if one.wall_ms <= now.wall_ms and one.total_bytes == now.total_bytes]
    within = [one for one in same if now.wall_ms - one.wall_ms <= WINDOW_MS]
    oldest = within[0] if within else same[-1] if same else now  # after a longer pause the last look counts
    over_ms = now.wall_ms - oldest.wall_ms
    if over_ms < LEAST_MS:
        text = f"how fast it grows is told from two looks at least {format_duration(LEAST_MS)} apart: look again later"
        return Unknown.because("disk", text)
    grown = now.used_bytes - oldest.used_bytes
    full_in_ms = None
    if now.used_bytes >= now.total_bytes:
        full_in_ms = 0
    elif grown > 0:
        full_in_ms = (now.total_bytes - now.used_bytes) * over_ms // grown
    return Growth(grown * DAY_MS // over_ms, over_ms, full_in_ms)


def lowest(looks: Sequence[Look], now: Look, over_ms: int) -> int | None:
    """Return the smallest amount that was in use over more than ``over_ms`` until now; None where that is not known.

    The looks of the last hour count, or of ten times as long as ``over_ms``, and the last three before now. Looks from
    when the disk had another size do not.
    """
    same = [one for one in looks if one.wall_ms <= now.wall_ms and one.total_bytes == now.total_bytes]
    window_ms = max(_HOUR_MS, 10 * over_ms)
    first = next((n for n, one in enumerate(same) if now.wall_ms - one.wall_ms <= window_ms), len(same))
    counted = same[max(0, min(first, len(same) - _LAST)) :]
    if not counted or now.wall_ms - counted[0].wall_ms <= over_ms:
        return None
    return min(one.used_bytes for one in (*counted, now))


def pack(looks: Iterable[Look]) -> bytes:
    """Return looks, oldest first, as bytes; of too many fewer: the older, the farther apart."""
    kept = list(looks)
    share = 0.05
    while len(kept) > (LOOKS_AT_MOST if share == 0.05 else _THINNED_TO):
        kept, share = _thinned(kept, share), share * 1.5
    return b"".join(_ROW.pack(*one) for one in kept)


def _thinned(looks: Sequence[Look], share: float) -> list[Look]:
    """Drop looks whose distance from the next one is less than a share of their age; the first and the last stay."""
    kept = [looks[-1]]
    for look in reversed(looks[1:-1]):
        if kept[-1].wall_ms - look.wall_ms >= share * (looks[-1].wall_ms - look.wall_ms):
            kept.append(look)
    return [looks[0], *kept[::-1]]


def unpack(packed: bytes) -> tuple[Look, ...]:
    """Return :func:`pack`'s looks.

    Raises:
        ValueError: they are none.
    """
    if len(packed) % LOOK_BYTES:
        raise ValueError("looks at a disk are cut short")
    return tuple(Look(*row) for row in _ROW.iter_unpack(packed))
