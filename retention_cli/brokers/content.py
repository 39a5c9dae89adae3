"""Records whole: key, value, headers, timestamp and its type, leader epoch. What an archive keeps of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.records import Range, UnreadableHeadersError, headers_of, read_on
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.model import TimestampType, TopicPartition

_TYPES: Final[dict[int, TimestampType]] = {1: "CreateTime", 2: "LogAppendTime"}
"""confluent-kafka's numbers."""

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as a broker keeps it. A key, value or header's value of None is Kafka's null, and not the empty one.

    ``timestamp`` is Unix ms, None where the record's format had none yet; so for ``leader_epoch``.
    """

    offset: int
    leader_epoch: int | None
    timestamp: int | None
    timestamp_type: TimestampType | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def size_bytes(self) -> int:
        """How many bytes its content takes, and about what its other fields do."""
        headers = sum(len(name) + len(value or b"") + 16 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + 32


def read_whole(
    settings: ConnectionSettings,
    tp: TopicPartition,
    span: Range,
    patience_s: float,
    on_record: Callable[[Record], None],
) -> int | RequestFailedError:
    """Hand over the data records of a range, in the order of offsets; return up to where there are no others.

    Committed data alone. What is returned is the range's end, or less where the log ends before it. It fails where
    no record came for ``patience_s``, where the range's start is gone, or where a record can't be read.
    """
    position = span.start

    def take(_: TopicPartition, message: Any) -> None:
        nonlocal position
        record = _record(message)
        on_record(record)
        position = record.offset + 1

    while True:
        began_at = position
        try:
            reached = read_on(settings, tp, Range(position, span.end), time.monotonic() + patience_s, take)
        except UnreadableHeadersError as error:
            return RequestFailedError(str(error), retriable=False)
        if reached is not None:
            return reached
        if position == began_at:
            return RequestFailedError(f"no record came within {patience_s:g} s", retriable=True)


def _record(message: Any) -> Record:
    kind, stamp = message.timestamp()
    timestamp_type = _TYPES.get(kind)
    headers = headers_of(message)
    return Record(
        message.offset(),
        message.leader_epoch(),
        None if timestamp_type is None else stamp,
        timestamp_type,
        message.key(),
        message.value(),
        tuple(headers) if headers else (),
    )
