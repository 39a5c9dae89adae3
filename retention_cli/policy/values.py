"""The types of a policy's values: how each is read, and what its JSON Schema says to editors."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from retention_cli.policy import disk_readers as d
from retention_cli.policy import readers as r

_DURATION_PATTERN = r"^\s*\d+(\.\d+)?\s*(ms|s|m|min|h|d|w)\s*$"
_BYTES_PATTERN = r"^\s*\d+(\.\d+)?\s*([KMGTP]i?)?B\s*$"


def _schema(unit: str, *, infinite: bool = False) -> dict[str, Any]:
    number = {"type": "integer", "minimum": -1 if infinite else 0, "description": unit}
    return {"anyOf": [number, {"type": "string", "pattern": _DURATION_PATTERN, "description": "such as 3d or 12h"}]}


_STRINGS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}

Milliseconds = Annotated[int, BeforeValidator(r.duration_reader(1)), WithJsonSchema(_schema("milliseconds"))]
RetentionMs = Annotated[
    int,
    BeforeValidator(r.duration_reader(1, infinite=True)),
    WithJsonSchema(_schema("milliseconds, -1 for none", infinite=True)),
]
Minutes = Annotated[int, BeforeValidator(r.duration_reader(60_000)), WithJsonSchema(_schema("minutes"))]
Hours = Annotated[int, BeforeValidator(r.duration_reader(3_600_000)), WithJsonSchema(_schema("hours"))]
Bytes = Annotated[
    int,
    BeforeValidator(r.read_bytes),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _BYTES_PATTERN}]}),
]
SomeBytes = Annotated[
    int,
    BeforeValidator(r.read_some_bytes),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _BYTES_PATTERN}]}),
]
Percent = Annotated[
    float,
    BeforeValidator(r.read_percent),
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
    BeforeValidator(r.read_size_or_none),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": -1}, {"type": "string", "pattern": _BYTES_PATTERN}]}),
]
Ceiling = Annotated[
    float,
    BeforeValidator(r.read_ceiling),
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
    float, BeforeValidator(r.read_factor), WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 1})
]
SizesByDir = Annotated[
    dict[str, int],
    BeforeValidator(d.read_sizes_by_dir),
    WithJsonSchema({"anyOf": [*_SIZE["anyOf"], {"type": "object", "additionalProperties": _SIZE}]}),
]
Paths = Annotated[
    list[str],
    BeforeValidator(r.read_paths),
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
    BeforeValidator(d.read_devices),
    WithJsonSchema({"type": "array", "items": {"type": "array", "items": {"type": "string"}, "minItems": 1}}),
]
RecordOrSegment = Annotated[
    str, BeforeValidator(r.word_reader("record", "segment")), WithJsonSchema({"enum": ["record", "segment"]})
]
TimeMs = Annotated[
    int,
    BeforeValidator(r.read_time),
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
    BeforeValidator(r.read_event_source),
    WithJsonSchema({"type": "string", "pattern": r"^(timestamp|header:.+|json:(/.*)?)$"}),
]
HoldOrSkip = Annotated[str, BeforeValidator(r.word_reader("hold", "skip")), WithJsonSchema({"enum": ["hold", "skip"]})]
LocalOrCluster = Annotated[
    str, BeforeValidator(r.word_reader("local", "cluster")), WithJsonSchema({"enum": ["local", "cluster"]})
]
CountOrIgnore = Annotated[
    str, BeforeValidator(r.word_reader("count", "ignore")), WithJsonSchema({"enum": ["count", "ignore"]})
]
VisibleOrHidden = Annotated[
    str, BeforeValidator(r.word_reader("visible", "hidden")), WithJsonSchema({"enum": ["visible", "hidden"]})
]
Flag = Annotated[bool, BeforeValidator(r.read_flag), WithJsonSchema({"type": "boolean"})]
HoldOrTrim = Annotated[str, BeforeValidator(r.word_reader("hold", "trim")), WithJsonSchema({"enum": ["hold", "trim"]})]
SkipOrTrim = Annotated[str, BeforeValidator(r.word_reader("skip", "trim")), WithJsonSchema({"enum": ["skip", "trim"]})]
Text = Annotated[str, BeforeValidator(r.read_text), WithJsonSchema({"type": "string", "minLength": 1})]
ArchiveUrl = Annotated[
    str,
    BeforeValidator(r.read_archive_url),
    WithJsonSchema({"type": "string", "pattern": r"^(none|/.*|(file|s3|hdfs|viewfs|gs|gcs)://[^@]+)$"}),
]
SourceName = Annotated[
    str, BeforeValidator(r.read_source_name), WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z0-9._-]{1,100}$"})
]
AuditTopic = Annotated[
    str, BeforeValidator(r.read_audit_topic), WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z0-9._-]{1,249}$"})
]
RemoteTopics = Annotated[
    str,
    BeforeValidator(r.read_remote_topics),
    WithJsonSchema({"type": "string", "pattern": r"^[^{}]*\{topic\}[^{}]*$"}),
]
Place = Annotated[str, BeforeValidator(r.read_place), WithJsonSchema({"type": "string", "minLength": 1})]
Folder = Annotated[str, BeforeValidator(r.read_folder), WithJsonSchema({"type": "string", "minLength": 1})]
Hosts = Annotated[str, BeforeValidator(r.read_hosts), WithJsonSchema({"type": "string", "pattern": "^[^@]+$"})]
Path = Annotated[str, BeforeValidator(r.read_path), WithJsonSchema({"type": "string", "minLength": 1})]
Command = Annotated[
    list[str],
    BeforeValidator(r.read_command),
    WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 1}),
]
Names = Annotated[list[str], BeforeValidator(r.read_names), WithJsonSchema(_STRINGS)]
Patterns = Annotated[list[str], BeforeValidator(r.read_patterns), WithJsonSchema(_STRINGS)]
TopicPatterns = Annotated[list[str], BeforeValidator(r.read_topic_patterns), WithJsonSchema(_STRINGS)]
Count = Annotated[int, BeforeValidator(r.count_reader(0)), WithJsonSchema({"type": "integer", "minimum": 0})]
PositiveCount = Annotated[int, BeforeValidator(r.count_reader(1)), WithJsonSchema({"type": "integer", "minimum": 1})]
