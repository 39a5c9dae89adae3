"""Read many records as columns, some thousands at a time, instead of one by one.

Only committed data is read: no transaction markers, no aborted records, and none of open transactions. The records of
a partition are in offset order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from confluent_kafka import Message

from retention_cli.brokers.errors import RequestFailedError, SchemaError
from retention_cli.brokers.records import Ended, Range, read_messages, until_silent
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.model import TopicPartition

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


OnColumns = Callable[[TopicPartition, Columns], None]
EventTimeOf = Callable[[Any, bytes | None], int | None]
"""Returns a record's event time in Unix ms from its headers (name and bytes, or None) and its value, None if it has no
readable one. A :class:`SchemaError` ends the reading of its partition."""


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
    positions = {tp: one.start for tp, one in ranges.items()}

    def advance(tp: TopicPartition, to: int) -> None:
        to = min(max(to, positions[tp]), ranges[tp].end)
        on_read(to - positions[tp])
        positions[tp] = to

    def take(tp: TopicPartition, messages: list[Any]) -> None:
        on_columns(tp, _columns(messages, event_time.get(tp.topic)))
        advance(tp, messages[-1].offset() + 1)

    silent = until_silent(patience_s, "none of its records came for")
    ended = read_messages(settings, ranges, _FETCHING, take, lambda heard: STOPPED if stop() else silent(heard))
    for tp, one in ended.items():
        advance(tp, one.offset)
    return ended


def _columns(messages: list[Any], event_time: EventTimeOf | None) -> Columns:
    """Return a partition's records, column by column: a call for each record would cost more than reading it."""
    values = list(map(Message.value, messages))
    keys = map(Message.key, messages)
    headers = _headers(messages)
    sizes = [len(value or b"") + len(key or b"") for value, key in zip(values, keys, strict=True)]
    if any(headers):
        sizes = [size + _headers_size(one) for size, one in zip(sizes, headers, strict=True)]
    times = None
    if event_time is not None:
        found: list[int | None] = []
        try:
            found.extend(map(event_time, headers, values))
        except SchemaError as error:
            raise error.of_record(messages[len(found)].offset()) from None
        times = np.array([_NO_TIME if one is None else one for one in found], np.int64)
    return Columns(
        np.array([message.offset() for message in messages], np.int64),
        np.array([stamp for _kind, stamp in map(Message.timestamp, messages)], np.int64),
        np.array(sizes, np.int64),
        np.array([value is None for value in values], np.bool_),
        times,
    )


def _headers(messages: list[Any]) -> list[Any]:
    """Return each record's headers, None if it has none or they can't be read (see :func:`headers_of`)."""
    found: list[Any] = []
    rest = map(Message.headers, messages)
    while len(found) < len(messages):
        try:
            found.extend(rest)
        except (SystemError, UnicodeDecodeError):  # earlier records are in the list; continue after this one
            found.append(None)
    return found


def _headers_size(headers: Any) -> int:
    return sum(len(name.encode()) + len(content or b"") for name, content in headers or ())
