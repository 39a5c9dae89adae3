"""Decode Metadata answers in one go: a plan reads every partition's metadata twice.

The client would make an object of each partition, with lists of nodes that nothing here looks at. Here partitions with
the same leader, epoch and replicas share one value: there are far fewer of those than partitions.
tests/unit/brokers/test_metadata_answers.py checks that both decoders agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from retention_cli.brokers.wire.response_bytes import after_tags, decoded_by, length, short, string, whole

IDS_VERSION: Final = 10
"""The first version with topic ids: without them a recreated topic can't be told from the original."""
_LAST_VERSION: Final = 12
_CLUSTER_OPERATIONS_UP_TO: Final = 10

_NUMBER: Final = Struct(">i")
_PARTITION: Final = Struct(">hiii")

Partition = tuple[int, int, tuple[int, ...]]
"""Its leader (−1 for none), leader epoch and replicas."""
_Known = dict[tuple[int, int, bytes], Partition]


class Topic(NamedTuple):
    """A topic's error code, name, id (16 bytes, zeros for none), whether it is internal, its partitions by index."""

    error_code: int
    name: str
    topic_id: bytes
    internal: bool
    partitions: dict[int, Partition]


@dataclass(frozen=True, slots=True)
class Answer:
    """A broker's answer: the cluster's id, the ids of its brokers, and topics."""

    cluster_id: str
    brokers: frozenset[int]
    topics: list[Topic]


def request(names: list[str] | None) -> Any:
    """Return a request for the metadata of these topics, or of all (None)."""
    wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return _Request(topics=wanted, allow_auto_topic_creation=False, min_version=IDS_VERSION, max_version=_LAST_VERSION)


def decode(data: bytes, version: int) -> Answer:
    """Decode the body of a Metadata response of version 10, 11 or 12.

    Raises:
        ValueError: it is malformed.
    """
    return whole("Metadata", data, partial(_answer, version=version))


_Request: Final = decoded_by(
    MetadataRequest,
    MetadataResponse,
    {version: partial(decode, version=version) for version in range(IDS_VERSION, _LAST_VERSION + 1)},
)


def _answer(data: bytes, version: int) -> tuple[Answer, int]:
    count, position = length(data, 4)  # after the throttle time
    brokers = set()
    for _ in range(count):
        broker, position = _number(data, position)
        _host, position = string(data, position)
        _rack, position = string(data, position + 4)  # after the port
        position = after_tags(data, position)
        brokers.add(broker)
    cluster_id, position = string(data, position)
    count, position = length(data, position + 4)  # after the controller
    topics = []
    known: _Known = {}
    for _ in range(count):
        topic, position = _topic(data, position, known)
        topics.append(topic)
    if version <= _CLUSTER_OPERATIONS_UP_TO:
        position += 4
    return Answer(cluster_id, frozenset(brokers), topics), after_tags(data, position)


def _topic(data: bytes, position: int, known: _Known) -> tuple[Topic, int]:
    error, position = short(data, position)
    name, position = string(data, position)
    topic_id, internal = data[position : position + 16], data[position + 16]
    count, position = length(data, position + 17)
    partitions: dict[int, Partition] = {}
    for _ in range(count):
        if position + _PARTITION.size > len(data):
            raise IndexError
        _error, index, leader, epoch = _PARTITION.unpack_from(data, position)
        nodes, position = length(data, position + _PARTITION.size)
        end = position + 4 * nodes
        if end > len(data):
            raise IndexError
        key = (leader, epoch, data[position:end])
        if (one := known.get(key)) is None:
            one = known[key] = (leader, epoch, tuple(node for (node,) in _NUMBER.iter_unpack(key[2])))
        partitions[index] = one
        nodes, position = length(data, end)  # in sync
        nodes, position = length(data, position + 4 * nodes)  # offline
        position = after_tags(data, position + 4 * nodes)
    return Topic(error, name, topic_id, bool(internal), partitions), after_tags(data, position + 4)  # after operations


def _number(data: bytes, position: int) -> tuple[int, int]:
    if position + _NUMBER.size > len(data):
        raise IndexError
    return _NUMBER.unpack_from(data, position)[0], position + _NUMBER.size
