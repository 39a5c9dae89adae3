"""The event time of one record, from where the policy says that it is (R2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from retention_cli.core.json_values import at, tokens_of
from retention_cli.core.units import UnitError, parse_time_ms
from retention_cli.policy.settings import EventSource

if TYPE_CHECKING:  # only code that needs registered schemas imports it
    from retention_cli.brokers.schemas import SchemaRegistry

_MAX_TIME_MS: Final = 2**63 - 1
_LONGEST_TEXT: Final = 64
_FRAME: Final = 5
"""The bytes before JSON that a registry's serializer writes: a zero byte, and the schema's id."""


def read_time(
    source: EventSource, timestamp_ms: int, headers: Any, value: bytes | None, schemas: SchemaRegistry | None
) -> int | None:
    """Return a record's event time (Unix ms), None if it has no readable one.

    ``headers`` are (name, bytes) pairs or None. Of headers of one name the last counts, as in Kafka's own clients.
    ``schemas`` is the registry with the schemas of Avro and Protobuf values.

    Raises:
        SchemaError: a value's schema can't be fetched or used, so its event time is unknown.
        MissingPartError: the library that reads such values is not installed.
    """
    match source.kind:
        case "timestamp":
            return timestamp_ms if timestamp_ms >= 0 else None
        case "header":
            return _time_in_text(dict(headers or ()).get(source.name))
        case "json":
            return _time(_in_json(value, tokens_of(source.name)))
        case "avro" | "protobuf":
            return None if schemas is None else _time(schemas.value(source.kind, value, tokens_of(source.name)))


def _time_in_text(raw: bytes | None) -> int | None:
    if raw is None or len(raw) > _LONGEST_TEXT:  # no time is that long, and Python refuses to parse thousands of digits
        return None
    try:  # digits are the usual case, and the fastest
        time_ms = int(raw) if raw.isdigit() else parse_time_ms(raw.decode("utf-8"))
    except (UnicodeDecodeError, UnitError, OverflowError, ValueError):
        return None
    return time_ms if 0 <= time_ms <= _MAX_TIME_MS else None


def _in_json(value: bytes | None, tokens: Sequence[str]) -> Any:
    if value is None:
        return None
    try:
        try:
            found = json.loads(value)
        except ValueError:
            if not value.startswith(b"\0"):
                return None
            found = json.loads(value[_FRAME:])
        return at(found, tokens)
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _time(found: Any) -> int | None:
    if isinstance(found, str):
        return _time_in_text(found.encode("utf-8", "replace"))
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    if found != found or found in (float("inf"), float("-inf")) or found != int(found):  # noqa: PLR0124  (NaN)
        return None
    return int(found) if 0 <= found <= _MAX_TIME_MS else None
