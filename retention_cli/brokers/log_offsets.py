"""What brokers know of logs: ends, offsets by time, leader epochs, open transactions (KIP-664), and bytes on disk.

Sentinels don't leave this module.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Any, Final, Literal, NamedTuple, cast

from kafka.protocol.admin import (
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest
from kafka.protocol.schemas.fields.codecs import UnsignedVarInt32

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.wire.answers import after_tags, decode_body, decoded_by, length, string
from retention_cli.brokers.wire.connections import LEFT_OUT, Job, Wire, error_named, failure_of
from retention_cli.core.grouping import by_key, in_batches
from retention_cli.core.model import Maybe, TopicPartition, Unknown

PARTITIONS_A_REQUEST: Final = 1_000
"""How many partitions a request names at most."""

Spec = Literal["earliest", "latest", "last-stable", "max-timestamp"] | int
"""The kind of look-up; a number is a time in Unix ms."""

_TIMESTAMPS: Final = {"earliest": -2, "latest": -1, "last-stable": -1, "max-timestamp": -3}


class Found(NamedTuple):
    """An offset, and the timestamp of the record there, None if the broker did not return it."""

    offset: int
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class NotFound:
    """The broker returned −1: no such offset. This never means "the end" (docs/rules.md, Look-ups)."""


Answer = Found | NotFound | RequestFailedError
Leaders = Mapping[TopicPartition, PartitionMetadata]
"""The brokers to ask: each partition with its leader and leader epoch in the first metadata read."""

_NOT_FOUND: Final = NotFound()
_NO_LEADER: Final = RequestFailedError("it has no leader", retriable=True)

Wanted = Mapping[TopicPartition, Spec]
"""The look-up of each partition. ``last-stable`` and ``max-timestamp`` can't be mixed with others in a mapping."""


async def list_offsets(wire: Wire, wanted: Sequence[Wanted], leaders: Leaders) -> list[dict[TopicPartition, Answer]]:
    """Look up offsets at the partitions' leaders, all mappings at once; return one answer or error per partition.

    Requests are not repeated: a leader that moved is an error (the broker checks the epoch).
    ``last-stable`` is read_committed, all others are read_uncommitted.
    """
    found: list[dict[TopicPartition, Answer]] = [dict.fromkeys(one, LEFT_OUT) for one in wanted]
    work: dict[int, list[tuple[int, _Slice]]] = {}
    for number, one in enumerate(wanted):
        led, homeless = by_leader(one, leaders)
        found[number].update(dict.fromkeys(homeless, _NO_LEADER))
        for leader, partitions in led.items():
            work.setdefault(leader, []).extend((number, cut) for cut in _slices(partitions, one, leaders))

    def on_reply(about: tuple[int, _Slice], reply: Any | RequestFailedError) -> None:
        number, cut = about
        # All partitions are keys already, and a plain tuple finds one in half the time of making a TopicPartition.
        answers = cast(dict[tuple[str, int], Answer], found[number])
        if isinstance(reply, RequestFailedError):
            answers.update(((topic, row[0]), reply) for topic, rows in cut.items() for row in rows)
            return
        for topic, partition, error, timestamp, offset in reply.rows:
            if (place := (topic, partition)) in answers:  # else it was not asked for
                answers[place] = _answer(error, timestamp, offset)

    def jobs(cuts: Sequence[tuple[int, _Slice]]) -> Iterator[Job[tuple[int, _Slice]]]:
        for number, cut in cuts:  # a request is made when its turn comes, so that not all of them are in memory
            spec = next(iter(wanted[number].values()))
            request = OffsetRequest(cut, committed=spec == "last-stable", timed=spec == "max-timestamp")
            yield Job(request, (number, cut))

    await wire.fan_out({leader: jobs(cuts) for leader, cuts in work.items()}, on_reply)
    return found


def _answer(error_code: int, timestamp: int, offset: int) -> Answer:
    if error_code:
        return error_named(error_code) or LEFT_OUT
    return _NOT_FOUND if offset < 0 else Found(offset, timestamp if timestamp >= 0 else None)


class OffsetsAnswer(NamedTuple):
    """A ListOffsets answer: the topic, partition, error code, timestamp and offset of each row."""

    throttle_time_ms: int
    rows: list[tuple[str, int, int, int, int]]


_ROW: Final = Struct(">ihqq4x")
"""Partition, error, timestamp, offset, and the leader epoch, which nothing needs."""


def decode(data: bytes) -> OffsetsAnswer:
    """Decode the body of a ListOffsets response of version 6 or 7.

    The client makes an object of each row, which takes half as long again.

    Raises:
        ValueError: it is malformed.
    """
    return decode_body("ListOffsets", data, _decode)


def _decode(data: bytes) -> tuple[OffsetsAnswer, int]:
    found: list[tuple[str, int, int, int, int]] = []
    topics, position = length(data, 4)  # after the throttle time
    for _ in range(topics):
        name, position = string(data, position)
        count, position = length(data, position)
        for _ in range(count):
            found.append((name, *_ROW.unpack_from(data, position)))
            position = after_tags(data, position + _ROW.size)
        position = after_tags(data, position)
    return OffsetsAnswer(int.from_bytes(data[:4], "big"), found), after_tags(data, position)


_Slice = dict[str, list[tuple[int, int, int]]]
"""The content of a request: by topic, partitions with their leader epochs and times (or Kafka's sentinels)."""


_MAX_TIMESTAMP_VERSION: Final = 7
"""The first version with MAX_TIMESTAMP. Brokers before 3.0 would silently return the first record instead."""


_Request: Final = decoded_by(ListOffsetsRequest, ListOffsetsResponse, dict.fromkeys((6, 7), decode))


class OffsetRequest(_Request, init=False):  # type: ignore[call-arg,misc,valid-type]
    """A request for the look-ups in ``wanted``. ``committed``: read_committed; ``timed``: they are MAX_TIMESTAMP.

    A plan looks up every partition five times, and the client takes 20 times as long to encode rows one by one.
    tests/unit/brokers/test_wire.py checks that both yield the same bytes.
    """

    def __init__(self, wanted: _Slice, *, committed: bool = False, timed: bool = False) -> None:
        super().__init__(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[],
            min_version=_MAX_TIMESTAMP_VERSION if timed else 6,  # the first with tagged fields, which 2.8 has
            max_version=_MAX_TIMESTAMP_VERSION,
        )
        self.wanted = wanted

    def encode(self, version: int | None = None, header: bool = False, framed: bool = False) -> bytes:
        """Return the client's encoding without topics, followed by the topics."""
        parts = [super().encode(version, header, framed)[: -len(b"\1\0")], _length(len(self.wanted))]
        for topic, rows in self.wanted.items():
            name = topic.encode()
            packed = struct.pack(f">{'iiqx' * len(rows)}", *chain.from_iterable(rows))
            parts += (_length(len(name)), name, _length(len(rows)), packed, b"\0")
        message = b"".join((*parts, b"\0"))
        return (len(message) - 4).to_bytes(4, "big") + message[4:] if framed else message


@lru_cache(maxsize=PARTITIONS_A_REQUEST)
def _length(size: int) -> bytes:
    return bytes(UnsignedVarInt32.encode(size + 1))


def _slices(partitions: Sequence[TopicPartition], wanted: Wanted, leaders: Leaders) -> Iterator[_Slice]:
    for chunk in in_batches(partitions, PARTITIONS_A_REQUEST):
        cut: _Slice = {}
        for tp in chunk:
            spec = wanted[tp]
            if not isinstance(spec, int):
                spec = _TIMESTAMPS[spec]
            elif spec < 0:  # to a broker, -1 means "the end"
                raise ValueError(f"{tp}: {spec} is not a time to look up")
            topic, partition = tp
            cut.setdefault(topic, []).append((partition, leaders[tp].leader_epoch, spec))
        yield cut


async def epoch_ends(
    wire: Wire, wanted: Sequence[tuple[TopicPartition, int]], leaders: Leaders
) -> dict[tuple[TopicPartition, int], Answer]:
    """Ask leaders where leader epochs end (OffsetForLeaderEpoch), by partition and epoch.

    The answer is ``NotFound`` if the log has no record of the epoch, unless it is the current one. The leader then
    returns the highest earlier epoch that has records, and that epoch's end is returned, too.
    """
    found: dict[tuple[TopicPartition, int], Answer] = dict.fromkeys(wanted, LEFT_OUT)
    by_partition = by_key(wanted)

    def on_reply(epochs: Mapping[TopicPartition, int], reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            found.update(dict.fromkeys(epochs.items(), reply))
            return
        for topic in reply.topics:
            for row in topic.partitions:
                if (tp := TopicPartition(topic.topic, row.partition)) not in epochs:
                    continue
                epoch, named = epochs[tp], row.leader_epoch
                failed = error_named(row.error_code)
                if failed is None and 0 <= named < epoch:
                    found[tp, named] = Found(row.end_offset)
                is_known = row.end_offset >= 0 and named == epoch
                found[tp, epoch] = failed or (Found(row.end_offset) if is_known else _NOT_FOUND)

    for turn in range(max(map(len, by_partition.values()), default=0)):  # a partition may be in a request only once
        epochs = {tp: some[turn] for tp, some in by_partition.items() if turn < len(some)}
        led, homeless = by_leader(epochs, leaders)
        found.update({(tp, epochs[tp]): _NO_LEADER for tp in homeless})
        work = by_key(
            (leader, Job(_epoch_request(one, leaders), one))
            for leader, tps in led.items()
            for one in ({tp: epochs[tp] for tp in some} for some in in_batches(tps, PARTITIONS_A_REQUEST))
        )
        await wire.fan_out(work, on_reply)
    return found


def _epoch_request(epochs: Mapping[TopicPartition, int], leaders: Leaders) -> Any:
    topic_class = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    return OffsetForLeaderEpochRequest(
        min_version=2,  # the first that refuses a deposed leader; version 0 does not say which epoch's end it names
        replica_id=-1,
        topics=[
            topic_class(
                topic=name,
                partitions=[
                    topic_class.OffsetForLeaderPartition(
                        partition=tp.partition, current_leader_epoch=leaders[tp].leader_epoch, leader_epoch=epochs[tp]
                    )
                    for tp in tps
                ],
            )
            for name, tps in by_topic(epochs).items()
        ],
    )


def by_leader(
    partitions: Iterable[TopicPartition], leaders: Leaders
) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
    """Return partitions by their leaders, and those that have none."""
    led = by_key((leaders[tp].leader, tp) for tp in partitions)
    return {leader: tps for leader, tps in led.items() if leader is not None}, led.get(None, [])


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Return the partitions by topic, as requests name them."""
    return by_key((tp.topic, tp) for tp in partitions)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The transaction that begins at a log's last stable offset.

    ``last_write_ms`` is the timestamp of its producer's newest batch in this log. ``name`` (transactional.id) and
    ``since_ms`` (its coordinator's clock) are None where they could not be read, as without DESCRIBE on that id.
    """

    producer: int
    last_write_ms: int
    name: str | None = None
    since_ms: int | None = None


async def read_open_transactions(wire: Wire, leaders: Leaders) -> dict[TopicPartition, OpenTransaction]:
    """Return the transaction that begins first in each log that has one. What can't be read is left out.

    It takes READ on the topics, for names and times also DESCRIBE on the transactional ids, and brokers from 2.8 on.
    """
    found: dict[TopicPartition, OpenTransaction] = {}

    def on_producers(_: None, reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            return
        for topic in reply.topics:
            for one in topic.partitions:
                still = [row for row in one.active_producers if row.current_txn_start_offset >= 0]
                if not one.error_code and still:
                    first = min(still, key=lambda row: row.current_txn_start_offset)
                    found[TopicPartition(topic.name, one.partition_index)] = OpenTransaction(
                        first.producer_id, first.last_timestamp
                    )

    work = {
        leader: [Job(_producers_of(some), None) for some in in_batches(tps, PARTITIONS_A_REQUEST)]
        for leader, tps in by_leader(leaders, leaders)[0].items()
    }
    await wire.fan_out(work, on_producers)
    named = await _names_of(wire, {one.producer for one in found.values()}) if found else {}
    return {
        tp: OpenTransaction(one.producer, one.last_write_ms, *named.get(one.producer, (None, None)))
        for tp, one in found.items()
    }


def _producers_of(partitions: Iterable[TopicPartition]) -> Any:
    return DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[tp.partition for tp in tps])
            for name, tps in by_topic(partitions).items()
        ]
    )


async def _names_of(wire: Wire, producers: Collection[int]) -> dict[int, tuple[str, int | None]]:
    """Return the transactional ids of producers, and since when the transaction of each is open, as far as known."""
    led_by: dict[int, list[str]] = {}
    found: dict[int, tuple[str, int | None]] = {}

    def on_list(broker: int, reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError) or reply.error_code:
            return
        for one in reply.transaction_states:
            if one.producer_id in producers:
                led_by.setdefault(broker, []).append(one.transactional_id)
                found[one.producer_id] = (one.transactional_id, None)

    def on_described(_: None, reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            return
        for one in reply.transaction_states:
            if not one.error_code and one.transaction_start_time_ms > 0 and one.producer_id in found:
                found[one.producer_id] = (one.transactional_id, one.transaction_start_time_ms)

    listing = {
        broker: [
            Job(ListTransactionsRequest(state_filters=[], producer_id_filters=sorted(producers), min_version=0), broker)
        ]
        for broker in wire.brokers()
    }
    await wire.fan_out(listing, on_list)
    await wire.fan_out(
        {broker: [Job(DescribeTransactionsRequest(transactional_ids=some), None)] for broker, some in led_by.items()},
        on_described,
    )
    return found


class Replica(NamedTuple):
    """A replica's bytes in a log dir. ``future``: it is a copy that is being moved there from another dir."""

    tp: TopicPartition
    size_bytes: int
    future: bool


@dataclass(frozen=True, slots=True)
class LogDirState:
    """A log dir as reported by its broker.

    ``total_bytes`` and ``usable_bytes`` are those of its volume, unknown if the broker does not report them (before
    3.3). An offline dir has an ``error``, and nothing else is known of it. ``cordoned``: brokers place no new replica
    there (``cordoned.log.dirs``, KIP-1066, from 4.3).
    """

    path: str
    total_bytes: Maybe[int]
    usable_bytes: Maybe[int]
    replicas: Sequence[Replica] = ()
    error: str | None = None
    cordoned: bool = False


async def read_sizes(wire: Wire, leaders: Leaders) -> tuple[dict[TopicPartition, int], str | None]:
    """Return the leader replica's bytes per partition, and why some are missing (None: none are)."""
    sizes: dict[TopicPartition, int] = {}
    problems: list[str] = []
    led_by, leaderless = by_leader(leaders, leaders)
    wanted = {
        broker: [
            DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=[tp.partition for tp in tps])
            for name, tps in by_topic(led).items()
        ]
        for broker, led in led_by.items()
    }
    for broker, folders in (await _describe(wire, wanted)).items():
        if isinstance(folders, RequestFailedError):
            problems.append(f"broker {broker}: {folders}")
            continue
        for folder in folders:
            if folder.error is not None:
                problems.append(f"broker {broker}, log dir {folder.path}: {folder.error}")
            sizes.update((one.tp, one.size_bytes) for one in folder.replicas if not one.future)
    if len(sizes) < len(leaders) - len(leaderless):
        problems.append("brokers left some partitions out (DESCRIBE on the cluster is needed)")
    if leaderless:
        problems.append("some partitions have no leader")
    return sizes, problems[0] if problems else None


async def read_log_dirs(wire: Wire, brokers: Iterable[int]) -> dict[int, list[LogDirState] | RequestFailedError]:
    """Return each broker's log dirs, or why they could not be read (KIP-113, KIP-827)."""
    none = RequestFailedError("it named no log dir (DESCRIBE on the cluster is needed)", retriable=False)
    return {broker: folders or none for broker, folders in (await _describe(wire, dict.fromkeys(brokers))).items()}


async def _describe(
    wire: Wire, topics: Mapping[int, Sequence[Any] | None]
) -> dict[int, list[LogDirState] | RequestFailedError]:
    found: dict[int, list[LogDirState] | RequestFailedError] = {}

    def on_reply(broker: int, reply: Any) -> None:
        found[broker] = failure_of(reply) or [_log_dir(folder) for folder in reply.results]

    await wire.fan_out(
        {broker: [Job(DescribeLogDirsRequest(topics=some), broker)] for broker, some in topics.items()}, on_reply
    )
    return found


def _log_dir(folder: Any) -> LogDirState:
    if (error := error_named(folder.error_code)) is not None:
        unknown = Unknown.because("disk", str(error))
        return LogDirState(folder.log_dir, unknown, unknown, error=str(error))
    replicas = [
        Replica(TopicPartition(topic.name, row.partition_index), row.partition_size, bool(row.is_future_key))
        for topic in folder.topics
        for row in topic.partitions
    ]
    total, usable = (_volume_bytes(getattr(folder, name, -1)) for name in ("total_bytes", "usable_bytes"))
    return LogDirState(folder.log_dir, total, usable, replicas, cordoned=bool(getattr(folder, "is_cordoned", False)))


def _volume_bytes(value: int) -> Maybe[int]:
    if value >= 0:
        return value
    return Unknown.because(
        "disk", "the broker does not report its volume's size (before Kafka 3.3): set disks.capacity in the policy"
    )
