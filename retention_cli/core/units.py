"""Parse and format durations, sizes and times."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_BYTES: Final = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "PiB": 2**50,
}
_QUANTITY: Final = re.compile(r"\s*([0-9]{1,300}(?:\.[0-9]{1,300})?)\s*([A-Za-z]{1,4})\s*")


_LONGEST_SHOWN: Final = 60


class UnitError(ValueError):
    """The text is not a quantity, or its unit is missing or wrong."""


def parse_duration_ms(text: str) -> int:
    """Return a duration such as ``3d``, ``12h``, ``90s`` or ``1.5h`` in milliseconds, an integer.

    Raises:
        UnitError: it can't be parsed; the text names the valid units.
    """
    return _parse(text, _MS, "a duration such as 3d, 12h, 30m, 90s or 500ms")


def parse_bytes(text: str) -> int:
    """Return a size such as ``50GiB`` or ``10MB`` in bytes.

    Raises:
        UnitError: it can't be parsed; the text names the valid units.
    """
    return _parse(text, _BYTES, "a size such as 50GiB, 512MiB or 10GB")


def _parse(text: str, units: dict[str, int], wanted: str) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in units:
        raise UnitError(f"{_shown(text)} is not {wanted}")
    amount = Fraction(match[1]) * units[match[2]]
    if amount.denominator != 1:
        raise UnitError(f"{_shown(text)} is not a whole number of {'milliseconds' if units is _MS else 'bytes'}")
    return int(amount)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…")


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 record``, ``1,200 records``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def some_of(names: Sequence[str], most: int = 3, noun: str = "") -> str:
    """Return the first few names, and how many more there are: ``a, b and 3 more topics``."""
    left = len(names) - most
    more = count(left, f"more {noun}") if noun else f"{left:,} more"
    return ", ".join(names[:most]) + (f" and {more}" if left > 0 else "")


def format_duration(ms: int) -> str:
    """Return milliseconds in the largest unit that divides them: ``3 d``, ``90 s``, ``1,500 ms``."""
    unit = next((one for one in ("d", "h", "m", "s") if ms and ms % _MS[one] == 0), "ms")
    return f"{ms // _MS[unit]:,} {unit}"


def exact_duration(ms: int) -> str:
    """Return a duration as in a policy file, without rounding: ``7d``, ``90m``, ``1500ms``."""
    return format_duration(ms).replace(" ", "").replace(",", "")


def format_age(ms: int) -> str:
    """Return milliseconds in the largest unit that fits and the next one: ``2d 10h``, ``1h``, ``45s``, ``5ms``."""
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, ms = divmod(ms, _MS[unit])
        if count:
            parts.append(f"{count:,}{unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or f"{ms}ms"


LAST_DATE_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last that a calendar supports. A timestamp in microseconds is beyond it."""


def parse_time_ms(text: str) -> int:
    """Return a moment as Unix ms: ISO 8601 (``2026-11-01T00:00:00Z``; the zone is required) or decimal Unix ms.

    Raises:
        UnitError: it is neither.
    """
    stripped = text.strip()
    if re.fullmatch(r"[0-9]{1,30}", stripped):
        return int(stripped)
    try:
        moment = dt.datetime.fromisoformat(stripped)
    except ValueError:
        raise UnitError(
            f"{_shown(text)} is not a time: give ISO 8601, such as 2026-11-01T00:00:00Z, or Unix ms"
        ) from None
    if moment.tzinfo is None:
        raise UnitError(f"{_shown(text)} names no time zone: add Z for UTC, or an offset such as +02:00")
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


def format_time(ms: int) -> str:
    """Return Unix ms as ISO 8601 in UTC, to the second if that is exact: ``2026-11-01T00:00:00Z``."""
    if not 0 <= ms <= LAST_DATE_MS:
        return f"{ms} ms (no date: microseconds?)" if ms > LAST_DATE_MS else f"{ms} ms"
    return timestamp(ms).replace(".000Z", "Z")


def format_bytes(size: int) -> str:
    """Return bytes in binary units, three significant digits: ``1.21 GiB``."""
    if size < 1024:
        return f"{size} B"
    amount, unit = size / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB", "PiB"):
        if amount < 1000:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.{max(0, 3 - len(str(int(amount))))}f} {unit}"


def timestamp(ms: int) -> str:
    """Return Unix ms as ISO 8601 in UTC, to the millisecond."""
    moment = dt.datetime.fromtimestamp(ms // 1000, dt.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"
