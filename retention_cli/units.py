"""Durations and sizes as people write them, and back."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_MS: Final = {
    "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000,
}  # fmt: skip
_BYTES: Final = {
    "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50,
}  # fmt: skip
_QUANTITY: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


class UnitError(ValueError):
    """A quantity without a unit, with a wrong one, or no quantity at all."""


def parse_duration_ms(text: str) -> int:
    """Return a duration such as ``3d``, ``12h``, ``90s`` or ``1.5h`` in whole milliseconds.

    Raises:
        UnitError: it is none; the text names the units there are.
    """
    return _parse(text, _MS, "a duration such as 3d, 12h, 30m, 90s or 500ms")


def parse_bytes(text: str) -> int:
    """Return a size such as ``50GiB`` or ``10MB`` in bytes.

    Raises:
        UnitError: it is none; the text names the units there are.
    """
    return _parse(text, _BYTES, "a size such as 50GiB, 512MiB or 10GB")


def _parse(text: str, units: dict[str, int], wanted: str) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in units:
        raise UnitError(f"{text!r} is not {wanted}")
    amount = Decimal(match[1]) * units[match[2]]
    if amount != int(amount):
        raise UnitError(f"{text!r} is not a whole number of {'milliseconds' if units is _MS else 'bytes'}")
    return int(amount)


def format_duration(ms: int) -> str:
    """Return milliseconds in the largest unit that divides them: ``3 d``, ``90 s``, ``1,500 ms``."""
    for unit in ("d", "h", "m", "s"):
        if ms and ms % _MS[unit] == 0:
            return f"{ms // _MS[unit]:,} {unit}"
    return f"{ms:,} ms"


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
