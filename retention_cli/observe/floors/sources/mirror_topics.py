"""Read what MirrorMaker 2 and Kafka Connect write about a copy: offset syncs, and how far a copier has committed.

An offset sync (KIP-382) says which record of the copy a record of the source has become. A committed offset of the
connector is where MirrorMaker 2 goes on after a failure: all before it was acknowledged, or skipped on purpose.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NamedTuple

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Range, Record
from retention_cli.core.model import TopicPartition
from retention_cli.observe.floors.sources.interface import MAX_OFFSET, MAX_PARTITION, SourceError
from retention_cli.policy.shown import plain

_LENGTH: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_OFFSETS: Final = struct.Struct(">qq")
_OF_A_COPY: Final = frozenset({"cluster", "topic", "partition"})


class Sync(NamedTuple):
    """An offset sync: the record ``upstream`` is the record ``downstream`` of the copy."""

    upstream: int
    downstream: int


class Committed(NamedTuple):
    """Whose committed offset it is: the connector's, for a partition of the cluster of that alias."""

    connector: str
    alias: str
    tp: TopicPartition


def parse_sync(key: bytes | None, value: bytes) -> tuple[TopicPartition, Sync]:
    """Return a message of MirrorMaker 2's topic of offset syncs.

    The key is a string (an int16 length before it) and an int32, the value two int64, all big-endian.

    Raises:
        ValueError: it is no such message.
    """
    if key is None or len(key) < _LENGTH.size:
        raise ValueError
    end = _LENGTH.size + _LENGTH.unpack_from(key)[0]
    if end < _LENGTH.size or len(key) != end + _PARTITION.size or len(value) != _OFFSETS.size:
        raise ValueError
    (partition,) = _PARTITION.unpack_from(key, end)
    sync = Sync(*_OFFSETS.unpack(value))
    if min(partition, *sync) < 0:
        raise ValueError
    return TopicPartition(key[_LENGTH.size : end].decode(), partition), sync


def parse_committed(key: bytes | None, value: bytes | None) -> tuple[Committed, int | None] | None:
    """Return a message of Kafka Connect's topic of offsets: the last record that was copied; None if of another kind.

    The key is JSON, ``[CONNECTOR, {"cluster": ALIAS, "partition": N, "topic": TOPIC}]``, the value ``{"offset": N}``,
    or nothing where the offset was taken back.

    Raises:
        ValueError: it is no such message.
    """
    match _json(key):
        case [str(connector), dict(about)]:
            pass
        case _:
            raise ValueError
    if about.keys() != _OF_A_COPY:  # another connector's
        return None
    match about["cluster"], about["topic"], about["partition"]:
        case str(alias), str(topic), int(partition) if 0 <= partition <= MAX_PARTITION:
            whose = Committed(connector, alias, TopicPartition(topic, partition))
        case _:
            raise ValueError
    if value is None:
        return whose, None
    match _json(value):
        case {"offset": int(offset)} if 0 <= offset < MAX_OFFSET and not isinstance(offset, bool):
            return whose, offset
        case _:
            raise ValueError


def _json(text: bytes | None) -> Any:
    if text is None or len(text) > 10_000:
        raise ValueError
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError from None


def read_extents(
    reader: ClusterReader,
    metadata: ClusterMetadata,
    topics: Iterable[str],
    end: Literal["latest", "last-stable"] = "latest",
) -> dict[TopicPartition, Range | str]:
    """Return where each partition of these topics begins and ends, or why that can't be read."""
    found = reader.extents(metadata.places(sorted(set(topics))), end)
    return {tp: f"can't be read: {one}" if isinstance(one, RequestFailedError) else one for tp, one in found.items()}


def read_syncs(reader: ClusterReader, cluster: ClusterMetadata, name: str) -> dict[TopicPartition, Sync]:
    """Return each partition's last offset sync.

    Raises:
        SourceError: the topic is not there, can't be read, or has what is no sync.
        BrokerError: the cluster can't be asked.
    """
    found: dict[TopicPartition, Sync] = {}

    def take(record: Record) -> None:
        if record.value is None:
            found.pop(parse_sync(record.key, bytes(_OFFSETS.size))[0], None)
        else:
            about, sync = parse_sync(record.key, record.value)
            found[about] = sync

    topic = cluster.topics.get(name)
    if topic is not None and len(topic.partitions) != 1:
        raise SourceError(f"{name} has {len(topic.partitions)} partitions, so which sync is the last is unknown")
    _read(reader, cluster, name, "offset.syncs", take)
    return found


def read_committed(reader: ClusterReader, cluster: ClusterMetadata, name: str, alias: str) -> dict[TopicPartition, int]:
    """Return, per partition of the cluster of that alias, the last record that is committed as copied.

    Of two connectors that copy a partition it is that of the one behind.

    Raises:
        SourceError: the topic is not there, can't be read, or has what is no offset.
        BrokerError: the cluster can't be asked.
    """
    last: dict[Committed, int | None] = {}

    def take(record: Record) -> None:
        if (told := parse_committed(record.key, record.value)) is not None and told[0].alias == alias:
            last[told[0]] = told[1]

    _read(reader, cluster, name, "connect.offsets", take)
    taken_back = {whose.tp for whose, offset in last.items() if offset is None}
    found: dict[TopicPartition, int] = {}
    for whose, offset in last.items():
        if offset is not None and whose.tp not in taken_back:
            found[whose.tp] = min(offset, found.get(whose.tp, offset))
    return found


def _read(reader: ClusterReader, cluster: ClusterMetadata, name: str, key: str, take: Callable[[Record], None]) -> None:
    """Read a topic up to its last stable offset; ``key`` is the policy's for its name."""
    if name not in cluster.topics:
        where = reader.settings.bootstrap
        raise SourceError(f"{where} has no topic {name}, or this user may not describe it: write {key}")
    invalid: list[int] = []

    def checked(record: Record) -> None:
        if invalid:
            return
        try:
            take(record)
        except ValueError:
            invalid.append(record.offset)

    for tp, extent in read_extents(reader, cluster, [name], "last-stable").items():
        if isinstance(extent, str):
            raise SourceError(f"{tp} {extent}")
        if extent.start == extent.end:
            continue
        reached = reader.read_whole(tp, extent, checked)
        if isinstance(reached, RequestFailedError) or reached < extent.end:
            raise SourceError(f"{tp} can't be read to its end: {plain(str(reached))}")
        if invalid:
            raise SourceError(f"{tp}: the message at offset {invalid[0]:,} is not what MirrorMaker 2 writes there")
