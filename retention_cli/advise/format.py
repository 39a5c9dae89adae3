"""Format durations and moments as text: rounded (``1d 2h``), or exact (``90m``)."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Final

from retention_cli.core.units import format_age, format_duration

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
MIB: Final = 1 << 20

LAST_DATE_MS: Final = 253_402_300_799_999
"""The end of the year 9999. A timestamp in microseconds lies beyond it."""


def span(ms: int) -> str:
    """Return a duration in its two largest units, rounded: ``1d 2h``, ``25m``, ``40s``."""
    if ms < SECOND:
        return f"{ms}ms"
    for large_ms, small_ms in itertools.pairwise((DAY, HOUR, MINUTE, SECOND)):
        rounded = (ms + small_ms // 2) // small_ms * small_ms
        if rounded >= large_ms:
            return format_age(rounded)
    return f"{round(ms / SECOND)}s"


def exact(ms: int) -> str:
    """Return a duration as in a policy file, without rounding: ``7d``, ``90m``, ``1500ms``."""
    return format_duration(ms).replace(" ", "").replace(",", "")


def moment(ms: int) -> str:
    """Return a moment in Unix ms as ISO 8601 in UTC, to the second; only its year if that is beyond 9999."""
    if ms > LAST_DATE_MS:
        return f"the year {1970 + ms // 31_556_952_000:,}"
    return f"{dt.datetime.fromtimestamp(max(0, ms) // 1000, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
