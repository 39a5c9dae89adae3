"""The policy file's schema (DESIGN.md, The policy file): what editors check and what we load.

Every key is the KIPs' or Kafka's own name. Keys that other versions will know are listed beside the
models, so that a file that uses one is refused with the right words.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator

from retention_cli.policy import values as v
from retention_cli.policy.settings import DEFAULT_IGNORED_GROUPS, DEFAULT_SCAN_RECORDS

NOT_YET: Final = {
    "retention.max.eventtime.ms": "event time, R2",
    "retention.eventtime.source": "event time, R2",
    "retention.eventtime.ignore.future": "event time, R2",
    "on.unreadable": "event time, R2",
    "log.retention.min.timestamp": "the minimum timestamp, R3",
    "allow.empty": "the minimum timestamp, R3",
    "retention.min.wallclock.ms": "the wall clock guard, G3",
    "retention.timestamp.max.ahead.ms": "future timestamps, G4",
    "retention.bytes": "size, R5",
    "retention.topic.bytes": "size, R5",
    "disks": "disk usage, R6 and R7",
    "log.retention.disk.usage.percent": "disk usage, R6",
    "tiered": "disk usage, R6",
    "granularity": "segments",
    "archive": "archives",
    "remember": "remembered groups, F6",
    "groups.remember": "remembered groups, F6",
    "state": "the ledger",
}
"""Keys of the design that this version does not carry out, and what they are about."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=False, strict=True)


class GroupsModel(_Model):
    """Which consumer groups count (RULES.md F1–F4)."""

    ignore: v.Patterns = Field(
        default=list(DEFAULT_IGNORED_GROUPS), description="Groups that protect nothing. A list replaces the default."
    )
    require: v.Names = Field(default=[], description="Groups that must have committed on every managed partition (F4).")
    latest: v.Patterns = Field(
        default=[], description="Groups that start at the end where they have no commit: there, they protect nothing (F2)."
    )


class LimitsModel(_Model):
    """A plan past one of these is shown, and refused by trim (RULES.md G6)."""

    max_records: v.Count | None = Field(default=None, alias="max.records", description="Records per 24 hours.")
    max_bytes: v.Bytes | None = Field(default=None, alias="max.bytes", description="Bytes per 24 hours.")
    max_percent: v.Percent | None = Field(
        default=None, alias="max.percent", description="Percent of the managed records, per run."
    )


class EntryModel(_Model):
    """Settings for the topics that match. Later entries override earlier ones, key by key."""

    match: v.TopicPatterns = Field(description="Topic names or globs; 're:^…$' is a regular expression.")
    commitoffset_enable: v.Flag | None = Field(
        default=None,
        alias="retention.commitoffset.enable",
        description="Trim what every consumer has read, after a time (R1, KIP-68).",
    )
    commitoffset_ms: v.Milliseconds | None = Field(
        default=None, alias="retention.commitoffset.ms", description="How old a consumed record must be (R1)."
    )
    commitoffset_minutes: v.Minutes | None = Field(
        default=None, alias="retention.commitoffset.minutes", description="The same in minutes; .ms wins."
    )
    commitoffset_hours: v.Hours | None = Field(
        default=None, alias="retention.commitoffset.hours", description="The same in hours; .ms and .minutes win."
    )
    retention_ms: v.RetentionMs | None = Field(
        default=None,
        alias="retention.ms",
        description="Forced: trim what is older, read or not, without waiting for its segment (R4). -1 is none.",
    )
    unconsumed: v.HoldOrTrim | None = Field(
        default=None, description="Whether rules other than R1 and R4 may trim what nobody has read (G2). Default: hold."
    )
    compacted: v.SkipOrTrim | None = Field(
        default=None,
        description="Whether topics with cleanup.policy=compact,delete may be trimmed: that drops a key's only copy (G5).",
    )
    allow_ancient: v.Flag | None = Field(
        default=None, alias="allow.ancient", description="Trust records stamped before 2000-01-01 (G9)."
    )
    hold: v.Text | None = Field(default=None, description="Freeze these topics; the text says why (G7).")
    require: v.Names | None = Field(
        default=None, alias="groups.require", description="Groups that must have committed on these topics (F4)."
    )
    scan_records: v.PositiveCount | None = Field(
        default=None,
        alias="lookup.scan.records",
        description=f"How many records an ambiguous look-up may read per partition. Default: {DEFAULT_SCAN_RECORDS:,}.",
    )


class FileModel(_Model):
    """A kretain policy: which topics are trimmed, by which rules, within which limits."""

    version: Annotated[int, WithJsonSchema({"const": 1})] = Field(description="The policy format: 1.")
    groups: GroupsModel = Field(default_factory=GroupsModel)
    limits: LimitsModel = Field(default_factory=LimitsModel)
    scan_records: v.PositiveCount = Field(default=DEFAULT_SCAN_RECORDS, alias="lookup.scan.records")
    topics: list[EntryModel] = Field(min_length=1)

    @field_validator("version", mode="before")
    @classmethod
    def _version_is_one(cls, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value == 1:
            return value
        raise ValueError(f"{value!r} is not a version this kretain reads: write version: 1")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a policy file, for editors (``kretain policy schema``)."""
    schema = FileModel.model_json_schema(by_alias=True)
    _drop_nulls(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "kretain policy",
    }


def keys_of(model: type[BaseModel]) -> list[str]:
    """Return the keys that a mapping of this model may have, as the file writes them."""
    return [info.alias or name for name, info in model.model_fields.items()]


def _drop_nulls(node: Any) -> None:
    """Take back the ``null`` that an optional field's type brings: in a file, a key has a value or isn't there."""
    if isinstance(node, dict):
        options = node.get("anyOf")
        if isinstance(options, list) and {"type": "null"} in options:
            rest = [option for option in options if option != {"type": "null"}]
            del node["anyOf"]
            node.update(rest[0] if len(rest) == 1 else {"anyOf": rest})
            if node.get("default", 0) is None:
                del node["default"]
        for value in node.values():
            _drop_nulls(value)
    elif isinstance(node, list):
        for value in node:
            _drop_nulls(value)
