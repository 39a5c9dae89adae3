"""Read complete records, for an archive: key, value, headers, timestamp and its type, leader epoch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.records import CREATE_TIME, LOG_APPEND_TIME, SCAN, Range, headers_of, read_messages
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.model import TimestampType, TopicPartition

_TYPES: Final[dict[int, TimestampType]] = {CREATE_TIME: "CreateTime", LOG_APPEND_TIME: "LogAppendTime"}

Headers = tuple[tuple[str, bytes | None], ...]


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
    headers: Headers = ()

    @property
    def size_bytes(self) -> int:
        """The bytes of its key, value and headers, plus about those of its other fields."""
        headers = sum(len(name) + len(value or b"") + 16 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + 32


def read_whole(
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

    def take(_: TopicPartition, messages: list[Any]) -> None:
        for message in messages:
            on_record(_record(message))

    def end_early(heard: float) -> RequestFailedError | None:
        late = time.monotonic() - heard > patience_s
        return RequestFailedError(f"no record came within {patience_s:g} s", retriable=True) if late else None

    ended = read_messages(settings, {tp: span}, SCAN, take, end_early)[tp]
    return ended.error or ended.offset


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
