"""The cluster's metadata, read afresh: topic ids, leaders, leader epochs (docs/architecture.md, Observe).

Answers are decoded here: the client makes an object of each partition, with lists of nodes that nothing looks at, and a
plan of 200,000 partitions would take 2 s longer. Partitions with the same leader, epoch and replicas share one value.
"""

from __future__ import annotations

import base64
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from struct import Struct
from typing import Final

from kafka.errors import UnknownTopicOrPartitionError
from kafka.protocol.admin import ACLOperation, DescribeClusterRequest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.wire.answers import after_tags, decode_body, decoded_by, length, short, string
from retention_cli.brokers.wire.connections import Wire, error_named
from retention_cli.core.model import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
_IDS_VERSION: Final = 10
"""The first version with topic ids: without them a recreated topic can't be told from the original."""
_LAST_VERSION: Final = 12
_CLUSTER_OPERATIONS_UP_TO: Final = 10
_NUMBER: Final = Struct(">i")
_PARTITION: Final = Struct(">hiii")


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition's leader (None: it has none), leader epoch and replicas (broker ids), in one metadata read."""

    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic, with its id (None: the cluster has no topic ids) and its partitions by index."""

    name: str
    topic_id: str | None
    internal: bool
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)

    @property
    def leader_epochs(self) -> list[int]:
        """The partitions' leader epochs by number, −1 for numbers that there are none of."""
        partitions = self.partitions
        return [partitions[n].leader_epoch if n in partitions else -1 for n in range(max(partitions) + 1)]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The result of one fresh metadata read. ``topics`` are those that exist and that this user may describe.

    ``missing`` are topics that were asked for by name and that the broker says do not exist.
    """

    cluster_id: str
    brokers: frozenset[int]
    topics: Mapping[str, TopicMetadata]
    missing: frozenset[str] = frozenset()

    @property
    def topic_ids(self) -> dict[str, str]:
        """The topics' current ids, where the cluster has any."""
        return {name: one.topic_id for name, one in self.topics.items() if one.topic_id is not None}

    def places(self, names: Iterable[str] | None = None) -> dict[TopicPartition, PartitionMetadata]:
        """Return the metadata of each partition of these topics, or of all: in the order of the names, and by index."""
        return {
            TopicPartition(name, number): one
            for name in (self.topics if names is None else names)
            for number, one in sorted(self.topics[name].partitions.items())
        }


async def read_metadata(
    wire: Wire, topics: Iterable[str] | None, deadline: float, only: Mapping[str, Container[int]] | None = None
) -> ClusterMetadata:
    """Read the metadata of the named topics, or of all (None); ``only`` these partitions of them, by topic.

    Raises:
        BrokerError: no broker answered until the deadline (of ``time.monotonic``), or brokers are older than 2.8.
    """
    names = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(topics)]
    try:
        found: ClusterMetadata = await wire.ask_any(
            lambda: _Request(
                topics=names, allow_auto_topic_creation=False, min_version=_IDS_VERSION, max_version=_LAST_VERSION
            ),
            deadline,
        )
    except RequestFailedError as error:
        raise BrokerError(
            f"the cluster's metadata can't be read: {error} (kretain needs brokers of 2.8 or later)"
        ) from None
    if found.brokers - set(wire.brokers()):
        await wire.learn_brokers()
    if only is None:
        return found
    chosen = {
        name: replace(one, partitions={n: row for n, row in one.partitions.items() if n in only.get(name, ())})
        for name, one in found.topics.items()
    }
    return replace(found, topics=chosen)


def decode(data: bytes, version: int) -> ClusterMetadata:
    """Decode the body of a Metadata response of version 10, 11 or 12.

    Raises:
        ValueError: it is malformed.
    """
    return decode_body("Metadata", data, partial(_cluster, version=version))


_Request: Final = decoded_by(
    MetadataRequest,
    MetadataResponse,
    {version: partial(decode, version=version) for version in range(_IDS_VERSION, _LAST_VERSION + 1)},
)


def _cluster(data: bytes, version: int) -> tuple[ClusterMetadata, int]:
    count, position = length(data, 4)  # after the throttle time
    brokers = set()
    for _ in range(count):
        brokers.add(_NUMBER.unpack_from(data, position)[0])
        _host, position = string(data, position + 4)
        _rack, position = string(data, position + 4)  # after the port
        position = after_tags(data, position)
    cluster_id, position = string(data, position)
    count, position = length(data, position + 4)  # after the controller
    topics: dict[str, TopicMetadata] = {}
    missing = set()
    known: dict[tuple[int, int, bytes], PartitionMetadata] = {}
    for _ in range(count):
        error, position = short(data, position)
        topic, position = _topic(data, position, known)
        # A topic with an error of its own was deleted meanwhile, or this user may not describe it.
        if topic.name and (error == 0 or topic.partitions):
            topics[topic.name] = topic
        if topic.name and error == UnknownTopicOrPartitionError.errno:
            missing.add(topic.name)
    if version <= _CLUSTER_OPERATIONS_UP_TO:
        position += 4
    return ClusterMetadata(cluster_id, frozenset(brokers), topics, frozenset(missing)), after_tags(data, position)


def _topic(
    data: bytes, position: int, known: dict[tuple[int, int, bytes], PartitionMetadata]
) -> tuple[TopicMetadata, int]:
    name, position = string(data, position)
    topic_id, internal = topic_id_text(data[position : position + 16]), data[position + 16] != 0
    count, position = length(data, position + 17)
    partitions: dict[int, PartitionMetadata] = {}
    for _ in range(count):
        _error, index, leader, epoch = _PARTITION.unpack_from(data, position)
        nodes, position = length(data, position + _PARTITION.size)
        end = position + 4 * nodes
        key = (leader, epoch, data[position:end])
        if (one := known.get(key)) is None:
            replicas = tuple(node for (node,) in _NUMBER.iter_unpack(key[2]))
            one = known[key] = PartitionMetadata(leader if leader >= 0 else None, epoch, replicas)
        partitions[index] = one
        nodes, position = length(data, end)  # in sync
        nodes, position = length(data, position + 4 * nodes)  # offline
        position = after_tags(data, position + 4 * nodes)
    return TopicMetadata(name, topic_id, internal, partitions), after_tags(data, position + 4)  # after its operations


def topic_id_text(raw: bytes) -> str | None:
    """Return a topic id as Kafka's tools print it (base64url, 22 characters), None for the zero id."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=") if any(raw) else None


async def may_describe_cluster(wire: Wire, deadline: float) -> bool:
    """Return whether this user's authorized operations on the cluster include DESCRIBE (F8).

    Raises:
        BrokerError: no broker answered until the deadline.
    """
    response = await wire.ask_any(lambda: DescribeClusterRequest(include_cluster_authorized_operations=True), deadline)
    if (error := error_named(response.error_code, response.error_message)) is not None:
        raise error
    return ACLOperation.DESCRIBE in (response.authorized_operations or ())


async def topic_operations(wire: Wire, deadline: float) -> dict[str, frozenset[str]]:
    """Return, for each topic that this user may describe, the operations that the user is authorized for.

    Raises:
        BrokerError: no broker answered until the deadline.
    """
    response = await wire.ask_any(
        lambda: MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=True),
        deadline,
    )
    return {
        topic.name: frozenset(_OPERATIONS[code] for code in topic.authorized_operations or () if code in _OPERATIONS)
        for topic in response.topics
        if topic.error_code == 0
    }


_OPERATIONS: Final = {3: "READ", 4: "WRITE", 6: "DELETE", 8: "DESCRIBE", 11: "ALTER_CONFIGS", 10: "DESCRIBE_CONFIGS"}
