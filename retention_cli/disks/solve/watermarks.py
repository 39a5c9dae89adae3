"""R7: a disk that fills shortens the times of what lies on it (R7). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from retention_cli.core.model import Maybe, Unknown, Usage, Watermark


def reached(watermarks: Sequence[Watermark], used_bytes: int, total_bytes: int) -> Watermark | None:
    """Return the highest watermark that a disk's usage has reached, None where it has reached none.

    Raises:
        ValueError: a disk without room.
    """
    if total_bytes <= 0:
        raise ValueError(f"a disk of {total_bytes} bytes")
    percent = Fraction(100 * used_bytes, total_bytes)
    above = [mark for mark in watermarks if percent >= Fraction(str(mark.percent))]
    return max(above, key=lambda mark: mark.percent, default=None)


def usage_for(
    watermarks: Sequence[Watermark], disks: Iterable[tuple[str, Maybe[tuple[int, int]]]]
) -> Maybe[Usage | None]:
    """Return the highest watermark reached on any disk with a replica of a partition, None for none.

    Args:
        watermarks: the policy's.
        disks: each disk's name and its (used, total) bytes. One that is unknown may be full: where no other has
            reached a mark, none is known to be reached. Where one has, at least that mark is.
    """
    highest: Usage | None = None
    unknown: Unknown | None = None
    for name, state in disks:
        if isinstance(state, Unknown):
            unknown = unknown or state
            continue
        mark = reached(watermarks, *state)
        if mark is not None and (highest is None or mark.percent > highest.mark.percent):
            highest = Usage(name, 100 * state[0] / state[1], mark)
    return unknown if highest is None and unknown is not None and watermarks else highest
