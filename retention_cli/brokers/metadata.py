"""What brokers report on topics: ids, leaders, epochs and settings (docs/architecture.md, Observe).

Settings of groups and brokers are read in the same way.

Answers are decoded here: the client makes an object of each partition, with lists of nodes that nothing looks at, and a
plan of 200,000 partitions would take 2 s longer. Partitions with the same leader, epoch and replicas share one value.
"""

from __future__ import annotations

import base64
import itertools
import re
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from struct import Struct
from typing import Any, Final, Literal, NamedTuple

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.wire.answers import after_tags, decode_body, decoded_by, length, short, string
from retention_cli.brokers.wire.connections import LEFT_OUT, Job, Wire, ask_each, error_named
from retention_cli.core.grouping import by_key, in_batches
from retention_cli.core.model import TimestampType, TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
_IDS_VERSION: Final = 10
"""The first version with topic ids: without them a recreated topic looks like the original."""
_LAST_VERSION: Final = 12
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
        """The partitions' leader epochs by number, −1 for numbers without a partition."""
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

    def partitions_of(self, names: Iterable[str] | None = None) -> dict[TopicPartition, PartitionMetadata]:
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
        found: ClusterMetadata = await wire.ask_any(partial(_asking, names), deadline)
    except RequestFailedError as error:
        raise BrokerError(
            f"the cluster's metadata can't be read: {error} (kretain needs brokers of 2.8 or later)"
        ) from None
    if found.brokers - set(wire.brokers()):
        await wire.learn_brokers()
    if only is None:
        return found
    return replace(
        found,
        topics={
            name: replace(one, partitions={n: row for n, row in one.partitions.items() if n in only.get(name, ())})
            for name, one in found.topics.items()
        },
    )


async def read_each_metadata(
    wire: Wire, brokers: Iterable[int], topics: Sequence[str], deadline: float
) -> list[ClusterMetadata]:
    """Return what each of these brokers knows of the named topics, and of the brokers.

    Raises:
        BrokerError: one of them has not answered until the deadline (of ``time.monotonic``).
    """
    return [*await ask_each(wire, brokers, partial(_asking, topics), deadline, "describe the cluster")]


async def agree(wire: Wire, brokers: frozenset[int]) -> bool:
    """Return whether each of these brokers names them all, and no other, as far as it answers."""
    others: list[int] = []

    def on_reply(broker: int, reply: ClusterMetadata | RequestFailedError) -> None:
        if isinstance(reply, ClusterMetadata) and reply.brokers != brokers:
            others.append(broker)

    work = {one: [Job(_asking(()), one)] for one in brokers}
    await wire.fan_out(work, on_reply, timeout_s=min(wire.timeout_s, _SOON_S))
    return not others


def _asking(names: Sequence[str] | None) -> Any:
    topics = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return _Request(topics=topics, allow_auto_topic_creation=False, min_version=_IDS_VERSION, max_version=_LAST_VERSION)


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
        if topic.name and error == kafka_errors.UnknownTopicOrPartitionError.errno:
            missing.add(topic.name)
    if version <= 10:
        position += 4  # after the operations on the cluster
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
            one = known[key] = PartitionMetadata(
                leader if leader >= 0 else None, epoch, tuple(node for (node,) in _NUMBER.iter_unpack(key[2]))
            )
        partitions[index] = one
        nodes, position = length(data, end)  # in sync
        nodes, position = length(data, position + 4 * nodes)  # offline
        position = after_tags(data, position + 4 * nodes)
    return TopicMetadata(name, topic_id, internal, partitions), after_tags(data, position + 4)  # after its operations


def topic_id_text(raw: bytes) -> str | None:
    """Return a topic id as Kafka's tools print it (base64url, 22 characters), None for the zero id."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=") if any(raw) else None


TIERED: Final = ("remote.storage.enable", "confluent.tier.enable", "redpanda.remote.write")
"""The settings of which any turns on remote storage: Kafka's (KIP-405), Confluent Platform's and Redpanda's."""
_DISKLESS: Final = "diskless.enable"
_POLICY: Final = "cleanup.policy"
_STAMPS: Final = "message.timestamp.type"
_KEYS: Final = [_POLICY, "retention.ms", _STAMPS, *TIERED, _DISKLESS]
_DIFFERENT: Final = RequestFailedError(
    f"brokers have different defaults of {_POLICY}, and the topic has no value of its own", retriable=False
)
_TYPES: Final[dict[str | None, TimestampType]] = {"CreateTime": "CreateTime", "LogAppendTime": "LogAppendTime"}
Kind = Literal["topic", "broker", "group"]
_RESOURCES: Final[dict[Kind, int]] = {"topic": 2, "broker": 4, "group": 32}
_NAMES_A_REQUEST: Final = 250
_SOON_S: Final = 5.0

Values = Mapping[str, str | None]
"""Settings by name, as Kafka's own texts. Settings that a broker does not know are missing."""


class TopicValue(NamedTuple):
    """The value of a topic's setting, and whether it is the topic's own: else it is the brokers' default."""

    value: str | None
    own: bool


UNNAMED: Final = TopicValue(None, own=False)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's live settings. ``retention_ms`` is −1 for infinite, as Kafka writes it.

    ``timestamp_type`` is CreateTime or LogAppendTime, None if the broker returned neither. ``tiered``: it has remote
    storage (KIP-405). ``diskless``: its records are in object storage alone (KIP-1150).
    """

    cleanup_policy: frozenset[str]
    retention_ms: int
    timestamp_type: TimestampType | None = None
    tiered: bool = False
    diskless: bool = False


async def read_topic_configs(
    wire: Wire, topics: Sequence[str], deadline: float, brokers: Iterable[int] | None = None
) -> dict[str, TopicConfig | RequestFailedError]:
    """Return each topic's settings, or why they could not be read. If a broker fails, another one is asked.

    Each leader has its own default where a topic has no cleanup.policy or message.timestamp.type of its own. If brokers
    differ, the one is unknown, and the other is CreateTime: it may be so for some records, and can only hold (G3).
    ``brokers`` are those that may lead (None: all that are known).
    """
    leaders = [*(wire.brokers() if brokers is None else brokers)]
    found = await read_values(wire, "topic", topics, _KEYS, deadline, own=True, brokers=leaders)
    read = {name: dict(one) for name, one in found.items() if not isinstance(one, RequestFailedError)}
    for key in (_POLICY, _STAMPS):
        some = [name for name, values in read.items() if not values.get(key, UNNAMED).own]
        if not some or await _is_everywhere(wire, leaders, some[0], key, read[some[0]].get(key)):
            continue
        for name in some:
            if key == _STAMPS:
                read[name][key] = TopicValue("CreateTime", own=False)
            else:
                found[name] = _DIFFERENT
                del read[name]
    return found | {name: _config({key: one.value for key, one in values.items()}) for name, values in read.items()}


async def _is_everywhere(wire: Wire, brokers: Iterable[int], topic: str, key: str, value: TopicValue | None) -> bool:
    """Return whether brokers have this default for a topic. One that does not answer leads nothing that is read."""
    each = await read_each(wire, "topic", dict.fromkeys(brokers, topic), [key], own=True)
    return all(
        not one.answered if isinstance(one, RequestFailedError) else one.get(key) == value for one in each.values()
    )


async def read_values(
    wire: Wire,
    kind: Kind,
    names: Sequence[str],
    keys: Sequence[str],
    deadline: float,
    *,
    own: bool = False,
    brokers: Sequence[int] = (),
) -> dict[str, Any]:
    """Return the named settings of each topic or group, or why they can't be read.

    ``own``: as :class:`TopicValue`. ``brokers`` are asked (none: all that are known).
    """
    found: dict[str, Any] = {}
    waiting: Sequence[str] = names

    def on_reply(some: Sequence[str], reply: Any | RequestFailedError) -> None:
        found.update(dict.fromkeys(some, reply) if isinstance(reply, RequestFailedError) else _values(reply, own=own))

    for turn in itertools.count():
        found.update(dict.fromkeys(waiting, LEFT_OUT))
        within_reach = brokers or wire.brokers()
        work = by_key(
            (within_reach[number % len(within_reach)], Job(_request(kind, some, keys), some))
            for number, some in enumerate(in_batches(waiting, _NAMES_A_REQUEST), turn)
        )
        await wire.fan_out(work, on_reply)
        waiting = [name for name in waiting if isinstance(one := found[name], RequestFailedError) and one.retriable]
        if not waiting or time.monotonic() > deadline:
            break
        if (turn + 1) % len(within_reach) == 0:
            await wire.sleep(0.25)
    return {name: found[name] for name in names}


async def read_everywhere(
    wire: Wire, topic: str, keys: Sequence[str]
) -> dict[str, frozenset[TopicValue]] | RequestFailedError:
    """Return what brokers report of a topic's settings: they agree on the topic's own, but each has its defaults."""
    found = await read_each(wire, "topic", dict.fromkeys(wire.brokers(), topic), keys, own=True)
    if failed := [one for one in found.values() if isinstance(one, RequestFailedError)]:
        return failed[0]
    return {key: frozenset(one.get(key, UNNAMED) for one in found.values()) for key in keys}


async def read_each(
    wire: Wire, kind: Kind, names: Mapping[int, str], keys: Sequence[str], *, own: bool = False
) -> dict[int, Any]:
    """Return what each broker reports of one topic's settings, or its own, or why they could not be read."""
    found: dict[int, Any] = dict.fromkeys(names, LEFT_OUT)
    work = {broker: [Job(_request(kind, [name], keys), broker)] for broker, name in names.items()}

    def on_reply(broker: int, reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            found[broker] = reply
        else:
            found.update((broker, values) for _name, values in _values(reply, own=own))

    await wire.fan_out(work, on_reply)
    return found


def _request(kind: Kind, names: Sequence[str], keys: Sequence[str]) -> Any:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=_RESOURCES[kind], resource_name=name, configuration_keys=list(keys)
            )
            for name in names
        ]
    )


def _values(reply: Any, *, own: bool = False) -> Iterable[tuple[str, Any]]:
    for result in reply.results:
        error = error_named(result.error_code, result.error_message, needs="DESCRIBE_CONFIGS")
        yield (
            result.resource_name,
            error
            or {
                row.name: TopicValue(row.value, row.config_source == 1) if own else row.value  # 1: DYNAMIC_TOPIC_CONFIG
                for row in result.configs
            },
        )


def _config(values: Values) -> TopicConfig | RequestFailedError:
    policy, retention_ms = values.get(_POLICY), values.get("retention.ms")
    if policy is None or retention_ms is None or re.fullmatch(r"-?[0-9]{1,19}", retention_ms) is None:
        return RequestFailedError(f"cleanup.policy or retention.ms is missing in {sorted(values)}", retriable=False)
    policies = frozenset(one.strip() for one in policy.split(",") if one.strip())
    if more := policies - {"compact", "delete"}:
        return RequestFailedError(f"cleanup.policy has an unknown value: {sorted(more)}", retriable=False)
    if empty := [key for key in (*TIERED, _DISKLESS) if values.get(key, "") is None]:
        return RequestFailedError(f"the broker reports {empty[0]} without a value", retriable=False)
    return TopicConfig(
        policies,
        int(retention_ms),
        timestamp_type=_TYPES.get(values.get(_STAMPS)),
        tiered=is_tiered(values),
        diskless=values.get(_DISKLESS) == "true",
    )


def is_tiered(values: Values) -> bool:
    """Return whether a topic has remote storage. A broker may know none of the settings."""
    return any(values.get(key) == "true" for key in TIERED)
