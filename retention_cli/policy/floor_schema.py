"""The schema of the policy's ``floors``: consumers outside Kafka's groups (F7, docs/policy.md)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from retention_cli.policy import values as v
from retention_cli.policy.settings import (
    DEFAULT_MAX_AGE_MS,
    DEFAULT_SOURCE_TIMEOUT_MS,
    MAX_SOURCE_TIMEOUT_MS,
    SOURCE_KINDS,
    SourceKind,
)
from retention_cli.policy.strict_model import StrictModel

_OF_REPLICA = frozenset({"source_alias", "remote_topics", "connect_offsets", "offset_syncs", "offset_syncs_location"})


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
        description="The checkpoint of a Spark Structured Streaming query: a path, or a URL: file, s3, hdfs or "
        "gs. What the query has yet to read begins where its last committed batch ends.",
    )
    replica: v.SourceName | None = Field(
        default=None,
        description="The context of another cluster: what MirrorMaker 2 has copied there. It is replica:CONTEXT.",
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
        default=None, description="What floors call a file, a command or a checkpoint, such as file:NAME."
    )
    groups: v.Patterns | None = Field(default=None, description="Of zookeeper: the groups that count. Default: all.")
    auth_file: v.Path | None = Field(
        default=None, alias="auth.file", description="Of zookeeper: a file with one line, user:password (digest)."
    )
    topics: v.TopicPatterns | None = Field(
        default=None,
        description="What it may read if it can't be read itself: these topics hold then. Default: every managed one.",
    )
    max_age: v.Milliseconds = Field(
        default=DEFAULT_MAX_AGE_MS,
        alias="max.age",
        description="Older positions are unknown. Default: 1h; of a checkpoint none, for it says where to go on.",
    )
    timeout: v.Milliseconds = Field(
        default=DEFAULT_SOURCE_TIMEOUT_MS, description="How long reading it may take, 30s at the most. Default: 10s."
    )

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        if [getattr(self, one) for one in SOURCE_KINDS].count(None) != len(SOURCE_KINDS) - 1:
            raise ValueError(f"an entry is of one kind: write one of {', '.join(SOURCE_KINDS)}")
        if self.zookeeper is None and self.replica is None and self.name is None:
            raise ValueError("name is missing: it is what floors call it")
        if self.replica is None and self.model_fields_set & _OF_REPLICA:
            raise ValueError("source.alias, remote.topics, connect.offsets and offset.syncs are of replica alone")
        if self.offset_syncs_location == "target" and self.offset_syncs is None:
            raise ValueError("offset.syncs is missing: on the target it has the source's alias in its name")
        if self.zookeeper is None and (self.groups is not None or self.auth_file is not None):
            raise ValueError("groups and auth.file are of zookeeper alone")
        if self.groups == []:
            raise ValueError("groups is empty: nobody would count")
        if not 0 < self.timeout <= MAX_SOURCE_TIMEOUT_MS:
            raise ValueError("timeout is not between 1 ms and 30 s")
        if self.zookeeper is not None and (self.name is not None or "max_age" in self.model_fields_set):
            raise ValueError("name and max.age are not of zookeeper: its groups have names, and are as of now")
        if self.replica is not None and (self.name is not None or "max_age" in self.model_fields_set):
            raise ValueError("name and max.age are not of replica: its context is its name, and syncs may be old")
        return self

    @property
    def label(self) -> tuple[SourceKind, str]:
        """Its kind, and what it is called."""
        kind = next(one for one in SOURCE_KINDS if getattr(self, one) is not None)
        return kind, self.name or self.replica or str(self.zookeeper)
