"""Packed samples of the high watermark over time, from which G3 knows when records were written. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from retention_cli.core.model import Sample

SAMPLES_AT_MOST: Final = 64
SAMPLE: Final = struct.Struct("<qq")
"""How one is packed: the wall clock (Unix ms), and H."""
SAMPLE_BYTES: Final = SAMPLE.size
_THINNED_TO: Final = 40
Row = TypeVar("Row", bound=tuple[int, ...])


def both_samples(packed: bytes, other: bytes) -> bytes:
    """Return the samples of both. Usually one continues the other."""
    if packed.startswith(other):
        return packed
    if other.startswith(packed):
        return other
    # Of two in one millisecond the lower counts as the later: a fall must not be missed.
    samples = sorted({*unpack(packed), *unpack(other)}, key=lambda one: (one.wall_ms, -one.high_watermark))
    samples = without_repeats(samples)
    return pack(thinned(samples) if len(samples) > SAMPLES_AT_MOST else samples)


def samples_below(samples: Sequence[Sample], cut: int) -> list[Sample]:
    """Return the samples of a log that was cut: those above ``cut`` become ``cut``, as all below it existed then."""
    return without_repeats([one._replace(high_watermark=min(one.high_watermark, cut)) for one in samples])


def without_repeats(samples: Sequence[Sample]) -> list[Sample]:
    """Drop samples that only repeat the high watermark before them."""
    return [
        one
        for number, one in enumerate(samples)
        if not number or one.high_watermark != samples[number - 1].high_watermark
    ]


def pack(samples: Iterable[Sample]) -> bytes:
    """Return samples as bytes: wall clock and high watermark, 8 bytes each, little-endian."""
    return b"".join(SAMPLE.pack(*one) for one in samples)


def unpack(packed: bytes) -> tuple[Sample, ...]:
    """Return the samples that :func:`pack` packed.

    Raises:
        ValueError: they are cut short.
    """
    if len(packed) % SAMPLE_BYTES:
        raise ValueError("samples are cut short")
    return tuple(map(Sample._make, SAMPLE.iter_unpack(packed)))


def last(packed: bytes) -> Sample:
    """Return the newest of packed samples; there must be at least one."""
    return Sample(*SAMPLE.unpack_from(packed, len(packed) - SAMPLE_BYTES))


def seen_past(packed: bytes, offset: int) -> int | None:
    """Return since when H was seen past an offset without a break (wall clock, Unix ms); None if it is not."""
    since = None
    for start in range(len(packed) - SAMPLE_BYTES, -1, -SAMPLE_BYTES):
        wall_ms, high_watermark = SAMPLE.unpack_from(packed, start)
        if high_watermark <= offset:
            break
        since = wall_ms
    return since


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """Return fewer samples, the oldest and the newest among them: the older, the farther apart.

    Dropping one never makes an answer wrong, only a bound lower (G3).
    """
    return thinned_by_age(without_falls(samples))


def thinned_by_age(rows: Sequence[Row]) -> list[Row]:
    """Return at most 40 rows, the oldest and the newest among them: the older, the farther apart.

    Each begins with its time (Unix ms); they are sorted by that. One is dropped if its distance from the next is less
    than a share of its age.
    """
    now, share = rows[-1][0], 0.05
    while True:
        kept = [rows[-1]]
        for row in reversed(rows[1:-1]):
            if kept[-1][0] - row[0] >= share * (now - row[0]):
                kept.append(row)
        if len(rows) > 1:
            kept.append(rows[0])
        if len(kept) <= _THINNED_TO:
            return kept[::-1]
        share *= 1.5


def without_falls(samples: Sequence[Sample]) -> list[Sample]:
    """Return equivalent samples whose high watermarks only rise.

    If a high watermark fell, records were lost and others may have their offsets now: earlier samples count only up to
    what was left. Of equal ones the earliest is kept.
    """
    rising: list[Sample] = []
    ceiling = samples[-1].high_watermark
    for sample in reversed(samples):
        ceiling = min(ceiling, sample.high_watermark)
        if rising and rising[-1].high_watermark == ceiling:
            rising.pop()
        rising.append(sample._replace(high_watermark=ceiling))
    return rising[::-1]
