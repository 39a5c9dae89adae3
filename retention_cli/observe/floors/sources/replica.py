"""Read what MirrorMaker 2 has copied to another cluster (F7; KIP-382, KIP-716).

MirrorMaker 2 continues where its connector has committed: that is a position, like a group's commit, and all before it
was acknowledged, or skipped on purpose. But offsets name records in a log, and either log may have been recreated,
restored or cut since. An offset sync says which record of the copy a record of the source has become. So a position
counts only if the copy is seen to begin and to end as the source does, and only as far as it has the source's records:
see :mod:`.proof`.
"""

from __future__ import annotations

import json
import re
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from retention_cli.brokers.errors import BrokerError, RequestFailedError, SettingsError
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Range, Record
from retention_cli.core.grouping import by_key
from retention_cli.core.model import TopicPartition
from retention_cli.core.printable import plain, printable
from retention_cli.observe.floors.sources.interface import (
    MAX_OFFSET,
    MAX_PARTITION,
    Consumer,
    Consumers,
    Reach,
    SourceError,
)
from retention_cli.observe.floors.sources.proof import Proof, Run, Sync
from retention_cli.policy.model import matches
from retention_cli.policy.settings import FloorSource

_CHECKPOINTS: Final = re.compile(r"(.+)\.checkpoints\.internal")
_LONGEST: Final = 400
"""The longest text of a cluster's error, in characters."""


def read(source: FloorSource, reach: Reach) -> Consumers:
    """Return how far topics were copied. On an empty partition that is its end: there is nothing to copy.

    If one partition was not copied for certain, its complete topic is unreadable.

    Args:
        source: ``place`` is the other cluster's context.
        reach: the cluster that is copied, and the topics whose floors are wanted.

    Raises:
        SourceError: a cluster, the syncs or the committed offsets can't be read, or the names of copies are unknown.
    """
    timeout_s = source.timeout_ms / 1000
    deadline = time.monotonic() + timeout_s
    try:
        with reach.reader.again(timeout_s) as here, reach.reader.of_context(source.place, timeout_s) as there:
            return {source.name: _copied(source, reach, here, there, deadline)}
    except (BrokerError, SettingsError) as error:
        raise SourceError(printable(str(error))[:_LONGEST]) from None


def position_of(extent: Range, sync: Sync | None, committed: int | None) -> int | str:
    """Return how far MirrorMaker 2 says that it copied a partition, or why that is unknown.

    Args:
        extent: S and H of the partition.
        sync: its last offset sync, if there is one.
        committed: the last record that its connector has committed as copied, if there is one.
    """
    if extent.start == extent.end:
        return extent.end
    if sync is None or committed is None:
        what = "no offset sync" if sync is None else "no committed offset"
        return f"MirrorMaker 2 has {what} of it: kretain knows of no copied records"
    return min(sync.upstream, committed) + 1


def _copied(source: FloorSource, reach: Reach, here: ClusterReader, there: ClusterReader, deadline: float) -> Consumer:
    planned, (ours, theirs) = reach.metadata, _clusters(reach, here, there, source.place)
    alias = source.alias or _alias(theirs, source.place)
    at, cluster = (here, ours) if source.syncs_at == "source" else (there, theirs)
    syncs = read_syncs(at, cluster, source.offset_syncs or f"mm2-offset-syncs.{source.place}.internal")
    committed = read_committed(there, theirs, source.connect_offsets or f"mm2-offsets.{alias}.internal", alias)
    candidates = {tp.topic for tp in syncs} & planned.topics.keys() if reach.topics is None else reach.topics
    wanted = sorted(one for one in candidates if matches(source.topics or ("*",), one))
    doubts = {topic: [text] for topic in wanted if (text := _differs(topic, planned, ours)) is not None}
    names = source.remote_topics or f"{alias}.{{topic}}"
    copies = {topic: names.replace("{topic}", topic) for topic in wanted if topic not in doubts}
    extents = read_extents(here, ours, copies)
    remote = read_extents(there, theirs, (one for one in copies.values() if one in theirs.topics))
    found: dict[TopicPartition, int | str] = {}
    claimed: dict[TopicPartition, int] = {}
    runs: list[Run] = []
    for tp, extent in extents.items():
        copy, sync = TopicPartition(copies[tp.topic], tp.partition), syncs.get(tp)
        position = extent if isinstance(extent, str) else position_of(extent, sync, committed.get(tp))
        in_copy = remote.get(copy, "does not exist, or this user may not describe it")
        if isinstance(position, str) or isinstance(extent, str) or sync is None or position <= extent.start:
            found[tp] = position  # unknown, or of the records that are left none was copied
        elif isinstance(in_copy, str):
            found[tp] = f"its copy {plain(str(copy))} in {source.place} {in_copy}"
        else:
            claimed[tp] = position
            runs.append(Run(tp, extent, copy, in_copy, sync))
    proven = Proof(here, there, theirs, source.place, deadline).check(runs)
    for tp, position in claimed.items():
        to = proven[tp]
        found[tp] = to if isinstance(to, str) else min(position, to)
    return _consumer(found, doubts)


def _consumer(found: Mapping[TopicPartition, int | str], doubts: dict[str, list[str]]) -> Consumer:
    """Return positions, or why they are unknown: a doubt about a partition is one about its topic."""
    doubts |= by_key(
        (tp.topic, f"partition {tp.partition}: {one}") for tp, one in found.items() if isinstance(one, str)
    )
    positions = ((tp, one) for tp, one in found.items() if isinstance(one, int) and tp.topic not in doubts)
    return Consumer(
        by_key((tp.topic, (tp.partition, at)) for tp, at in positions),
        unreadable={
            topic: f"{texts[0]} (and {len(texts) - 1:,} more partitions)" if texts[1:] else texts[0]
            for topic, texts in doubts.items()
        },
    )


def _clusters(
    reach: Reach, here: ClusterReader, there: ClusterReader, place: str
) -> tuple[ClusterMetadata, ClusterMetadata]:
    """Return the metadata of the cluster that is planned, and of the one with the copies."""
    ours, theirs = here.metadata(), there.metadata()
    if ours.cluster_id != reach.metadata.cluster_id:
        raise SourceError(f"{here.settings.bootstrap} is now another cluster ({ours.cluster_id})")
    if not theirs.cluster_id or ours.cluster_id == theirs.cluster_id:
        raise SourceError(f"context {place} is this cluster itself")
    return ours, theirs


def _alias(far: ClusterMetadata, place: str) -> str:
    aliases = sorted(found[1] for name in far.topics if (found := _CHECKPOINTS.fullmatch(name)))
    if len(aliases) == 1:
        return aliases[0]
    why = f"it has checkpoints of {len(aliases)}" if aliases else "it has no ALIAS.checkpoints.internal"
    raise SourceError(f"what MirrorMaker 2 calls this cluster is unknown in {place} ({why}): write source.alias")


def _differs(topic: str, planned: ClusterMetadata, current: ClusterMetadata) -> str | None:
    one, other = planned.topics.get(topic), current.topics.get(topic)
    if (
        one is None
        or other is None
        or one.topic_id != other.topic_id
        or one.partitions.keys() != other.partitions.keys()
    ):
        return "brokers do not agree on it yet: it was created or changed just now"
    return None


_LENGTH: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_OFFSETS: Final = struct.Struct(">qq")


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
        case [str(), dict(about)] if about.keys() != {"cluster", "topic", "partition"}:  # another connector's
            return None
        case [str(connector), {"cluster": str(alias), "topic": str(topic), "partition": int(partition)}] if (
            0 <= partition <= MAX_PARTITION
        ):
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
    found = reader.extents(metadata.partitions_of(sorted(set(topics))), end)
    return {tp: f"can't be read: {one}" if isinstance(one, RequestFailedError) else one for tp, one in found.items()}


def read_syncs(reader: ClusterReader, cluster: ClusterMetadata, name: str) -> dict[TopicPartition, Sync]:
    """Return each partition's last offset sync.

    Raises:
        SourceError: the topic does not exist, can't be read, or has a message that is no sync.
        BrokerError: the cluster can't be asked.
    """
    last: dict[TopicPartition, Sync | None] = {}

    def take(record: Record) -> None:
        tp, sync = parse_sync(record.key, bytes(_OFFSETS.size) if record.value is None else record.value)
        last[tp] = None if record.value is None else sync

    if (topic := cluster.topics.get(name)) is not None and len(topic.partitions) != 1:
        raise SourceError(f"{name} has {len(topic.partitions)} partitions, so which sync is the last is unknown")
    _read(reader, cluster, name, "offset.syncs", take)
    return {tp: sync for tp, sync in last.items() if sync is not None}


def read_committed(reader: ClusterReader, cluster: ClusterMetadata, name: str, alias: str) -> dict[TopicPartition, int]:
    """Return, per partition of the cluster of that alias, the last record that is committed as copied.

    If two connectors copy a partition, it is that of the one behind.

    Raises:
        SourceError: the topic does not exist, can't be read, or has a message that is no offset.
        BrokerError: the cluster can't be asked.
    """
    last: dict[Committed, int | None] = {}

    def take(record: Record) -> None:
        if (commit := parse_committed(record.key, record.value)) is not None and commit[0].alias == alias:
            last[commit[0]] = commit[1]

    _read(reader, cluster, name, "connect.offsets", take)
    of_connectors = by_key((whose.tp, offset) for whose, offset in last.items())
    return {
        tp: min(one for one in offsets if one is not None)
        for tp, offsets in of_connectors.items()
        if None not in offsets  # one was taken back
    }


def _read(reader: ClusterReader, cluster: ClusterMetadata, name: str, key: str, take: Callable[[Record], None]) -> None:
    """Read a topic up to its last stable offset; ``key`` is the policy's for its name."""
    if name not in cluster.topics:
        raise SourceError(
            f"{reader.settings.bootstrap} has no topic {name}, or this user may not describe it: write {key}"
        )
    invalid: list[int] = []

    def checked(record: Record) -> None:
        try:
            take(record)
        except ValueError:
            invalid.append(record.offset)

    for tp, extent in read_extents(reader, cluster, [name], "last-stable").items():
        if isinstance(extent, str):
            raise SourceError(f"{tp} {extent}")
        if extent.start == extent.end:
            continue
        if isinstance(reached := reader.read_complete(tp, extent, checked), RequestFailedError) or reached < extent.end:
            raise SourceError(f"{tp} can't be read to its end: {plain(str(reached))}")
        if invalid:
            raise SourceError(f"{tp}: the message at offset {invalid[0]:,} is not what MirrorMaker 2 writes there")
