"""The types of a policy's values: durations and sizes with or without a unit, patterns, words.

A number is what the key's name says (``.ms``, ``.hours``); a string with a unit is taken anywhere.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from retention_cli.policy.archive_url import NONE, ArchiveUrlError, check_url
from retention_cli.policy.settings import event_source
from retention_cli.units import UnitError, parse_bytes, parse_duration_ms, parse_time_ms

_DURATION_PATTERN = r"^\s*\d+(\.\d+)?\s*(ms|s|m|min|h|d|w)\s*$"
_DIR = re.compile(r"(\d+:)?[^:]*[/\\].*")
_BYTES_PATTERN = r"^\s*\d+(\.\d+)?\s*([KMGTP]i?)?B\s*$"


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _duration(unit_ms: int, *, infinite: bool = False) -> Callable[[object], int]:
    def read(value: object) -> int:
        if _is_number(value):
            assert isinstance(value, int)  # noqa: S101  (for the type checker)
            if infinite and value == -1:
                return -1
            if value < 0:
                raise ValueError(f"{value} is negative")
            return value * unit_ms
        if isinstance(value, str):
            try:
                return parse_duration_ms(value)
            except UnitError as error:
                raise ValueError(str(error)) from None
        raise ValueError(f"{_shown(value)} is not a duration: give a whole number, or a string such as '3d'")

    return read


def _bytes(value: object) -> int:
    if _is_number(value):
        assert isinstance(value, int)  # noqa: S101  (for the type checker)
        if value < 0:
            raise ValueError(f"{value} is negative")
        return value
    if isinstance(value, str):
        try:
            return parse_bytes(value)
        except UnitError as error:
            raise ValueError(str(error)) from None
    raise ValueError(f"{_shown(value)} is not a size: give a whole number of bytes, or a string such as '50GiB'")


def _percent(value: object) -> float:
    if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value)):
        value = float(match[1])
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 100:
        raise ValueError(f"{_shown(value)} is not a percentage from 0 to 100")
    return float(value)


def _size_or_none(value: object) -> int:
    """Kafka's own word for no limit is −1."""
    return -1 if _is_number(value) and value == -1 else _bytes(value)


def _ceiling(value: object) -> float:
    percent = _percent(value)
    if percent == 0:
        raise ValueError("0 % would ask for everything on the disk: 100 is off")
    return percent


def _factor(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise ValueError(f"{_shown(value)} is not a factor: more than 0, and at most 1")
    return float(value)


def _sizes_by_dir(value: object) -> dict[str, int]:
    """Read one size for all disks, or one per ``DIR`` or ``BROKER:DIR``."""
    if not isinstance(value, dict):
        return {"*": _bytes(value)}
    for key in value:
        if not isinstance(key, str) or _DIR.fullmatch(key) is None:
            raise ValueError(f"{_shown(key)} is not a log dir: write it as the broker does, /data, or 1:/data")
    return {key: _bytes(size) for key, size in value.items()}


def _devices(value: object) -> list[list[str]]:
    if not isinstance(value, list) or not all(isinstance(one, list) and len(one) > 1 for one in value):
        raise ValueError("give a list per device of the log dirs that are on it, such as [[/data/a, /data/b]]")
    dirs = [one for device in value for one in device]
    for one in dirs:
        if not isinstance(one, str) or _DIR.fullmatch(one) is None:
            raise ValueError(f"{_shown(one)} is not a log dir: write it as the broker does, /data, or 1:/data")
        if dirs.count(one) > 1:
            raise ValueError(f"{one} is on two devices")
    return [list(one) for one in value]


def _paths(value: object) -> list[str]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not found or not all(isinstance(one, str) and one.strip() for one in found):
        raise ValueError("give a file, a folder or a glob, or a list of these, such as inventory/*.parquet")
    return list(found)


def _count(minimum: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if not _is_number(value):
            raise ValueError(f"{_shown(value)} is not a whole number")
        assert isinstance(value, int)  # noqa: S101  (for the type checker)
        if value < minimum:
            raise ValueError(f"{value} is less than {minimum}")
        return value

    return read


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{_shown(value)} is not true or false")


def _word(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ValueError(f"{_shown(value)} is not {' or '.join(words)}")

    return read


_MAX_TIME_MS = 2**63 - 1


def _time(value: object) -> int:
    if isinstance(value, dt.datetime):  # YAML takes an unquoted ISO 8601 time for one
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} names no time zone: add Z for UTC, or an offset such as +02:00")
        value = value.isoformat()
    elif isinstance(value, dt.date):
        raise ValueError(f"{value} is a date: give a time of it too, such as {value}T00:00:00Z")  # noqa: TRY004
    if isinstance(value, str):
        try:
            return parse_time_ms(value)
        except UnitError as error:
            raise ValueError(str(error)) from None
    if not _is_number(value):
        raise ValueError(f"{_shown(value)} is not a time: give ISO 8601, such as 2026-11-01T00:00:00Z, or Unix ms")
    assert isinstance(value, int)  # noqa: S101  (for the type checker)
    if not 0 <= value <= _MAX_TIME_MS:
        raise ValueError(f"{value} is not a time in Unix ms")
    return value


def _event_source(value: object) -> str:
    if isinstance(value, str):
        try:
            event_source(value)
        except UnitError as error:
            raise ValueError(str(error)) from None
        return value
    raise ValueError(f"{_shown(value)} is not timestamp, header:NAME or json:/pointer")


def _archive_url(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is not a URL: give a path such as /archive, or s3://bucket/folder")  # noqa: TRY004
    if value == NONE:
        return value
    try:
        return check_url(value)
    except ArchiveUrlError as error:
        raise ValueError(str(error)) from None


def _text(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise ValueError("give the reason, as text")


def _patterns(value: object) -> list[str]:
    found = _names(value)
    for pattern in found:
        if pattern.startswith("re:"):
            try:
                re.compile(pattern[3:])
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return found


def _names(value: object) -> list[str]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list):
        raise ValueError(f"{_shown(value)} is not a name or a list of names")  # noqa: TRY004  (pydantic wants ValueError)
    for name in values:
        if not isinstance(name, str) or not name:
            raise ValueError(f"{_shown(name)} is not a name (quote it, if it is one that YAML takes for a number)")
    return list(values)


def _topic_patterns(value: object) -> list[str]:
    found = _patterns(value)
    if not found:
        raise ValueError("is empty: name a topic, a glob such as 'orders.*', or '*' for all")
    return found


def _shown(value: object) -> str:
    return "nothing (null)" if value is None else repr(value)


def _schema(unit: str, *, infinite: bool = False) -> dict[str, Any]:
    number = {"type": "integer", "minimum": -1 if infinite else 0, "description": unit}
    return {"anyOf": [number, {"type": "string", "pattern": _DURATION_PATTERN, "description": "such as 3d or 12h"}]}


_STRINGS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}

Milliseconds = Annotated[int, BeforeValidator(_duration(1)), WithJsonSchema(_schema("milliseconds"))]
RetentionMs = Annotated[
    int,
    BeforeValidator(_duration(1, infinite=True)),
    WithJsonSchema(_schema("milliseconds, -1 for none", infinite=True)),
]
Minutes = Annotated[int, BeforeValidator(_duration(60_000)), WithJsonSchema(_schema("minutes"))]
Hours = Annotated[int, BeforeValidator(_duration(3_600_000)), WithJsonSchema(_schema("hours"))]
Bytes = Annotated[
    int,
    BeforeValidator(_bytes),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _BYTES_PATTERN}]}),
]
Percent = Annotated[
    float,
    BeforeValidator(_percent),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 100},
                {"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$"},
            ]
        }
    ),
]
_SIZE: dict[str, Any] = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _BYTES_PATTERN}]}
RetentionBytes = Annotated[
    int,
    BeforeValidator(_size_or_none),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": -1}, {"type": "string", "pattern": _BYTES_PATTERN}]}),
]
Ceiling = Annotated[
    float,
    BeforeValidator(_ceiling),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": 100},
                {"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$"},
            ]
        }
    ),
]
Factor = Annotated[
    float, BeforeValidator(_factor), WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 1})
]
SizesByDir = Annotated[
    dict[str, int],
    BeforeValidator(_sizes_by_dir),
    WithJsonSchema({"anyOf": [*_SIZE["anyOf"], {"type": "object", "additionalProperties": _SIZE}]}),
]
Paths = Annotated[
    list[str],
    BeforeValidator(_paths),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
            ]
        }
    ),
]
Devices = Annotated[
    list[list[str]],
    BeforeValidator(_devices),
    WithJsonSchema({"type": "array", "items": {"type": "array", "items": {"type": "string"}, "minItems": 2}}),
]
RecordOrSegment = Annotated[
    str, BeforeValidator(_word("record", "segment")), WithJsonSchema({"enum": ["record", "segment"]})
]
TimeMs = Annotated[
    int,
    BeforeValidator(_time),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "description": "Unix milliseconds"},
                {"type": "string", "description": "ISO 8601, such as 2026-11-01T00:00:00Z"},
            ]
        }
    ),
]
Source = Annotated[
    str,
    BeforeValidator(_event_source),
    WithJsonSchema({"type": "string", "pattern": r"^(timestamp|header:.+|json:(/.*)?)$"}),
]
HoldOrSkip = Annotated[str, BeforeValidator(_word("hold", "skip")), WithJsonSchema({"enum": ["hold", "skip"]})]
LocalOrCluster = Annotated[
    str, BeforeValidator(_word("local", "cluster")), WithJsonSchema({"enum": ["local", "cluster"]})
]
Flag = Annotated[bool, BeforeValidator(_flag), WithJsonSchema({"type": "boolean"})]
HoldOrTrim = Annotated[str, BeforeValidator(_word("hold", "trim")), WithJsonSchema({"enum": ["hold", "trim"]})]
SkipOrTrim = Annotated[str, BeforeValidator(_word("skip", "trim")), WithJsonSchema({"enum": ["skip", "trim"]})]
Text = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": "string", "minLength": 1})]
ArchiveUrl = Annotated[
    str,
    BeforeValidator(_archive_url),
    WithJsonSchema({"type": "string", "pattern": r"^(none|/.*|(file|s3|hdfs|viewfs|gs|gcs)://[^@]+)$"}),
]
Names = Annotated[list[str], BeforeValidator(_names), WithJsonSchema(_STRINGS)]
Patterns = Annotated[list[str], BeforeValidator(_patterns), WithJsonSchema(_STRINGS)]
TopicPatterns = Annotated[list[str], BeforeValidator(_topic_patterns), WithJsonSchema(_STRINGS)]
Count = Annotated[int, BeforeValidator(_count(0)), WithJsonSchema({"type": "integer", "minimum": 0})]
PositiveCount = Annotated[int, BeforeValidator(_count(1)), WithJsonSchema({"type": "integer", "minimum": 1})]
