"""The policy file's schema (docs/policy.md): what editors check and what we load.

Every key is the KIPs' or Kafka's own name.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Required, Self

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema, field_validator, model_validator
from typing_extensions import TypedDict

from retention_cli.core.printable import shown
from retention_cli.policy import values as v
from retention_cli.policy.schema_reports import (
    ApproveModel,
    AuditModel,
    CostModel,
    EvidenceModel,
    Labels,
    NotifyModel,
    StrictModel,
)
from retention_cli.policy.settings import (
    DEFAULT_IGNORED_GROUPS,
    DEFAULT_MAX_AGE_MS,
    DEFAULT_REMEMBER_MS,
    DEFAULT_SCAN_RECORDS,
    DEFAULT_SOURCE_TIMEOUT_MS,
    MAX_SOURCE_TIMEOUT_MS,
    SOURCE_KINDS,
    SourceKind,
)

_OF_REPLICA = frozenset({"source_alias", "remote_topics", "connect_offsets", "offset_syncs", "offset_syncs_location"})


class GroupsModel(StrictModel):
    """Which consumer groups count (F1–F4)."""

    ignore: v.Patterns = Field(
        default=list(DEFAULT_IGNORED_GROUPS), description="Groups that protect nothing. A list replaces the default."
    )
    require: v.Names = Field(default=[], description="Groups that must have committed on every managed partition (F4).")
    latest: v.Patterns = Field(
        default=[],
        description="Groups that start at the end where they have no commit; there they protect nothing (F2).",
    )
    by_commits: v.Patterns = Field(
        default=[],
        alias="by.commits",
        description="Groups that count only by their commits: kretain does not ask what members read (F3).",
    )
    stale_epochs: v.Patterns = Field(
        default=[],
        alias="stale.epochs",
        description="Groups whose clients commit old leader epochs: their commits count without one (F5).",
    )
    offsets_topic: Literal["visible", "hidden"] = Field(
        default="visible",
        alias="offsets.topic",
        description="hidden: the provider hides __consumer_offsets. Floors are then known only where groups.require "
        "names a group (F9).",
    )
    scope: v.GroupPrefix | None = Field(
        default=None,
        description="The prefix of the groups that this user may describe, if not all. Floors are then "
        "known only where groups.require names a group (F8).",
    )
    start: dict[str, v.Milliseconds] = Field(
        default={},
        description="Groups that start so far back where they have no commit (KIP-1106), by name: nothing younger is "
        "trimmed for them (F2).",
    )
    share: Literal["count", "ignore"] = Field(
        default="count",
        description="Whether share groups (KIP-932) count, by their start offsets (F1), or protect nothing.",
    )
    remember: v.Milliseconds = Field(
        default=DEFAULT_REMEMBER_MS, description="How long a group that is gone still counts (F6). Default: 30d."
    )
    watch_first: v.Milliseconds | None = Field(
        default=None,
        alias="watch.first",
        description="Hold R1 until kretain has watched the cluster's groups for this long (F10). Default: off.",
    )


class LimitsModel(StrictModel):
    """A plan past one of these is shown, and refused by trim (G6)."""

    max_records: v.Count | None = Field(default=None, alias="max.records", description="Records per 24 hours.")
    max_bytes: v.Bytes | None = Field(default=None, alias="max.bytes", description="Bytes per 24 hours.")
    max_percent: v.Percent | None = Field(
        default=None, alias="max.percent", description="Percent of the managed records, per run."
    )


class WatermarkModel(StrictModel):
    """From this usage on, times count less (R7)."""

    percent: v.Ceiling = Field(description="A disk's usage, in percent of its size.")
    factor: v.Factor = Field(description="What R4's retention.ms and R1's retention.commitoffset are multiplied by.")
    minimum: v.Milliseconds = Field(description="They are never shortened below this.")


class DisksModel(StrictModel):
    """The brokers' disks (R6 and R7, KIP-61)."""

    percent: v.Ceiling | None = Field(
        default=None,
        alias="log.retention.disk.usage.percent",
        description="Trim the globally oldest segments of a disk that is fuller than this (R6). 100 is off.",
    )
    capacity: v.SizesByDir | None = Field(
        default=None,
        description="How large a disk is, if its broker does not report it or reports it wrong: a size, or one per DIR "
        "or BROKER:DIR. Then only what Kafka's replicas take counts as used.",
    )
    devices: v.Devices | None = Field(
        default=None, description="Log dirs that share a device: a list of lists of DIR or BROKER:DIR."
    )
    inventory: v.Paths | None = Field(
        default=None,
        description="Output of kretain segments scan: a file, a folder or a glob, or a list of these, relative to the "
        "policy file. --inventory replaces it.",
    )
    reserved: v.SizesByDir | None = Field(
        default=None, description="Bytes that a volume reports as neither usable nor used, such as ext4's 5 %."
    )
    shared: bool | None = Field(
        default=None, description="Confirm that other users than Kafka take more than half of the used space."
    )
    watermarks: list[WatermarkModel] | None = Field(
        default=None, description="How a disk that fills shortens R4's and R1's times (R7)."
    )


UntilConsumedModel = TypedDict(
    "UntilConsumedModel",
    {
        "groups": Annotated[
            v.Names,
            Field(description="Who must have read it. Default: groups.require.", json_schema_extra={"default": []}),
        ],
        "max": Required[
            Annotated[v.Milliseconds, Field(description="Raise retention.ms to no more than this; 0 is off.")]
        ],
        "max.bytes": Annotated[
            v.Bytes | None,
            Field(description="Keep at most this per topic: one replica of each partition. Default: no limit."),
        ],
    },
    total=False,
)
UntilConsumedModel.__doc__ = "Keep what these groups have not read (docs/protect.md)."


EntryModel = TypedDict(
    "EntryModel",
    {
        "match": Required[
            Annotated[v.TopicPatterns, Field(description="Topic names or globs; 're:…' is a regular expression (RE2).")]
        ],
        "retention.commitoffset.enable": Annotated[
            bool | None, Field(description="Trim what every consumer has read, after a time (R1, KIP-68).")
        ],
        "retention.commitoffset.ms": Annotated[
            v.Milliseconds | None, Field(description="How old a consumed record must be (R1).")
        ],
        "retention.commitoffset.minutes": Annotated[
            v.Minutes | None, Field(description="The same in minutes; .ms wins.")
        ],
        "retention.commitoffset.hours": Annotated[
            v.Hours | None, Field(description="The same in hours; .ms and .minutes win.")
        ],
        "retention.ms": Annotated[
            v.RetentionMs | None,
            Field(
                description="Forced: trim older records, read or not, without waiting for segments (R4). -1 is none."
            ),
        ],
        "retention.max.eventtime.ms": Annotated[
            v.Milliseconds | None,
            Field(description="Trim records this much older, in event time, than the newest ever seen (R2, KIP-870)."),
        ],
        "retention.eventtime.source": Annotated[
            v.Source | None,
            Field(
                description="Where the event time is (R2): timestamp, header:NAME, json:/pointer, avro:/field, "
                "protobuf:field. "
                "Default: the record's timestamp, unless the topic is LogAppendTime."
            ),
        ],
        "retention.eventtime.ignore.future": Annotated[
            bool | None,
            Field(description="Look for the newest event time that is not in the future, by reading records (G4)."),
        ],
        "on.unreadable": Annotated[
            Literal["hold", "skip"] | None,
            Field(
                description="A record whose event time can't be read holds everything after it, or is skipped (R2). "
                "Default: hold."
            ),
        ],
        "log.retention.min.timestamp": Annotated[
            v.TimeMs | None,
            Field(description="Trim records stamped before this moment (R3, KIP-47). 0 is off; 'cluster': set live."),
        ],
        "allow.empty": Annotated[
            bool | None, Field(description="Let log.retention.min.timestamp lie in the future (R3).")
        ],
        "retention.min.wallclock.ms": Annotated[
            v.Milliseconds | None,
            Field(description="Keep records written less than this ago, regardless of timestamps (G3)."),
        ],
        "retention.timestamp.max.ahead.ms": Annotated[
            v.Milliseconds | None,
            Field(description="How far ahead of now the newest event time may lie (G4). Default: 1h."),
        ],
        "retention.bytes": Annotated[
            v.RetentionBytes | None, Field(description="Trim a partition that is larger (R5). -1 is none.")
        ],
        "retention.topic.bytes": Annotated[
            v.RetentionBytes | None,
            Field(description="Trim the oldest of a topic whose partitions are larger together (R5). -1 is none."),
        ],
        "granularity": Annotated[
            Literal["record", "segment"] | None,
            Field(
                description="segment: round bounds down to the start of a segment, as brokers do; needs an inventory. "
                "Default: record."
            ),
        ],
        "tiered": Annotated[
            Literal["skip", "trim"] | None,
            Field(description="Whether R6 may trim topics with remote storage, and R1 to R5 pass policy check there."),
        ],
        "unconsumed": Annotated[
            Literal["hold", "trim"] | None,
            Field(description="Whether rules other than R1 and R4 may trim unread records (G2). Default: hold."),
        ],
        "compacted": Annotated[
            Literal["skip", "trim"] | None,
            Field(
                description="Whether cleanup.policy=compact,delete may be trimmed: that drops a key's only copy (G5)."
            ),
        ],
        "allow.ancient": Annotated[bool | None, Field(description="Trust records stamped before 2000-01-01 (G9).")],
        "archive": Annotated[
            v.ArchiveUrl | None,
            Field(
                description="Write records to Parquet there before they are trimmed: a path, file://, s3://, hdfs://, "
                "gs:// or "
                "abfss://; 'none' for no archive."
            ),
        ],
        "labels": Annotated[
            Labels | None,
            Field(description="Who owns these topics, such as {team: payments}: forecasts add up money by label."),
        ],
        "hold": Annotated[v.Text | None, Field(description="Freeze these topics; the text says why (G7).")],
        "groups.require": Annotated[
            v.Names | None, Field(description="Groups that must have committed on these topics (F4).")
        ],
        "retention.until.consumed": Annotated[
            UntilConsumedModel | None,
            Field(
                description="Let kretain protect raise the topic's retention.ms and retention.bytes while groups lag "
                "(P1)."
            ),
        ],
        "lookup.scan.records": Annotated[
            v.PositiveCount | None,
            Field(
                description="How many records an ambiguous look-up may read per partition. "
                f"Default: {DEFAULT_SCAN_RECORDS:,}."
            ),
        ],
    },
    total=False,
)
EntryModel.__doc__ = "Settings for the topics that match. Later entries override earlier ones, key by key."


class FloorModel(StrictModel):
    """Consumers outside Kafka's groups (F7): a file, a command, ZooKeeper, a query's checkpoint, a replica."""

    file: v.Place | None = Field(
        default=None,
        description="A path, from the policy file's folder, or a URL: file, s3, hdfs, gs, http or https. It holds "
        "JSON with at and positions, or CSV lines topic,partition,offset.",
    )
    command: v.Command | None = Field(
        default=None, description="A program and its arguments, no shell; it prints what a file would hold."
    )
    zookeeper: v.Hosts | None = Field(
        default=None,
        description="Old consumers: host:port, comma separated, and the chroot, such as zk1:2181,zk2:2181/kafka.",
    )
    checkpoint: v.Folder | None = Field(
        default=None,
        description="The checkpoint of a Spark Structured Streaming query: a path, or a URL: file, s3, hdfs or gs.",
    )
    replica: v.SourceName | None = Field(
        default=None,
        description="The context of the cluster to which MirrorMaker 2 copies. Plans show it as replica:CONTEXT.",
    )
    source_alias: v.SourceName | None = Field(
        default=None,
        alias="source.alias",
        description="Of replica: what MirrorMaker 2 calls this cluster. Default: the one alias in its checkpoints.",
    )
    remote_topics: v.RemoteTopics | None = Field(
        default=None,
        alias="remote.topics",
        description="Of replica: what copies are called there, such as primary.{topic}, or {topic} where names are "
        "kept. Default: ALIAS.{topic}, with source.alias.",
    )
    connect_offsets: v.SourceName | None = Field(
        default=None,
        alias="connect.offsets",
        description="Of replica: Kafka Connect's topic of offsets there. Default: mm2-offsets.ALIAS.internal.",
    )
    offset_syncs: v.SourceName | None = Field(
        default=None,
        alias="offset.syncs",
        description="Of replica: MirrorMaker 2's topic of offset syncs. Default: mm2-offset-syncs.CONTEXT.internal.",
    )
    offset_syncs_location: Literal["source", "target"] | None = Field(
        default=None,
        alias="offset.syncs.location",
        description="Of replica: which cluster has offset.syncs, source (this one) or target. Default: source.",
    )
    name: v.SourceName | None = Field(
        default=None, description="The name in plans of a file, command or checkpoint, such as file:NAME."
    )
    groups: v.Patterns | None = Field(default=None, description="Of zookeeper: the groups that count. Default: all.")
    auth_file: v.Path | None = Field(
        default=None, alias="auth.file", description="Of zookeeper: a file with one line, user:password (digest)."
    )
    topics: v.TopicPatterns | None = Field(
        default=None,
        description="The topics that it may read: they hold if it can't be read. Default: every managed topic.",
    )
    max_age: v.Milliseconds = Field(
        default=DEFAULT_MAX_AGE_MS,
        alias="max.age",
        description="Older positions are unknown. Default: 1h; none for a checkpoint.",
    )
    timeout: v.Milliseconds = Field(
        default=DEFAULT_SOURCE_TIMEOUT_MS, description="How long reading it may take, at most 30s. Default: 10s."
    )

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        kinds = [getattr(self, one) for one in SOURCE_KINDS]
        zookeeper, replica = self.zookeeper is not None, self.replica is not None
        is_limited = self.name is not None or "max_age" in self.model_fields_set
        for wrong, text in (
            (kinds.count(None) != len(kinds) - 1, f"an entry is of one kind: write one of {', '.join(SOURCE_KINDS)}"),
            (not (zookeeper or replica or self.name is not None), "name is missing: plans show the source by it"),
            (
                not replica and self.model_fields_set & _OF_REPLICA,
                "source.alias, remote.topics, connect.offsets and offset.syncs are only for replica",
            ),
            (
                self.offset_syncs_location == "target" and self.offset_syncs is None,
                "offset.syncs is missing: on the target it has the source's alias in its name",
            ),
            (
                not zookeeper and (self.groups is not None or self.auth_file is not None),
                "groups and auth.file are only for zookeeper",
            ),
            (self.groups == [], "groups is empty: no group would count"),
            (not 0 < self.timeout <= MAX_SOURCE_TIMEOUT_MS, "timeout is not between 1 ms and 30 s"),
            (
                zookeeper and is_limited,
                "zookeeper has no name or max.age: its groups have names and current positions",
            ),
            (
                replica and is_limited,
                "replica has no name or max.age: its context is its name, and syncs may be old",
            ),
        ):
            if wrong:
                raise ValueError(text)
        return self

    @property
    def label(self) -> tuple[SourceKind, str]:
        """Its kind, and what it is called."""
        kind = next(one for one in SOURCE_KINDS if getattr(self, one) is not None)
        return kind, self.name or self.replica or str(self.zookeeper)


class FileModel(StrictModel):
    """A kretain policy: which topics are trimmed, by which rules, within which limits."""

    version: Annotated[int, WithJsonSchema({"const": 1})] = Field(description="The policy format: 1.")
    groups: GroupsModel = Field(default_factory=GroupsModel)
    limits: LimitsModel = Field(default_factory=LimitsModel)
    disks: DisksModel = Field(default_factory=DisksModel)
    audit: AuditModel = Field(default_factory=AuditModel)
    evidence: Annotated[
        EvidenceModel, BeforeValidator(lambda given: {"url": given} if isinstance(given, str) else given)
    ] = Field(default_factory=EvidenceModel)
    approve: ApproveModel | None = Field(default=None, description="Trims that a second person has to approve.")
    notify: NotifyModel | None = Field(default=None, description="Post to Slack or another webhook.")
    cost: CostModel | None = Field(default=None, description="What storage costs, for money in forecasts.")
    floors: list[FloorModel] = Field(
        default=[], description="Consumers outside Kafka's groups, which count as groups do (F7)."
    )
    scan_records: v.PositiveCount = Field(default=DEFAULT_SCAN_RECORDS, alias="lookup.scan.records")
    state: Literal["local", "cluster"] = Field(
        default="local",
        description="Where kretain remembers: in the state directory, or in the topic _kretain_state, shared by all.",
    )
    archive_key: v.Names = Field(
        default=[], alias="archive.key", description="Encrypt archives with this key file; of several, with the first."
    )
    topics: list[EntryModel] = Field(min_length=1)

    @field_validator("floors")
    @classmethod
    def _names_differ(cls, value: list[FloorModel]) -> list[FloorModel]:
        if sum(one.zookeeper is not None for one in value) > 1:
            raise ValueError("zookeeper appears twice: a cluster has one ZooKeeper")
        names = [one.label for one in value]
        for kind, name in names:
            if names.count((kind, name)) > 1:
                raise ValueError(f"{kind}:{name} appears twice: give each its own name")
        return value

    @field_validator("version", mode="before")
    @classmethod
    def _version_is_one(cls, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value == 1:
            return value
        raise ValueError(f"{shown(value)} is not a version that this kretain reads: write version: 1")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a policy file, for editors (``kretain policy schema``)."""
    schema = FileModel.model_json_schema(by_alias=True)
    _drop_nulls(schema)
    for key in LIVE_KEYS:
        entry = schema["$defs"]["EntryModel"]["properties"][key]
        texts = {word: entry.pop(word) for word in ("description", "title") if word in entry}
        schema["$defs"]["EntryModel"]["properties"][key] = {**texts, "anyOf": [{"const": CLUSTER}, dict(entry)]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "kretain policy",
    }


LIVE_KEYS: Final = frozenset(
    {
        "retention.commitoffset.enable",
        "retention.commitoffset.ms",
        "retention.commitoffset.minutes",
        "retention.commitoffset.hours",
        "retention.ms",
        "retention.max.eventtime.ms",
        "log.retention.min.timestamp",
        "retention.min.wallclock.ms",
        "unconsumed",
    }
)
"""Keys of an entry whose value may be ``cluster``: it then lives in the policy topic, and is moved there."""
CLUSTER: Final = "cluster"


def keys_of(model: type[Any]) -> list[str]:
    """Return the keys that a mapping of this model may have, as the file writes them."""
    fields = model.model_fields.items() if issubclass(model, BaseModel) else ()
    return [info.alias or name for name, info in fields] or [*model.__annotations__]


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
