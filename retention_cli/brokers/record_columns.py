"""Read many records as columns, some thousands at a time, instead of one by one.

Only committed data is read: no transaction markers, no aborted records, and none of open transactions. The records of
a partition are in offset order.
"""

from __future__ import annotations

import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.records import Range, chunks, consumer, polled
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.brokers.wire.problems import client_problem
from retention_cli.core.model import TopicPartition

MESSAGES_AT_ONCE: Final = 10_000
RECORDS_A_SLICE: Final = 65_536
RECORDS_WAITING: Final = 500_000
"""At most this many records, over all partitions, are buffered: each takes about 40 bytes."""
_FETCHING: Final = {
    "fetch.message.max.bytes": 1_048_576,  # of each partition, compressed: it may be thirty times as much in memory
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 16_384,
}
_NO_TIME: Final = -1
STOPPED: Final = RequestFailedError("reading was interrupted", retriable=True)


class Columns(NamedTuple):
    """Records as numpy arrays of equal length.

    ``offsets``, ``timestamps`` (Unix ms) and ``sizes`` (bytes of key, value and headers, uncompressed) are int64,
    ``tombstones`` (the value is null) bool. ``event_times`` (Unix ms) is int64, −1 for a record without a readable
    one; None if event times were not requested.
    """

    offsets: Any
    timestamps: Any
    sizes: Any
    tombstones: Any
    event_times: Any | None


@dataclass(frozen=True, slots=True)
class Ended:
    """Every data record before ``offset`` was returned. ``error`` is why the range was not read to its end.

    ``out_of_range``: the log has changed since its ends were read, and no longer has ``offset``.
    """

    offset: int
    error: RequestFailedError | None = None
    out_of_range: bool = False


OnColumns = Callable[[TopicPartition, Columns], None]
_Place = tuple[str, int]
EventTimeOf = Callable[[Any, bytes | None], int | None]
"""Returns a record's event time in Unix ms from its headers (name and bytes, or None) and its value, None if it has no
readable one."""


def read_columns(
    settings: ConnectionSettings,
    ranges: Mapping[TopicPartition, Range],
    on_columns: OnColumns,
    *,
    event_time: Mapping[str, EventTimeOf],
    patience_s: float,
    on_read: Callable[[int], None],
    stop: Callable[[], bool] = lambda: False,
) -> dict[TopicPartition, Ended]:
    """Read the data records of each range, and call ``on_columns`` with them.

    Args:
        settings: the connection settings.
        ranges: the offsets to read, per partition.
        on_columns: called with columns, in offset order.
        event_time: how to read event times, by topic; other topics have none.
        patience_s: if no record of any partition arrives for this long, the remaining partitions have failed.
        on_read: called with the number of offsets passed since the last call.
        stop: called several times a second; once it returns true, the records read so far are returned, and reading
            ends.

    Returns:
        How reading each partition ended. The columns of failed partitions are valid.
    """
    result = {tp: Ended(one.start) for tp, one in ranges.items()}
    starts = {tp: one.start for tp, one in ranges.items() if one.start < one.end}
    result |= {tp: Ended(start, STOPPED) for tp, start in starts.items()}
    for chunk in chunks(starts):
        if stop():
            break
        reading = _Reading(on_columns, on_read)
        for tp, start in chunk.items():
            reading.open(tp, start, ranges[tp].end, event_time.get(tp.topic))
        with consumer(settings, _FETCHING) as one:
            reading.run(one, patience_s, stop)
        result |= reading.ended
    return result


@dataclass(slots=True)
class _Waiting:
    """One partition: how far it was read, and the records that were read but not yet returned."""

    tp: TopicPartition
    position: int
    end: int
    event_time: EventTimeOf | None
    offsets: array[int] = field(default_factory=lambda: array("q"))
    timestamps: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))
    tombstones: array[int] = field(default_factory=lambda: array("b"))
    event_times: array[int] = field(default_factory=lambda: array("q"))

    def take(self, messages: list[Any]) -> None:
        """Add records, column by column: a call for each record would cost more than reading it."""
        from confluent_kafka import Message

        values = list(map(Message.value, messages))
        keys = map(Message.key, messages)
        headers = _headers(messages)
        sizes = [len(value or b"") + len(key or b"") for value, key in zip(values, keys, strict=True)]
        if any(headers):
            sizes = [size + _headers_size(one) for size, one in zip(sizes, headers, strict=True)]
        self.offsets.extend([message.offset() for message in messages])
        self.timestamps.extend([told[1] for told in map(Message.timestamp, messages)])
        self.sizes.extend(sizes)
        self.tombstones.extend([value is None for value in values])
        if self.event_time is not None:
            found = map(self.event_time, headers, values)
            self.event_times.extend([_NO_TIME if one is None else one for one in found])

    def hand_over(self, on_columns: OnColumns) -> None:
        if not self.offsets:
            return
        columns = Columns(
            np.array(self.offsets, np.int64),
            np.array(self.timestamps, np.int64),
            np.array(self.sizes, np.int64),
            np.array(self.tombstones, np.bool_),
            None if self.event_time is None else np.array(self.event_times, np.int64),
        )
        for one in (self.offsets, self.timestamps, self.sizes, self.tombstones, self.event_times):
            del one[:]
        on_columns(self.tp, columns)


def _headers(messages: list[Any]) -> list[Any]:
    """Return each record's headers, None if it has none or they can't be read (see :func:`headers_of`)."""
    from confluent_kafka import Message

    found: list[Any] = []
    rest = map(Message.headers, messages)
    while len(found) < len(messages):
        try:
            found.extend(rest)
        except (SystemError, UnicodeDecodeError):  # earlier records are in the list; continue after this one
            found.append(None)
    return found


def _headers_size(headers: Any) -> int:
    size = 0
    for name, content in headers or ():
        size += (len(name) if name.isascii() else len(name.encode())) + len(content or b"")
    return size


class _Reading:
    """Partitions that one consumer reads together."""

    def __init__(self, on_columns: OnColumns, on_read: Callable[[int], None]) -> None:
        self.ended: dict[TopicPartition, Ended] = {}
        self._on_columns = on_columns
        self._on_read = on_read
        self._open: dict[_Place, _Waiting] = {}
        self._records = 0

    def open(self, tp: TopicPartition, start: int, end: int, event_time: EventTimeOf | None) -> None:
        """Add a partition to read."""
        self._open[tp.topic, tp.partition] = _Waiting(tp, start, end, event_time)

    def run(self, consumer: Any, patience_s: float, stop: Callable[[], bool]) -> None:
        """Read until each partition is at its end or has failed."""
        from confluent_kafka import TopicPartition as Assigned

        consumer.assign([Assigned(*place, one.position) for place, one in self._open.items()])
        heard = time.monotonic()
        while self._open:
            messages = polled(consumer, MESSAGES_AT_ONCE)
            if isinstance(messages, RequestFailedError):
                self._fail(messages)
                return
            runs: dict[_Place, list[Any]] = defaultdict(list)
            for message in messages:
                runs[message.topic(), message.partition()].append(message)
            ended = []
            for place, run in runs.items():
                if (one := self._open.get(place)) is not None:  # else it is an event of the client's connections
                    heard = time.monotonic()
                    if self._take(one, run):
                        ended.append(place)
            if ended:
                consumer.pause([Assigned(*place) for place in ended])
            if stop():
                self._fail(STOPPED)
            elif time.monotonic() - heard > patience_s:
                self._fail(RequestFailedError(f"none of its records came for {patience_s:g} s", retriable=True))

    def hand_over_all(self) -> None:
        """Return all buffered records."""
        for one in self._open.values():
            one.hand_over(self._on_columns)
        self._records = 0

    def _take(self, one: _Waiting, messages: list[Any]) -> bool:
        """Add one partition's messages; return whether it has ended."""
        from confluent_kafka import KafkaError, Message

        errors = list(map(Message.error, messages))
        said = [message for message, error in zip(messages, errors, strict=True) if error is not None]
        if said:
            messages = [message for message, error in zip(messages, errors, strict=True) if error is None]
        before = one.position
        if messages:
            last = messages[-1].offset()
            if last >= one.end:
                messages = [message for message in messages if message.offset() < one.end]
            one.take(messages)
            self._records += len(messages)
            one.position = min(last + 1, one.end)
        failed: tuple[str, bool] | None = None
        at_end = one.position >= one.end
        for message in said:
            error = message.error()
            if error.code() == KafkaError._PARTITION_EOF:
                one.position, at_end = min(max(one.position, message.offset()), one.end), True
            elif not at_end:
                failed = client_problem(error), error.code() == KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001  (likewise)
        self._on_read(one.position - before)
        if at_end:
            self._end(one, Ended(one.position))
        elif failed is not None:
            self._end(one, Ended(one.position, RequestFailedError(failed[0], retriable=True), out_of_range=failed[1]))
        elif len(one.offsets) >= RECORDS_A_SLICE:
            self._records -= len(one.offsets)
            one.hand_over(self._on_columns)
        elif self._records >= RECORDS_WAITING:
            self.hand_over_all()
        return at_end or failed is not None

    def _end(self, one: _Waiting, how: Ended) -> None:
        self._records -= len(one.offsets)
        one.hand_over(self._on_columns)
        del self._open[one.tp.topic, one.tp.partition]
        self.ended[one.tp] = how

    def _fail(self, why: RequestFailedError) -> None:
        for one in list(self._open.values()):
            self._end(one, Ended(one.position, why))
