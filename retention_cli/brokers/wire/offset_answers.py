"""Encode and decode ListOffsets rows in blocks: a plan looks up every partition five times.

The client would encode and decode row by row. It still handles headers, and all fields except the topics;
tests/unit/brokers/test_offset_answers.py checks that both agree.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.schemas.fields.codecs import UnsignedVarInt32

from retention_cli.brokers.wire.response_bytes import after_tags, decode_body, decoded_by, length, string

FLEXIBLE_VERSION: Final = 6
"""The first version with tagged fields, which brokers have since 2.8."""
MAX_TIMESTAMP_VERSION: Final = 7
"""The first version with MAX_TIMESTAMP. Brokers before 3.0 would silently return the first record instead."""

Row = tuple[int, int, int, int]
"""Partition, the protocol's error code, timestamp (Unix ms) and offset; −1 for none."""

_ROW: Final = struct.Struct(">ihqq4xx")


@dataclass(frozen=True, slots=True)
class Answer:
    """A broker's answer: each topic's name and rows."""

    throttle_time_ms: int
    topics: list[tuple[str, Iterable[Row]]]


def decode(data: bytes) -> Answer:
    """Decode the body of a ListOffsets response of version 6 or 7.

    Raises:
        ValueError: it is malformed.
    """
    return decode_body("ListOffsets", data, _answer)


Wanted = Mapping[str, Sequence[tuple[int, int, int]]]
"""By topic: partition, leader epoch and time (Unix ms, or one of Kafka's sentinels)."""

_Request: Final[Any] = decoded_by(
    ListOffsetsRequest, ListOffsetsResponse, {FLEXIBLE_VERSION: decode, MAX_TIMESTAMP_VERSION: decode}
)


class Request(_Request, init=False):  # type: ignore[call-arg,misc]
    """A request for the look-ups in ``wanted``. ``committed``: read_committed; ``timed``: they are MAX_TIMESTAMP."""

    def __init__(self, wanted: Wanted, *, committed: bool = False, timed: bool = False) -> None:
        super().__init__(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[],
            min_version=MAX_TIMESTAMP_VERSION if timed else FLEXIBLE_VERSION,
            max_version=MAX_TIMESTAMP_VERSION,
        )
        self.wanted = wanted

    def encode(self, version: int | None = None, header: bool = False, framed: bool = False) -> bytes:
        """Return the client's encoding without topics, followed by the topics."""
        empty: bytes = super().encode(version, header, framed)
        message = empty[: -len(b"\1\0")] + _topics(self.wanted)
        return (len(message) - 4).to_bytes(4, "big") + message[4:] if framed else message


def _length(size: int) -> bytes:
    """Return the length of a compact string or array."""
    return bytes(UnsignedVarInt32.encode(size + 1))


def _topics(wanted: Wanted) -> bytes:
    parts = [_length(len(wanted))]
    for topic, rows in wanted.items():
        name = topic.encode()
        packed = struct.pack(f">{'iiqx' * len(rows)}", *chain.from_iterable(rows))
        parts += (_length(len(name)), name, _length(len(rows)), packed, b"\0")
    return b"".join((*parts, b"\0"))


def _answer(data: bytes) -> tuple[Answer, int]:
    throttle_time_ms = int.from_bytes(data[:4], "big", signed=True)
    count, position = length(data, 4)
    topics: list[tuple[str, Iterable[Row]]] = []
    for _ in range(count):
        name, position = string(data, position)
        number, position = length(data, position)
        block = _rows(data, position, number)
        if any(block[_ROW.size - 1 :: _ROW.size]):  # a row is followed by tags
            rows: list[Row] = []
            for _ in range(number):
                rows += _ROW.iter_unpack(_rows(data, position, 1))
                position = after_tags(data, position + _ROW.size - 1)
            topics.append((name, rows))
        else:
            topics.append((name, _ROW.iter_unpack(block)))
            position += len(block)
        position = after_tags(data, position)
    return Answer(throttle_time_ms, topics), after_tags(data, position)


def _rows(data: bytes, position: int, count: int) -> bytes:
    end = position + count * _ROW.size
    if end > len(data):
        raise IndexError
    return data[position:end]
