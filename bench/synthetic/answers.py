"""One broker's answers. What does not change is made once: requests that are the same get the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final

from kafka.protocol.admin import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from bench.synthetic.cluster import RECORD_BYTES, Cluster
from bench.synthetic.rows import (
    METADATA_VERSION,
    Asked,
    Commits,
    Metadata,
    array,
    delete_records,
    framed,
    list_offsets,
    parsed,
    text,
)

MESSAGES: Final[dict[int, tuple[Any, Any]]] = {
    one.API_KEY: (one, other)
    for one, other in (
        (ListOffsetsRequest, ListOffsetsResponse),
        (MetadataRequest, MetadataResponse),
        (OffsetFetchRequest, OffsetFetchResponse),
        (FindCoordinatorRequest, FindCoordinatorResponse),
        (DescribeGroupsRequest, DescribeGroupsResponse),
        (ListGroupsRequest, ListGroupsResponse),
        (ApiVersionsRequest, ApiVersionsResponse),
        (DeleteRecordsRequest, DeleteRecordsResponse),
        (OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
        (DescribeConfigsRequest, DescribeConfigsResponse),
        (DescribeLogDirsRequest, DescribeLogDirsResponse),
        (DescribeClusterRequest, DescribeClusterResponse),
    )
}
VERSIONS: Final = {
    ListOffsetsRequest.API_KEY: 7,
    MetadataRequest.API_KEY: METADATA_VERSION,
    OffsetFetchRequest.API_KEY: 8,
    FindCoordinatorRequest.API_KEY: 4,
    DescribeGroupsRequest.API_KEY: 5,
    ListGroupsRequest.API_KEY: 5,
    ApiVersionsRequest.API_KEY: 3,
    DeleteRecordsRequest.API_KEY: 2,
    OffsetForLeaderEpochRequest.API_KEY: 4,
    DescribeConfigsRequest.API_KEY: 4,
    DescribeLogDirsRequest.API_KEY: 4,
    DescribeClusterRequest.API_KEY: 1,
}
"""The one version of each call that is served; of ApiVersions, with which clients begin, those before it too."""
_ALL_OPERATIONS: Final = (5, 7, 8, 9, 10, 11, 12)
_OLD: Final = 35  # UNSUPPORTED_VERSION
_KEPT: Final = 1024
"""So many answers are kept: some 100 MB, where a request is about thousands of partitions."""

Ports = list[tuple[int, str, int]]
"""Each broker's id, host and port."""


class Broker:
    """Answers the requests that reach one of the brokers."""

    def __init__(self, broker: int, cluster: Cluster, ports: Ports, commits: Commits, metadata: Metadata) -> None:
        self._broker = broker
        self._cluster = cluster
        self._ports = ports
        self._commits = commits
        self._metadata = metadata
        self._makers: dict[int, Callable[[Any, int], Any]] = {
            10: self._coordinators,
            15: self._groups,
            16: self._listing,
            18: self._versions,
            23: self._epochs,
            35: self._log_dirs,
            60: self._described,
        }
        self._config = cache(self._config_block)
        self._made = lru_cache(_KEPT)(self._make)

    def answer(self, frame: bytes) -> bytes:
        """Return the response's frame to a request's."""
        asked = parsed(frame, MESSAGES)
        served = VERSIONS.get(asked.api_key, -1)
        if asked.api_key == ApiVersionsRequest.API_KEY and asked.version > served:
            refusal = self._versions(None, 0)
            refusal.error_code = _OLD
            return framed(asked, refusal.encode(version=0), flexible=False)
        if asked.version != served and asked.api_key != ApiVersionsRequest.API_KEY:
            raise ValueError(f"API {asked.api_key} version {asked.version} is not known here")
        flexible = MESSAGES[asked.api_key][1].flexible_version_q(asked.version) and asked.api_key != 18
        return framed(asked, self._body(asked), flexible=flexible)

    def _body(self, asked: Asked) -> bytes:
        if asked.api_key == OffsetFetchRequest.API_KEY:
            return self._commits.answer(asked.body)
        if asked.api_key == ListGroupsRequest.API_KEY:
            self._cluster.listed_groups()
        if asked.api_key == DeleteRecordsRequest.API_KEY:
            return delete_records(self._cluster, self._broker, asked.body)
        return self._made(asked.api_key, asked.version, asked.body, self._cluster.changes)

    def _make(self, api_key: int, version: int, body: bytes, _changes: int) -> bytes:
        if api_key == ListOffsetsRequest.API_KEY:
            return list_offsets(self._cluster, self._broker, body)
        request = MESSAGES[api_key][0].decode(body, version=version)
        if api_key == DescribeConfigsRequest.API_KEY:
            return self._configs(request)
        if api_key == MetadataRequest.API_KEY:
            return self._metadata.answer(None if request.topics is None else [one.name for one in request.topics])
        made: bytes = self._makers[api_key](request, version).encode(version=version)
        return made

    def _versions(self, _request: Any, _version: int) -> Any:
        kind = ApiVersionsResponse.ApiVersion
        lowest = {**VERSIONS, ApiVersionsRequest.API_KEY: 0}
        keys = [kind(api_key=key, min_version=lowest[key], max_version=one) for key, one in sorted(VERSIONS.items())]
        return ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0)

    def _coordinators(self, request: Any, _version: int) -> Any:
        where = {node: {"node_id": node, "host": host, "port": port} for node, host, port in self._ports}
        made = [
            FindCoordinatorResponse.Coordinator(
                key=key, **where[self._cluster.coordinator(key)], error_code=0, error_message=""
            )
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(throttle_time_ms=0, coordinators=made)

    def _listing(self, _request: Any, _version: int) -> Any:
        kind = ListGroupsResponse.ListedGroup
        here = [name for name in self._cluster.groups if self._cluster.coordinator(name) == self._broker]
        rows = [kind(group_id=name, protocol_type="", group_state="Empty", group_type="classic") for name in here]
        return ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=rows)

    def _groups(self, request: Any, _version: int) -> Any:
        kind = DescribeGroupsResponse.DescribedGroup
        rows = [
            kind(error_code=0, group_id=name, group_state="Empty", protocol_type="", protocol_data="", members=[])
            for name in request.groups
        ]
        return DescribeGroupsResponse(throttle_time_ms=0, groups=rows)

    def _epochs(self, request: Any, _version: int) -> Any:
        topic_kind = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        topics = []
        for topic in request.topics:
            number = self._cluster.number_of[topic.topic]
            rows = [
                topic_kind.EpochEndOffset(
                    error_code=0,
                    partition=one.partition,
                    leader_epoch=0 if one.leader_epoch == 0 else -1,
                    end_offset=self._cluster.ends[number][one.partition] if one.leader_epoch == 0 else -1,
                )
                for one in topic.partitions
            ]
            topics.append(topic_kind(topic=topic.topic, partitions=rows))
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)

    def _log_dirs(self, request: Any, _version: int) -> Any:
        kind = DescribeLogDirsResponse.DescribeLogDirsResult
        topic_kind = kind.DescribeLogDirsTopic
        cluster = self._cluster
        every = range(cluster.shape.partitions_a_topic)
        asked = (
            [(name, every) for name in cluster.names]
            if request.topics is None
            else [(one.topic, one.partitions) for one in request.topics]
        )
        topics = []
        for name, partitions in asked:
            number = cluster.number_of[name]
            rows = [
                topic_kind.DescribeLogDirsPartition(
                    partition_index=one,
                    partition_size=cluster.ends[number][one] * RECORD_BYTES,
                    offset_lag=0,
                    is_future_key=False,
                )
                for one in partitions
                if self._broker == cluster.leader(number, one)
            ]
            topics.append(topic_kind(name=name, partitions=rows))
        folder = kind(
            error_code=0, log_dir="/data", topics=topics, total_bytes=1 << 40, usable_bytes=1 << 39, is_cordoned=False
        )
        return DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=[folder])

    def _described(self, _request: Any, _version: int) -> Any:
        brokers = [
            DescribeClusterResponse.DescribeClusterBroker(broker_id=node, host=host, port=port, rack=None)
            for node, host, port in self._ports
        ]
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            endpoint_type=1,
            cluster_id=self._cluster.cluster_id,
            controller_id=1,
            brokers=brokers,
            authorized_operations=set(_ALL_OPERATIONS),
        )

    def _configs(self, request: Any) -> bytes:
        """A block for each topic: only their names differ."""
        results = []
        for one in request.resources:
            keys = None if one.configuration_keys is None else tuple(one.configuration_keys)
            before, after = self._config(keys, request.include_synonyms)
            results.append(before + text(one.resource_name) + after)
        return bytes(4) + array(results) + b"\0"

    def _config_block(self, keys: tuple[str, ...] | None, synonyms: bool) -> tuple[bytes, bytes]:
        kind = DescribeConfigsResponse.DescribeConfigsResult
        row = kind.DescribeConfigsResourceResult
        rows = [
            row(
                name=name,
                value="-1" if name == "retention.ms" else value,
                read_only=False,
                config_source=1 if name == "retention.ms" else 5,
                is_sensitive=False,
                synonyms=[row.DescribeConfigsSynonym(name=name, value=value, source=5)] if synonyms else [],
                config_type=config_type,
                documentation=None,
            )
            for name, (value, config_type) in TOPIC_DEFAULTS.items()
            if keys is None or name in keys
        ]
        one = kind(error_code=0, error_message=None, resource_type=2, resource_name="", configs=rows)
        body = DescribeConfigsResponse(throttle_time_ms=0, results=[one]).encode(
            version=VERSIONS[DescribeConfigsRequest.API_KEY]
        )
        element = body[5:-1]  # throttle time, array of one, then: error, message, type, name … and the response's tags
        return element[:4], element[5:]


TOPIC_DEFAULTS: Final[dict[str, tuple[str, int]]] = {
    "compression.type": ("producer", 2),
    "remote.log.delete.on.disable": ("false", 1),
    "leader.replication.throttled.replicas": ("", 7),
    "remote.storage.enable": ("false", 1),
    "min.insync.replicas": ("1", 3),
    "segment.jitter.ms": ("0", 5),
    "remote.log.copy.disable": ("false", 1),
    "local.retention.ms": ("-2", 5),
    "cleanup.policy": ("delete", 7),
    "flush.ms": ("9223372036854775807", 5),
    "follower.replication.throttled.replicas": ("", 7),
    "compression.lz4.level": ("9", 3),
    "segment.bytes": ("1073741824", 3),
    "retention.ms": ("604800000", 5),
    "compression.gzip.level": ("-1", 3),
    "flush.messages": ("9223372036854775807", 5),
    "compression.zstd.level": ("3", 3),
    "max.compaction.lag.ms": ("9223372036854775807", 5),
    "file.delete.delay.ms": ("60000", 5),
    "max.message.bytes": ("1048588", 3),
    "min.compaction.lag.ms": ("0", 5),
    "message.timestamp.type": ("CreateTime", 2),
    "local.retention.bytes": ("-2", 5),
    "preallocate": ("false", 1),
    "index.interval.bytes": ("4096", 3),
    "min.cleanable.dirty.ratio": ("0.5", 6),
    "unclean.leader.election.enable": ("false", 1),
    "retention.bytes": ("-1", 5),
    "delete.retention.ms": ("86400000", 5),
    "message.timestamp.after.max.ms": ("3600000", 5),
    "message.timestamp.before.max.ms": ("9223372036854775807", 5),
    "segment.ms": ("604800000", 5),
    "segment.index.bytes": ("10485760", 3),
}
