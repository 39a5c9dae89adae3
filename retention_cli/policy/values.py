"""The types of a policy's values: how each is read, and what its JSON Schema says to editors. Pure.

A reader takes what YAML or JSON made of a value, and gives it in our units: a number is what the key's name says
(``.ms``, ``.hours``), a string with a unit is taken anywhere. All of them raise ValueError, which pydantic wants, and
repeat no more than 80 characters of what is wrong.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlsplit

from pydantic import BeforeValidator, WithJsonSchema

from retention_cli.core.printable import short, shown
from retention_cli.core.units import parse_bytes, parse_duration_ms, parse_time_ms
from retention_cli.policy.errors import ItemsError
from retention_cli.policy.model import compiled
from retention_cli.policy.settings import EVENT_SOURCES, event_source
from retention_cli.policy.urls import NONE, SCHEMES, check_url

TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_NOT_FOR_AUDIT: Final = ("_kretain_policy", "_kretain_state", "_kretain_protected")
_HTTP: Final = ("http", "https")
_COUNT: Final = re.compile(r"(\d{1,15})([kMG])")
_LARGEST: Final = 2**63 - 1  # what Kafka's protocol has room for, in ms and in bytes

Item = tuple[tuple[str | int, ...], str]
_T = TypeVar("_T")


def right(found: _T, wrong: list[Item]) -> _T:
    """Return a value whose parts were read, if none of them is wrong; raise all problems otherwise."""
    if wrong:
        raise ItemsError(wrong)
    return found


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def quantity_reader(
    parse: Callable[[str], int], wanted: str, *, unit: int = 1, least: int = 0
) -> Callable[[object], int]:
    """Return what reads a quantity: a number is in ``unit``, a string has its own unit and is parsed.

    ``least`` is the smallest; −1 is Kafka's value for no limit.
    """

    def read(value: object) -> int:
        if (number := _number(value)) is not None:
            amount = number if number == -1 == least else number * unit
        elif isinstance(value, str):
            amount = parse(short(value))
        else:
            raise ValueError(f"{shown(value)} is not {wanted}")
        if amount < min(least, 0):
            raise ValueError(f"{shown(value)} is negative")
        if amount > _LARGEST:
            raise ValueError(f"{shown(value)} is more than Kafka allows")
        if amount < least:
            raise ValueError(f"{shown(value)} is too small: give at least 1 byte")
        return amount

    return read


_duration: Final = partial(
    quantity_reader, parse_duration_ms, "a duration: give a whole number, or a string such as '3d'"
)
_bytes: Final = partial(
    quantity_reader, parse_bytes, "a size: give a whole number of bytes, or a string such as '50GiB'"
)


def number_reader(wanted: str, least: float, most: float) -> Callable[[object], float]:
    """Return what reads a number from ``least`` to ``most``; ``wanted`` says what it is not otherwise."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise ValueError(f"{shown(value)} is not {wanted}")
        return float(value)

    return read


_percent: Final = number_reader("a percentage from 0 to 100", 0, 100)


def read_percent(value: object) -> float:
    """Read a percentage from 0 to 100, with or without its sign."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", short(value)) if isinstance(value, str) else None
    return _percent(value if match is None else float(match[1]))


def read_ceiling(value: object) -> float:
    """Read a percentage that is more than 0. A number below 1 may be a share, which asks for far less."""
    percent = read_percent(value)
    if percent == 0:
        raise ValueError("0 % would trim everything on the disk: 100 is off")
    if percent < 1 and not isinstance(value, str):
        raise ValueError(
            f"{shown(value)} is less than one percent: write 80 for 80 %, or '{percent:g}%' if that is meant"
        )
    return percent


def texts_reader(wanted: str) -> Callable[[object], list[str]]:
    """Return what reads a text or a list of texts, none of them blank; ``wanted`` says what to give otherwise."""

    def read(value: object) -> list[str]:
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not found or not all(isinstance(one, str) and one.strip() for one in found):
            raise ValueError(wanted)
        return list(found)

    return read


def count_reader(minimum: int) -> Callable[[object], int]:
    """Return what reads a whole number, so large at least; ``10M`` are ten millions."""

    def read(value: object) -> int:
        match = _COUNT.fullmatch(short(value)) if isinstance(value, str) else None
        number = _number(value) if match is None else int(match[1]) * 1000 ** ("kMG".index(match[2]) + 1)
        if number is None:
            raise ValueError(f"{shown(value)} is not a whole number")
        if number < minimum:
            raise ValueError(f"{shown(value)} is less than {minimum}")
        return number

    return read


def read_time(value: object) -> int:
    """Read a moment from 1970 on to Unix ms."""
    if isinstance(value, dt.datetime):  # YAML takes an unquoted ISO 8601 time for one
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} names no time zone: add Z for UTC, or an offset such as +02:00")
        value = value.isoformat()
    elif isinstance(value, dt.date):
        raise ValueError(f"{value} is a date: add a time, such as {value}T00:00:00Z")  # noqa: TRY004
    moment = parse_time_ms(short(value)) if isinstance(value, str) else _number(value)
    if moment is None:
        raise ValueError(f"{shown(value)} is not a time: give ISO 8601, such as 2026-11-01T00:00:00Z, or Unix ms")
    if not 0 <= moment <= _LARGEST:
        raise ValueError(f"{shown(value)} is not a time in Unix ms")
    return moment


def read_event_source(value: object) -> str:
    """Read where event times are."""
    if isinstance(value, str):
        event_source(value)
        return value
    raise ValueError(f"{shown(value)} is not {EVENT_SOURCES}")


def read_archive_url(value: object) -> str:
    """Read where an archive lies, or ``none``."""
    if not isinstance(value, str):
        raise ValueError("is not a URL: give a path such as /archive, or s3://bucket/folder")  # noqa: TRY004
    return value if value == NONE else check_url(value)


def text_reader(pattern: str, wrong: str) -> Callable[[object], str]:
    """Return what reads a text of this form; ``wrong`` says what is not, with ``{}`` for the value."""
    form = re.compile(pattern)

    def read(value: object) -> str:
        if isinstance(value, str) and form.fullmatch(value):
            return value
        raise ValueError(wrong.format(shown(value)))

    return read


def read_names(value: object) -> list[str]:
    """Read a group's name or a list of these. A group may be called ``''``."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list):
        raise ValueError(f"{shown(value)} is not a name or a list of names")  # noqa: TRY004  (pydantic wants ValueError)
    wrong: list[Item] = [
        ((index,), f"{shown(name)} is not a name (quote it if YAML reads it as a number)")
        for index, name in enumerate(values)
        if not isinstance(name, str)
    ]
    return right(list(values), wrong)


def read_patterns(value: object) -> list[str]:
    """Read a name, a glob or ``re:`` and a regular expression, or a list of these."""
    found = read_names(value)
    wrong: list[Item] = []
    for index, pattern in enumerate(found):
        try:
            compiled(pattern)
        except ValueError as error:
            wrong.append(((index,), str(error)))
    return right(found, wrong)


def read_topic_patterns(value: object) -> list[str]:
    """Read patterns, one at least."""
    found = read_patterns(value)
    if not found or "" in found:
        raise ValueError("is empty: name a topic, a glob such as 'orders.*', or '*' for all")
    return found


def read_audit_topic(value: object) -> str:
    """Read the name of a topic that the audit log may be copied to: none of Kafka's own, nor kretain's settings."""
    if not isinstance(value, str) or not TOPIC_NAME.fullmatch(value):
        raise ValueError(f"{shown(value)} is not a topic's name: letters, digits, '.', '_' and '-', up to 249")
    if value.startswith("__") or value in _NOT_FOR_AUDIT:
        raise ValueError(f"{shown(value)} is one of kretain's own topics: name a topic only for the audit log")
    return value


def read_place(value: object) -> str:
    """Read a file's path, or its URL without any secret in it."""
    text = read_path(value, wanted="a path or a URL")
    if "://" in text and _scheme(text) not in _HTTP:
        check_url(text.replace("hdfs:///", "hdfs://default/", 1), also=_HTTP)  # a client's own default is good here
    elif "://" in text and ("@" in text or "?" in text or "#" in text):
        raise ValueError("has @, ? or #, which may carry a secret: use a URL without one, or fetch it with a command")
    return text


def _scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:  # its text may quote a user and a password
        raise ValueError("is not a URL that can be read") from None


def read_folder(value: object) -> str:
    """Read a folder's path, or its URL: one that has listings, so not over HTTP."""
    text = read_place(value)
    if (scheme := _scheme(text)) in _HTTP:
        raise ValueError(f"starts with {scheme}://, which is not one of {', '.join([*SCHEMES][:-1])}")
    return text.rstrip("/") or "/"


def read_path(value: object, *, wanted: str = "a path") -> str:
    """Read a path; ``wanted`` says what else it may be."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError(f"is not {wanted}")
    return value


def read_command(value: object) -> list[str]:
    """Read a program and its arguments."""
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(one, str) and "\0" not in one for one in value)
        or not value[0].strip()
    ):
        raise ValueError('is not a list of a program and its arguments, such as ["flink-offsets", "--json"]')
    return list(value)


_size: Final = _bytes()
_dir: Final = text_reader(r"(\d+:)?[^:]*[/\\].*", "{} is not a log dir: write it as the broker does, /data, or 1:/data")


def read_sizes_by_dir(value: object) -> dict[str, int]:
    """Read one size for all disks (``*``), or one per ``DIR`` or ``BROKER:DIR``."""
    if not isinstance(value, dict):
        return {"*": _size(value)}
    found: dict[str, int] = {}
    wrong: list[Item] = []
    for key, size in value.items():
        try:
            name = _dir(key)
            found[name] = _size(size)
        except ValueError as error:
            wrong.append(((str(key),), str(error)))
    return right(found, wrong)


def read_devices(value: object) -> list[list[str]]:
    """Read a list per device of the log dirs that are on it."""
    if not isinstance(value, list) or not all(isinstance(one, list) and one for one in value):
        raise ValueError("give a list per device of the log dirs that are on it, such as [[/data/a, /data/b]]")
    dirs = [one for device in value for one in device]
    for one in map(_dir, dirs):
        if dirs.count(one) > 1:
            raise ValueError(f"{short(one)} is on two devices")
    return [list(one) for one in value]


_DURATION_PATTERN = r"^\s*\d+(\.\d+)?\s*(ms|s|m|min|h|d|w)\s*$"
_BYTES_PATTERN = r"^\s*\d+(\.\d+)?\s*([KMGTP]i?)?B\s*$"


def _schema(unit: str, *, infinite: bool = False) -> dict[str, Any]:
    number = {"type": "integer", "minimum": -1 if infinite else 0, "description": unit}
    return {"anyOf": [number, {"type": "string", "pattern": _DURATION_PATTERN, "description": "such as 3d or 12h"}]}


def _count(least: int) -> dict[str, Any]:
    return {"anyOf": [{"type": "integer", "minimum": least}, {"type": "string", "pattern": _COUNT.pattern}]}


_STRINGS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}

Milliseconds = Annotated[int, BeforeValidator(_duration()), WithJsonSchema(_schema("milliseconds"))]
RetentionMs = Annotated[
    int,
    BeforeValidator(_duration(least=-1)),
    WithJsonSchema(_schema("milliseconds, -1 for none", infinite=True)),
]
Minutes = Annotated[int, BeforeValidator(_duration(unit=60_000)), WithJsonSchema(_schema("minutes"))]
Hours = Annotated[int, BeforeValidator(_duration(unit=3_600_000)), WithJsonSchema(_schema("hours"))]
_SIZE: dict[str, Any] = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _BYTES_PATTERN}]}
Bytes = Annotated[int, BeforeValidator(_size), WithJsonSchema(_SIZE)]
SomeBytes = Annotated[
    int,
    BeforeValidator(_bytes(least=1)),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _BYTES_PATTERN}]}),
]
Percent = Annotated[
    float,
    BeforeValidator(read_percent),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 100},
                {"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$"},
            ]
        }
    ),
]
RetentionBytes = Annotated[
    int,
    BeforeValidator(_bytes(least=-1)),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": -1}, {"type": "string", "pattern": _BYTES_PATTERN}]}),
]
Ceiling = Annotated[
    float,
    BeforeValidator(read_ceiling),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 1, "maximum": 100},
                {"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$"},
            ]
        }
    ),
]
Factor = Annotated[
    float,
    BeforeValidator(number_reader("a factor: more than 0, and at most 1", math.ulp(0), 1)),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
]
SizesByDir = Annotated[
    dict[str, int],
    BeforeValidator(read_sizes_by_dir),
    WithJsonSchema({"anyOf": [*_SIZE["anyOf"], {"type": "object", "additionalProperties": _SIZE}]}),
]
Paths = Annotated[
    list[str],
    BeforeValidator(texts_reader("give a file, a folder or a glob, or a list of these, such as inventory/*.parquet")),
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
    BeforeValidator(read_devices),
    WithJsonSchema({"type": "array", "items": {"type": "array", "items": {"type": "string"}, "minItems": 1}}),
]
TimeMs = Annotated[
    int,
    BeforeValidator(read_time),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "description": "Unix milliseconds"},
                {"type": "string", "description": "ISO 8601, such as 2026-11-01T00:00:00Z"},
            ]
        }
    ),
]
_SOURCES: Final = r"^(timestamp|header:.+|(json|avro):(/.*)?|protobuf:[A-Za-z0-9_/]+)$"
Source = Annotated[str, BeforeValidator(read_event_source), WithJsonSchema({"type": "string", "pattern": _SOURCES})]
Text = Annotated[
    str,
    BeforeValidator(text_reader(r"(?s).*\S.*", "give the reason, as text")),
    WithJsonSchema({"type": "string", "minLength": 1}),
]
ArchiveUrl = Annotated[
    str,
    BeforeValidator(read_archive_url),
    WithJsonSchema(
        {"type": "string", "pattern": r"^(none|/.*|(file|s3|hdfs|viewfs|gs|gcs)://[^@]+|abfss?://[^@:]+@[^@]+)$"}
    ),
]
SourceName = Annotated[
    str,
    BeforeValidator(
        text_reader(r"[A-Za-z0-9._-]{1,100}", "{} is not a name: letters, digits, '.', '_' and '-', up to 100")
    ),
    WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z0-9._-]{1,100}$"}),
]
AuditTopic = Annotated[
    str, BeforeValidator(read_audit_topic), WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z0-9._-]{1,249}$"})
]
RemoteTopics = Annotated[
    str,
    BeforeValidator(
        text_reader(
            r"[A-Za-z0-9._-]{0,200}\{topic\}[A-Za-z0-9._-]{0,200}",
            "{} does not name copies: write {{topic}} in it, such as primary.{{topic}}",
        )
    ),
    WithJsonSchema({"type": "string", "pattern": r"^[^{}]*\{topic\}[^{}]*$"}),
]
Place = Annotated[str, BeforeValidator(read_place), WithJsonSchema({"type": "string", "minLength": 1})]
Folder = Annotated[str, BeforeValidator(read_folder), WithJsonSchema({"type": "string", "minLength": 1})]
Hosts = Annotated[
    str,
    BeforeValidator(
        text_reader(
            r"[^\s,/@]+:[0-9]{1,5}(,[^\s,/@]+:[0-9]{1,5})*(/[^\s/@]+)*",
            "is not host:port, comma separated, and a chroot, such as zk1:2181,zk2:2181/kafka",
        )
    ),
    WithJsonSchema({"type": "string", "pattern": "^[^@]+$"}),
]
Path = Annotated[str, BeforeValidator(read_path), WithJsonSchema({"type": "string", "minLength": 1})]
Command = Annotated[
    list[str],
    BeforeValidator(read_command),
    WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 1}),
]
GroupPrefix = Annotated[
    str,
    BeforeValidator(text_reader(r"(?!re:)[^*?\[]*\*", "{} is not a prefix with a * at its end, such as team-a.*")),
    WithJsonSchema({"type": "string", "pattern": r"^[^*?\[]*\*$"}),
]
Names = Annotated[list[str], BeforeValidator(read_names), WithJsonSchema(_STRINGS)]
Patterns = Annotated[list[str], BeforeValidator(read_patterns), WithJsonSchema(_STRINGS)]
TopicPatterns = Annotated[list[str], BeforeValidator(read_topic_patterns), WithJsonSchema(_STRINGS)]

Count = Annotated[int, BeforeValidator(count_reader(0)), WithJsonSchema(_count(0))]
PositiveCount = Annotated[int, BeforeValidator(count_reader(1)), WithJsonSchema(_count(1))]
