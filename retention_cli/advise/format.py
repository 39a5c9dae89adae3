"""Format durations and moments as text: rounded (``1d 2h``), or exact (``90m``)."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Final

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
MIB: Final = 1 << 20

_UNITS: Final = (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", 1))
LAST_DATE_MS: Final = 253_402_300_799_999
"""The end of the year 9999. A timestamp in microseconds lies beyond it."""


def span(ms: int) -> str:
    """Return a duration in its two largest units, rounded: ``1d 2h``, ``25m``, ``40s``."""
    if ms < SECOND:
        return f"{ms}ms"
    for (large, large_ms), (small, small_ms) in itertools.pairwise(_UNITS[:-1]):
        rounded = (ms + small_ms // 2) // small_ms * small_ms
        if rounded >= large_ms:
            count, rest = divmod(rounded, large_ms)
            return f"{count:,}{large} {rest // small_ms}{small}" if rest else f"{count:,}{large}"
    return f"{round(ms / SECOND)}s"


def exact(ms: int) -> str:
    """Return a duration as in a policy file, without rounding: ``7d``, ``90m``, ``1500ms``."""
    unit, unit_ms = next((unit, unit_ms) for unit, unit_ms in _UNITS if ms % unit_ms == 0)
    return f"{ms // unit_ms}{unit}" if ms else "0ms"


def moment(ms: int) -> str:
    """Return a moment in Unix ms as ISO 8601 in UTC, to the second; only its year if that is beyond 9999."""
    if ms > LAST_DATE_MS:
        return f"the year {1970 + ms // 31_556_952_000:,}"
    return f"{dt.datetime.fromtimestamp(max(0, ms) // 1000, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
