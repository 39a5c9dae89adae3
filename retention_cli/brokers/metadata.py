"""The cluster's metadata, read afresh: topic ids, leaders, leader epochs (docs/architecture.md, Observe)."""

from __future__ import annotations

import base64
import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.metadata import MetadataRequest

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.wire import metadata_answers
from retention_cli.brokers.wire.connections import Wire, error_named
from retention_cli.core.model import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
_UNKNOWN_TOPIC: Final = 3
_DESCRIBE: Final = 8
"""AclOperation.DESCRIBE."""


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
        there = self.partitions
        return [there[n].leader_epoch if n in there else -1 for n in range(max(there) + 1)]


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
    names = None if topics is None else sorted(topics)
    try:
        response: metadata_answers.Answer = await wire.ask_any(lambda: metadata_answers.request(names), deadline)
    except RequestFailedError as error:
        raise BrokerError(
            f"the cluster's metadata can't be read: {error} (kretain needs brokers of 2.8 or later)"
        ) from None
    if response.brokers - set(wire.brokers()):
        await wire.learn_brokers()
    shared = _Shared()
    return ClusterMetadata(
        cluster_id=response.cluster_id,
        brokers=response.brokers,
        topics={
            topic.name: _topic(topic, shared, None if only is None else only.get(topic.name, ()))
            for topic in response.topics
            # A topic with an error of its own was deleted meanwhile, or this user may not describe it.
            if topic.name and (topic.error_code == 0 or topic.partitions)
        },
        missing=frozenset(topic.name for topic in response.topics if topic.name and topic.error_code == _UNKNOWN_TOPIC),
    )


class _Shared(dict[metadata_answers.Partition, PartitionMetadata]):
    """What partitions have in common: there are far fewer leaders, epochs and replicas than partitions."""

    def __missing__(self, one: metadata_answers.Partition) -> PartitionMetadata:
        leader, epoch, replicas = one
        made = self[one] = PartitionMetadata(leader if leader >= 0 else None, epoch, replicas)
        return made


def _topic(topic: metadata_answers.Topic, shared: _Shared, only: Container[int] | None = None) -> TopicMetadata:
    return TopicMetadata(
        name=topic.name,
        topic_id=_id_text(topic.topic_id),
        internal=topic.internal,
        partitions={index: shared[one] for index, one in topic.partitions.items() if only is None or index in only},
    )


def topic_id_text(topic_id: Any) -> str | None:
    """Return a topic id as Kafka's tools print it (base64url, 22 characters), None for the zero id."""
    return None if topic_id is None else _id_text(topic_id.bytes)


def _id_text(raw: bytes) -> str | None:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=") if any(raw) else None


async def may_describe_cluster(wire: Wire, deadline: float) -> bool:
    """Return whether this user's authorized operations on the cluster include DESCRIBE (F8).

    Raises:
        BrokerError: no broker answered until the deadline.
    """
    response = await wire.ask_any(lambda: DescribeClusterRequest(include_cluster_authorized_operations=True), deadline)
    if (error := error_named(response.error_code, response.error_message)) is not None:
        raise error
    return _DESCRIBE in (response.authorized_operations or ())


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


_OPERATIONS: Final = {3: "READ", 4: "WRITE", 6: "DELETE", 8: "DESCRIBE", 10: "DESCRIBE_CONFIGS"}


def deadline_after(seconds: float) -> float:
    """Return the time ``seconds`` from now, of ``time.monotonic``."""
    return time.monotonic() + seconds
