"""The event time of one record: its timestamp, a header, or a field of its JSON value (R2). Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from retention_cli.core.units import UnitError, parse_time_ms
from retention_cli.policy.settings import EventSource

_MAX_TIME_MS: Final = 2**63 - 1
_LONGEST_TEXT: Final = 64


def read_time(source: EventSource, timestamp_ms: int, headers: Any, value: bytes | None) -> int | None:
    """Return a record's event time (Unix ms), None if it has no readable one.

    ``headers`` are (name, bytes) pairs or None. Of headers of one name the last counts, as in Kafka's own clients.
    """
    match source.kind:
        case "timestamp":
            return timestamp_ms if timestamp_ms >= 0 else None
        case "header":
            raw = None
            for name, content in headers or ():
                if name == source.name:
                    raw = content
            return _time_in_text(raw)
        case "json":
            return _time_in_json(source.name, value)


def _time_in_text(raw: bytes | None) -> int | None:
    if raw is None:
        return None
    if len(raw) > _LONGEST_TEXT:  # no time is that long, and Python refuses to parse thousands of digits
        return None
    if raw.isdigit():  # the usual case, and the fastest
        time_ms = int(raw)
        return time_ms if time_ms <= _MAX_TIME_MS else None
    try:
        time_ms = parse_time_ms(raw.decode("utf-8"))
    except (UnicodeDecodeError, UnitError, OverflowError, ValueError):
        return None
    return time_ms if 0 <= time_ms <= _MAX_TIME_MS else None


def _time_in_json(pointer: str, value: bytes | None) -> int | None:
    if value is None:
        return None
    try:
        found: Any = json.loads(value)
        for token in pointer.split("/")[1:]:
            name = token.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(name)] if name.isascii() and name.isdigit() else None
            else:
                found = found[name]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    if isinstance(found, str):
        return _time_in_text(found.encode("utf-8", "replace"))
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    if found != found or found in (float("inf"), float("-inf")) or found != int(found):  # noqa: PLR0124  (NaN)
        return None
    return int(found) if 0 <= found <= _MAX_TIME_MS else None
