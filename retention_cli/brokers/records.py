"""Read records with confluent-kafka's consumer, without a group: for look-ups, event times and archives.

Only committed data is read, unless a search asks for more: no transaction markers, no aborted records, and none of
open transactions.
"""

from __future__ import annotations

import operator
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.security.settings import NO_KERBEROS, ConnectionSettings
from retention_cli.brokers.wire.problems import client_problem
from retention_cli.core.grouping import in_batches
from retention_cli.core.model import TimestampType, TopicPartition

PARTITIONS_AT_ONCE: Final = 1_000
MESSAGES_AT_ONCE: Final = 10_000
_A_FEW: Final = {
    "fetch.message.max.bytes": 262_144,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 8192,
}
SCAN: Final = {
    "fetch.message.max.bytes": 4_194_304,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 65_536,
}
"""How a consumer that reads long ranges fetches."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search for the first data record from ``start`` on with a timestamp of at least ``time_ms``.

    It ends at ``end`` (exclusive), or after ``limit`` records.
    """

    start: int
    end: int
    time_ms: int
    limit: int


@dataclass(frozen=True, slots=True)
class Reached:
    """Every data record from the search's start to ``offset`` is older than its time.

    ``stopped``: reading ended without a result, at the limit or at the deadline. ``timestamp`` is that of the record
    that was found, or at which reading stopped, ``record`` that record's offset. ``epochs`` has the last offset read in
    each leader epoch, which identify the log (M1).
    """

    offset: int
    stopped: bool
    timestamp: int | None = None
    record: int | None = None
    epochs: Mapping[int, int] = field(default_factory=dict)


class Range(NamedTuple):
    """The offsets from ``start`` to ``end`` (exclusive)."""

    start: int
    end: int


Message = Any
"""A record as confluent-kafka returns it (its ``Message``). Read its headers only with :func:`headers_of`."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Every data record before ``offset`` was passed on, or is not needed. ``error`` is why the rest could not be read.

    ``out_of_range``: the log has changed since its ends were read, and no longer has ``offset``.
    """

    offset: int
    error: RequestFailedError | None = None
    out_of_range: bool = False


OnRecord = Callable[[TopicPartition, Message], bool | None]
"""Called with one record; returns True if no more of the partition is needed. An error ends the reading of it."""

OnRecords = Callable[[TopicPartition, list[Any]], bool | None]
"""Called with a partition's next records; as :data:`OnRecord`."""

EndEarly = Callable[[float], RequestFailedError | None]
"""Called before each poll with the time of the last arrival (``time.monotonic``); an error ends the reading of all that
is left."""

CREATE_TIME, LOG_APPEND_TIME = 1, 2
"""confluent-kafka's TIMESTAMP_CREATE_TIME and TIMESTAMP_LOG_APPEND_TIME."""


class UnreadableHeadersError(RequestFailedError):
    """The client can't decode a record's headers: the name of one is not UTF-8."""


_call_headers: Final = operator.methodcaller("headers")


def headers_of(message: Message) -> list[tuple[str, bytes | None]] | None:
    """Return a record's headers, None if it has none. Call it only once: after an error the client keeps a broken list.

    On an error the client's method returns that list and leaves an exception set. If Python has specialized the call,
    the exception surfaces later and elsewhere. So the method is called through ``operator.methodcaller``, where the
    exception surfaces at once.

    Raises:
        UnreadableHeadersError: they can't be read.
    """
    try:
        return _call_headers(message)  # type: ignore[no-any-return]
    except (SystemError, UnicodeDecodeError):
        text = f"the record at offset {message.offset():,} has a header whose name is not UTF-8"
        raise UnreadableHeadersError(text, retriable=False) from None


def note_epoch(epochs: dict[int, int], message: Message) -> None:
    """Record a message's offset as the last one read in its leader epoch, if it has one."""
    if (epoch := message.leader_epoch()) is not None and epoch >= 0:
        epochs[epoch] = message.offset()


def search_records(
    settings: ConnectionSettings,
    searches: Mapping[TopicPartition, Search],
    deadline: float,
    *,
    uncommitted: bool = False,
) -> dict[TopicPartition, Reached | RequestFailedError]:
    """Run one search per partition; return each result, or the error.

    If the very first data record is not older, the result is ``start`` itself: nothing before that record is data. A
    search that the deadline ends returns what it had read until then, or an error if that is nothing. ``uncommitted``:
    records of open and aborted transactions count, too.
    """
    count = dict.fromkeys(searches, 0)
    found: dict[TopicPartition, Reached | RequestFailedError] = {}
    epochs: dict[TopicPartition, dict[int, int]] = {tp: {} for tp in searches}

    def on_record(tp: TopicPartition, message: Message) -> bool:
        search, offset = searches[tp], message.offset()
        note_epoch(epochs[tp], message)
        timestamp = message.timestamp()[1]
        if offset >= search.end:
            found[tp] = Reached(search.end, stopped=False)
        elif timestamp >= search.time_ms:
            bound = search.start if count[tp] == 0 else offset
            found[tp] = Reached(bound, stopped=False, timestamp=timestamp, record=offset)
        else:
            count[tp] += 1
            if count[tp] >= search.limit:
                stamp = timestamp if timestamp >= 0 else None
                found[tp] = Reached(offset + 1, stopped=True, timestamp=stamp, record=offset)
        return tp in found

    # Up to a record behind the end: it shows that there is none before it, and has a leader epoch to check (M1).
    ranges = {tp: Range(search.start, 2**63 - 1) for tp, search in searches.items()}
    late = RequestFailedError("no record could be read in time", retriable=True)
    fetching: Mapping[str, int | str] = {**_A_FEW, "isolation.level": "read_uncommitted"} if uncommitted else _A_FEW
    for tp, end in read_messages(settings, ranges, fetching, _one_by_one(on_record), _until(deadline, late)).items():
        if tp in found:
            continue
        if end.error is None:
            found[tp] = Reached(min(end.offset, searches[tp].end), stopped=False)
        else:  # at the deadline, the records that were read are older
            found[tp] = Reached(end.offset, stopped=True) if end.error is late and count[tp] else end.error
    return {
        tp: one if isinstance(one, RequestFailedError) else replace(one, epochs=epochs[tp]) for tp, one in found.items()
    }


def read_ranges(
    settings: ConnectionSettings,
    ranges: Mapping[TopicPartition, Range],
    deadline: float | None,
    on_record: OnRecord,
    *,
    scan: bool = False,
) -> dict[TopicPartition, RequestFailedError | None]:
    """Call ``on_record`` with the data records of each range, in offset order, until it returns True.

    Return None for each partition that was read to its range's end, or as far as ``on_record`` needed, and an error for
    the others; the deadline is one. ``scan`` is for long ranges: more is fetched at once.
    """
    late = RequestFailedError("there was no time to read its records", retriable=True)
    fetching = SCAN if scan else _A_FEW
    result: dict[TopicPartition, RequestFailedError | None] = {}
    for tp, one in read_messages(settings, ranges, fetching, _one_by_one(on_record), _until(deadline, late)).items():
        result[tp] = one.error
        if one.error is None and one.offset < ranges[tp].end:  # the broker no longer leads, or the log was cut
            result[tp] = RequestFailedError(
                f"the log was read to {one.offset:,}, and returned no more, though it continued to {ranges[tp].end:,}",
                retriable=True,
            )
    return result


def _one_by_one(on_record: OnRecord) -> OnRecords:
    return lambda tp, messages: any(on_record(tp, message) for message in messages)


def _until(deadline: float | None, late: RequestFailedError) -> EndEarly:
    return lambda _heard: None if deadline is None or time.monotonic() < deadline else late


def until_silent(patience_s: float, what: str) -> EndEarly:
    """Return what ends the reading once no record has arrived for so long."""
    late = RequestFailedError(f"{what} {patience_s:g} s", retriable=True)
    return lambda heard: late if time.monotonic() - heard > patience_s else None


def read_messages(
    settings: ConnectionSettings,
    ranges: Mapping[TopicPartition, Range],
    fetching: Mapping[str, int | str],
    on_records: OnRecords,
    end_early: EndEarly,
) -> dict[TopicPartition, Ended]:
    """Read the data records of each range, in offset order, and return how each ended.

    ``fetching`` are the consumer's settings of how much it fetches.
    """
    ended = {tp: Ended(span.start) for tp, span in ranges.items()}
    items = sorted((tp, span) for tp, span in ranges.items() if span.start < span.end)
    for chunk in map(dict, in_batches(items, PARTITIONS_AT_ONCE)):
        unable = None if settings.kerberos is None else RequestFailedError(NO_KERBEROS, retriable=False)
        if (why := unable or end_early(time.monotonic())) is None:
            # A new consumer for each: one that gets other topics looks up their leaders only once a second.
            with _consumer(settings, fetching) as consumer:
                if (why := elsewhere(consumer, settings.cluster_id, next(iter(chunk)).topic, end_early)) is None:
                    ended |= _read_chunk(consumer, chunk, on_records, end_early)
        if why is not None:
            ended |= {tp: Ended(span.start, why) for tp, span in chunk.items()}
    return ended


def elsewhere(client: Any, cluster_id: str | None, topic: str, end_early: EndEarly) -> RequestFailedError | None:
    """Return that a client is connected to another cluster, or why that is unknown; None if it is not.

    It connects by itself: an address may lead elsewhere by now, to a topic of the same name and leader epochs.
    """
    from confluent_kafka import KafkaException

    began = time.monotonic()
    while cluster_id is not None:
        try:
            found = client.list_topics(topic, timeout=2).cluster_id
        except KafkaException:  # it may still be connecting
            if (late := end_early(began)) is not None:
                return late
            continue
        if found == cluster_id:
            break
        return RequestFailedError(
            f"the address leads to another cluster ({found}) than before ({cluster_id}): check the addresses and "
            f"port-forwards",
            retriable=True,
        )
    return None


def _consumer(settings: ConnectionSettings, fetching: Mapping[str, int | str]) -> closing[Any]:
    from confluent_kafka import Consumer, KafkaException

    config = {
        **settings.for_librdkafka(),
        "group.id": "kretain-reads-without-a-group",  # required by the client; nothing is ever committed
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 50,
        # The largest answer that the protocol has: a batch comes complete, and topics set how large it may be.
        "receive.message.max.bytes": 2**31 - 1,
        **fetching,
        "fetch.queue.backoff.ms": 5,  # by default a full queue pauses fetching for a second
    }
    try:
        return closing(Consumer(config))
    except KafkaException as error:
        raise RequestFailedError(client_problem(error.args[0]), retriable=False) from None


def _polled(consumer: Any) -> list[Any] | RequestFailedError:
    """Return the messages that a consumer has by now, or has first; an error if it has failed for good."""
    from confluent_kafka import KafkaException

    try:
        first = consumer.poll(0.25)  # then the buffered rest: consume alone would wait for the full number
        return [] if first is None else [first, *consumer.consume(num_messages=MESSAGES_AT_ONCE, timeout=0)]
    except KafkaException as error:
        return RequestFailedError(client_problem(error.args[0]), retriable=True)


def _read_chunk(
    consumer: Any, ranges: Mapping[TopicPartition, Range], on_records: OnRecords, end_early: EndEarly
) -> dict[TopicPartition, Ended]:
    from confluent_kafka import TopicPartition as Assigned

    ended = {tp: Ended(span.start) for tp, span in ranges.items()}
    waiting = {tuple(tp): tp for tp in ranges}
    consumer.assign([Assigned(tp.topic, tp.partition, span.start) for tp, span in ranges.items()])
    heard = time.monotonic()
    while waiting:
        if isinstance(messages := end_early(heard) or _polled(consumer), RequestFailedError):
            return ended | {tp: Ended(ended[tp].offset, messages) for tp in waiting.values()}
        runs: dict[tuple[str, int], list[Any]] = defaultdict(list)
        for message in messages:
            runs[message.topic(), message.partition()].append(message)
        done = []
        for place, run in runs.items():
            if (tp := waiting.get(place)) is None:
                continue  # an error of the client's connections, which it recovers from; or more than was requested
            try:
                ended[tp], finished = _passed_on(tp, run, Range(ended[tp].offset, ranges[tp].end), on_records)
            except RequestFailedError as error:
                ended[tp], finished = Ended(ended[tp].offset, error), True
            if finished:
                del waiting[place]
                done.append(Assigned(*place))
            heard = time.monotonic()  # our own time does not count as the broker's silence
        if done:
            consumer.pause(done)
    return ended


def _passed_on(tp: TopicPartition, run: list[Any], left: Range, on_records: OnRecords) -> tuple[Ended, bool]:
    """Pass on the messages that are records of a range; return how far that is, and whether reading has ended there."""
    reached, end = left
    behind = next((number for number, message in enumerate(run) if message.error() is not None), len(run))
    records = run[:behind]
    if records:
        reached = records[-1].offset() + 1
        if reached > end:
            records = [message for message in records if message.offset() < end]
        if (records and on_records(tp, records)) or reached >= end:
            return Ended(end), True
    if behind == len(run):
        return Ended(reached), False
    error = run[behind].error()
    if error.name() == "_PARTITION_EOF":
        return Ended(min(max(reached, run[behind].offset()), end)), True
    failed = RequestFailedError(client_problem(error), retriable=True, code=error.name())
    return Ended(reached, failed, out_of_range=failed.code == "_AUTO_OFFSET_RESET"), True


_TYPES: Final[dict[int, TimestampType]] = {CREATE_TIME: "CreateTime", LOG_APPEND_TIME: "LogAppendTime"}


class Record(NamedTuple):
    """A record as a broker stores it. None as a key, value or header's value is Kafka's null, distinct from empty.

    ``timestamp`` is Unix ms; it and ``leader_epoch`` are None if the record's format does not have them.
    """

    offset: int
    leader_epoch: int | None
    timestamp: int | None
    timestamp_type: TimestampType | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size_bytes(self) -> int:
        """The bytes of its key, value and headers, plus about those of its other fields."""
        headers = sum(len(name) + len(value or b"") + 16 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + 32


def read_complete(
    settings: ConnectionSettings,
    tp: TopicPartition,
    span: Range,
    patience_s: float,
    on_record: Callable[[Record], None],
) -> int | RequestFailedError:
    """Call ``on_record`` with the committed data records of a range, in offset order; return the offset reached.

    That is the end of the range, or less if the log ends before it. Return an error if no record arrived within
    ``patience_s``, if the range's start was deleted, or if a record can't be read.
    """
    on_records = _one_by_one(lambda _, message: on_record(_record(message)))
    ended = read_messages(settings, {tp: span}, SCAN, on_records, until_silent(patience_s, "no record came within"))[tp]
    return ended.error or ended.offset


def _record(message: Any) -> Record:
    kind, stamp = message.timestamp()
    timestamp_type = _TYPES.get(kind)
    return Record(
        message.offset(),
        message.leader_epoch(),
        None if timestamp_type is None else stamp,
        timestamp_type,
        message.key(),
        message.value(),
        tuple(headers_of(message) or ()),
    )
