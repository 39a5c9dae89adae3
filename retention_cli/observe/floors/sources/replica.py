"""Read what MirrorMaker 2 has copied to another cluster (F7; KIP-382, KIP-716).

From time to time MirrorMaker 2 writes an offset sync: which record of the copy a record of this cluster has become,
once the other cluster has acknowledged it. All records before that one were copied earlier. A partition's last sync is
believed if both records are still there and equal: nothing else proves that neither topic was recreated, restored or
cut since, and that it is the copy.
"""

from __future__ import annotations

import hashlib
import re
import struct
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from retention_cli.brokers.content import Record
from retention_cli.brokers.errors import BrokerError, RequestFailedError, SettingsError
from retention_cli.brokers.log_offsets import Found, Spec
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import LOG_APPEND_TIME, Message, Range
from retention_cli.core.model import TopicPartition
from retention_cli.core.printable import printable
from retention_cli.observe.floors.sources.interface import Consumer, Consumers, Position, Reach, SourceError
from retention_cli.policy.model import matches
from retention_cli.policy.settings import FloorSource
from retention_cli.policy.shown import plain

_CHECKPOINTS: Final = re.compile(r"(.+)\.checkpoints\.internal")
_LONGEST: Final = 400
"""No error of a cluster is longer, in characters."""
_LENGTH: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_OFFSETS: Final = struct.Struct(">qq")


class Sync(NamedTuple):
    """An offset sync: the record ``upstream`` is the record ``downstream`` of the copy."""

    upstream: int
    downstream: int


class Extent(NamedTuple):
    """S and H of a partition."""

    start: int
    end: int


class Print(NamedTuple):
    """What is compared of a record: its timestamp, whether a broker stamped it, and a digest of its key and value."""

    timestamp: int
    stamped: bool
    content: bytes


def read(source: FloorSource, reach: Reach) -> Consumers:
    """Return how far topics were copied. On an empty partition that is its end: there is nothing to copy.

    A topic of which a partition was not copied for certain is unreadable as a whole.

    Args:
        source: ``place`` is the other cluster's context.
        reach: the cluster that is copied, and the topics whose floors are wanted.

    Raises:
        SourceError: a cluster or the syncs can't be read, or what copies are called can't be told.
    """
    timeout_s = source.timeout_ms / 1000
    deadline = time.monotonic() + timeout_s
    try:
        with reach.reader.again(timeout_s) as here, reach.reader.of_context(source.place, timeout_s) as there:
            return {source.name: _Replica(source, here, there, deadline).copied(reach.topics)}
    except (BrokerError, SettingsError) as error:
        raise SourceError(printable(str(error))[:_LONGEST]) from None


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


def position_of(extent: Extent, sync: Sync | None, there: Extent | None) -> int | str:
    """Return where the copy of a partition stands if its last sync can be believed, or why that is unknown.

    Args:
        extent: S and H of the partition.
        sync: its last offset sync, if there is one.
        there: S and H of its copy; None if there is no copy.
    """
    if extent.start == extent.end:
        return extent.end
    if sync is None:
        return "MirrorMaker 2 has told no offset sync: if it does not copy this topic, leave it out of topics"
    if sync.upstream < extent.start:
        return sync.upstream + 1
    if there is None:
        return "its copy is not there, or this user may not describe it"
    if not there.start <= sync.downstream < there.end:
        return (
            f"the copy of offset {sync.upstream:,} is no longer there: it was offset {sync.downstream:,} of what has "
            f"{there.start:,} to {there.end:,}"
        )
    return sync.upstream + 1


def is_copy(one: Print, other: Print) -> bool:
    """Return whether a record in the other cluster is a copy of one here."""
    return one.content == other.content and (one.timestamp == other.timestamp or other.stamped)


@dataclass(frozen=True, slots=True)
class _Replica:
    source: FloorSource
    here: ClusterReader
    there: ClusterReader
    deadline: float

    def copied(self, topics: Collection[str] | None) -> Consumer:
        """Return the positions on these topics (None: on those that have syncs)."""
        near, far = self.here.metadata(), self.there.metadata()
        if not far.cluster_id or near.cluster_id == far.cluster_id:
            raise SourceError(f"context {self.source.place} is this cluster itself")
        names = self._names(far)
        syncs = self._syncs(near if self.source.syncs_at == "source" else far)
        wanted = {tp.topic for tp in syncs} if topics is None else set(topics)
        wanted = {one for one in wanted & near.topics.keys() if matches(self.source.topics or ("*",), one)}
        extents = _extents(self.here, near, wanted)
        copies = {topic: names.replace("{topic}", topic) for topic in sorted(wanted)}
        remote = _extents(self.there, far, {one for one in copies.values() if one in far.topics})
        positions: dict[str, list[Position]] = {}
        doubts: dict[str, list[str]] = {}
        to_prove: dict[TopicPartition, Sync] = {}
        for tp, extent in extents.items():
            there = remote.get(TopicPartition(copies[tp.topic], tp.partition))
            if isinstance(extent, str):
                told: int | str = extent
            elif isinstance(there, str):
                told = f"{plain(copies[tp.topic])} in {self.source.place}: {there}"
            else:
                told = position_of(extent, syncs.get(tp), there)
            if isinstance(told, str):
                doubts.setdefault(tp.topic, []).append(f"partition {tp.partition}: {told}")
                continue
            positions.setdefault(tp.topic, []).append((tp.partition, told))
            if not isinstance(extent, str) and extent.start < told and extent.start < extent.end:
                to_prove[tp] = syncs[tp]
        for tp, text in self._unproven(to_prove, copies):
            doubts.setdefault(tp.topic, []).append(f"partition {tp.partition}: {text}")
        sound = {topic: rows for topic, rows in positions.items() if topic not in doubts}
        return Consumer(sound, unreadable={topic: _first(texts) for topic, texts in doubts.items()})

    def _names(self, far: ClusterMetadata) -> str:
        """Return what copies are called."""
        if self.source.remote_topics:
            return self.source.remote_topics
        aliases = sorted(found[1] for name in far.topics if (found := _CHECKPOINTS.fullmatch(name)))
        if len(aliases) == 1:
            return f"{aliases[0]}.{{topic}}"
        why = f"it has checkpoints of {len(aliases)}" if aliases else "it has no ALIAS.checkpoints.internal"
        raise SourceError(
            f"what copies are called in {self.source.place} can't be told ({why}): write remote.topics, such as "
            "primary.{topic}"
        )

    def _syncs(self, cluster: ClusterMetadata) -> dict[TopicPartition, Sync]:
        """Return each partition's last offset sync."""
        name = self.source.offset_syncs or f"mm2-offset-syncs.{self.source.place}.internal"
        reader, where = self.here, "here"
        if self.source.syncs_at == "target":
            reader, where = self.there, f"in {self.source.place}"
        if (topic := cluster.topics.get(name)) is None:
            raise SourceError(f"there is no topic {name} {where}, or this user may not describe it: write offset.syncs")
        if len(topic.partitions) != 1:
            raise SourceError(f"{name} has {len(topic.partitions)} partitions, so which sync is the last can't be told")
        tp = TopicPartition(name, 0)
        extent = _extents(reader, cluster, [name])[tp]
        if isinstance(extent, str):
            raise SourceError(f"{name}: {extent}")
        found: dict[TopicPartition, Sync] = {}
        odd: list[int] = []

        def take(record: Record) -> None:
            if odd:
                return
            try:
                if record.value is not None:
                    about, sync = parse_sync(record.key, record.value)
                    found[about] = sync
                else:
                    about, _ = parse_sync(record.key, bytes(_OFFSETS.size))
                    found.pop(about, None)
            except ValueError:
                odd.append(record.offset)

        reached = reader.read_whole(tp, Range(*extent), take)
        if isinstance(reached, RequestFailedError) or reached < extent.end:
            raise SourceError(f"{name} can't be read to its end: {plain(str(reached))}")
        if odd:
            raise SourceError(f"{name}: the message at offset {odd[0]:,} is no offset sync")
        return found

    def _unproven(
        self, syncs: Mapping[TopicPartition, Sync], copies: Mapping[str, str]
    ) -> Iterator[tuple[TopicPartition, str]]:
        """Yield the partitions where the record and its copy are not the same, or could not be read."""
        ours = self._prints(self.here, {tp: sync.upstream for tp, sync in syncs.items()})
        theirs = self._prints(
            self.there, {TopicPartition(copies[tp.topic], tp.partition): sync.downstream for tp, sync in syncs.items()}
        )
        for tp, sync in syncs.items():
            one, other = ours[tp], theirs[TopicPartition(copies[tp.topic], tp.partition)]
            copy = f"offset {sync.downstream:,} of {plain(copies[tp.topic])} in {self.source.place}"
            if isinstance(one, str):
                yield tp, f"offset {sync.upstream:,}: {one}"
            elif isinstance(other, str):
                yield tp, f"{copy}: {other}"
            elif not is_copy(one, other):
                why = "a topic was recreated, or records are changed on the way"
                yield tp, f"{copy} is not a copy of offset {sync.upstream:,}: {why}"

    def _prints(
        self, reader: ClusterReader, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Print | str]:
        """Return what is compared of these records, or why one can't be read."""
        found: dict[TopicPartition, Print | str] = {}

        def take(tp: TopicPartition, message: Message) -> bool:
            found[tp] = _print(message)
            return True

        ranges = {tp: Range(offset, offset + 1) for tp, offset in offsets.items()}
        for tp, error in reader.read_ranges(ranges, self.deadline, take).items():
            if error is not None:
                found[tp] = f"the record can't be read: {error}"
            elif tp not in found:
                found[tp] = "the record is gone (compacted, or its transaction was aborted)"
        return found


def _print(message: Message) -> Print:
    digest = hashlib.sha256()
    for one in (message.key(), message.value()):
        digest.update(b"-" if one is None else b"%d:" % len(one))
        digest.update(one or b"")
    kind, timestamp = message.timestamp()
    return Print(timestamp, kind == LOG_APPEND_TIME, digest.digest())


def _extents(
    reader: ClusterReader, metadata: ClusterMetadata, topics: Collection[str]
) -> dict[TopicPartition, Extent | str]:
    """Return S and H of each partition of these topics, or why one can't be read."""
    leaders = metadata.places(sorted(topics))
    specs: tuple[Spec, ...] = ("earliest", "latest")
    starts, ends = reader.list_offsets([dict.fromkeys(leaders, spec) for spec in specs], leaders)
    found: dict[TopicPartition, Extent | str] = {}
    for tp in leaders:
        start, end = starts[tp], ends[tp]
        if isinstance(start, Found) and isinstance(end, Found):
            found[tp] = Extent(start.offset, end.offset)
        else:
            failed = next((one for one in (start, end) if isinstance(one, RequestFailedError)), "it names no end")
            found[tp] = f"its ends can't be read: {failed}"
    return found


def _first(texts: list[str]) -> str:
    more = f" (and {len(texts) - 1:,} more partitions)" if len(texts) > 1 else ""
    return f"{texts[0]}{more}"
