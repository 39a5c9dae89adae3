"""Encode and decode ListOffsets rows in blocks: a plan looks up every partition five times.

The client would encode and decode row by row. It still handles headers, and all fields except the topics;
tests/unit/brokers/test_offset_answers.py checks that both agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, starmap
from struct import Struct
from typing import Any, Final

from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.schemas.fields.codecs import UnsignedVarInt32

from retention_cli.brokers.wire.response_bytes import (
    after_tags,
    characters,
    decoded_by,
    length,
    short,
    string,
    whole,
)

ROWS_VERSION: Final = 4
"""The first version whose request has rows of partition, leader epoch and time."""
FIXED_VERSION: Final = 5
"""The last version without tags on every row; later ones add only MAX_TIMESTAMP and tiered data."""
MAX_TIMESTAMP_VERSION: Final = 7
"""The first version with MAX_TIMESTAMP. Brokers before 3.0 would silently return the first record instead."""

Row = tuple[int, int, int, int]
"""Partition, the protocol's error code, timestamp (Unix ms) and offset; −1 for none."""

_ROW: Final = Struct(">ihqq4x")
_TAGGED: Final = Struct(">ihqq4xx")


@dataclass(frozen=True, slots=True)
class Answer:
    """A broker's answer: each topic's name and rows."""

    throttle_time_ms: int
    topics: list[tuple[str, Iterable[Row]]]


def decode(data: bytes, version: int) -> Answer:
    """Decode the body of a ListOffsets response of version 4, 5 or 7.

    Raises:
        ValueError: it is malformed.
    """
    return whole("ListOffsets", data, _tagged if version == MAX_TIMESTAMP_VERSION else _fixed)


Asked = Mapping[str, Sequence[tuple[int, int, int]]]
"""By topic: partition, leader epoch and time (Unix ms, or one of Kafka's sentinels)."""

_ASKED_TAGGED: Final = Struct(">iiqx")

_Request: Final[Any] = decoded_by(
    ListOffsetsRequest,
    ListOffsetsResponse,
    {version: partial(decode, version=version) for version in (ROWS_VERSION, FIXED_VERSION, MAX_TIMESTAMP_VERSION)},
)


class Request(_Request, init=False):  # type: ignore[call-arg,misc]
    """A request for the look-ups in ``asked``. ``committed``: read_committed; ``timed``: they are MAX_TIMESTAMP."""

    def __init__(self, asked: Asked, *, committed: bool = False, timed: bool = False) -> None:
        super().__init__(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[],
            min_version=MAX_TIMESTAMP_VERSION if timed else ROWS_VERSION,
            max_version=MAX_TIMESTAMP_VERSION if timed else FIXED_VERSION,
        )
        self.asked = asked

    def encode(self, version: int | None = None, header: bool = False, framed: bool = False) -> bytes:
        """Return the client's encoding without topics, followed by the topics."""
        empty: bytes = super().encode(version, header, framed)
        if self.API_VERSION == MAX_TIMESTAMP_VERSION:
            message = empty[: -len(b"\1\0")] + _tagged_topics(self.asked)
        else:
            message = empty[: -len(bytes(4))] + _fixed_topics(self.asked)
        return (len(message) - 4).to_bytes(4, "big") + message[4:] if framed else message


def _length(size: int) -> bytes:
    """Return the length of a compact string or array."""
    return bytes(UnsignedVarInt32.encode(size + 1))


@lru_cache(maxsize=64)
def _asked(count: int) -> Struct:
    """Return the layout of so many rows of a request: topics have few different numbers of partitions."""
    return Struct(">" + "iiq" * count)


def _fixed_topics(asked: Asked) -> bytes:
    parts = [len(asked).to_bytes(4, "big")]
    for topic, rows in asked.items():
        name = topic.encode()
        count = len(rows)
        packed = _asked(count).pack(*chain.from_iterable(rows))
        parts += (len(name).to_bytes(2, "big"), name, count.to_bytes(4, "big"), packed)
    return b"".join(parts)


def _tagged_topics(asked: Asked) -> bytes:
    parts = [_length(len(asked))]
    for topic, rows in asked.items():
        name = topic.encode()
        parts += (_length(len(name)), name, _length(len(rows)), *starmap(_ASKED_TAGGED.pack, rows), b"\0")
    return b"".join((*parts, b"\0"))


def _fixed(data: bytes) -> tuple[Answer, int]:
    throttle_time_ms, count, position = _number(data, 0), _number(data, 4), 8
    topics: list[tuple[str, Iterable[Row]]] = []
    for _ in range(count):
        size, position = short(data, position)
        name, position = characters(data, position, size)
        end = position + 4 + _number(data, position) * _ROW.size
        topics.append((name, _ROW.iter_unpack(_cut(data, position + 4, end))))
        position = end
    return Answer(throttle_time_ms, topics), position


def _tagged(data: bytes) -> tuple[Answer, int]:
    throttle_time_ms = _number(data, 0)
    count, position = length(data, 4)
    topics: list[tuple[str, Iterable[Row]]] = []
    for _ in range(count):
        name, position = string(data, position)
        number, position = length(data, position)
        rows: list[Row] = []
        for _ in range(number):  # any row may be followed by tags
            rows += _TAGGED.iter_unpack(_cut(data, position, position + _TAGGED.size))
            position = after_tags(data, position + _ROW.size)
        topics.append((name, rows))
        position = after_tags(data, position)
    return Answer(throttle_time_ms, topics), after_tags(data, position)


def _number(data: bytes, position: int) -> int:
    return int.from_bytes(_cut(data, position, position + 4), "big", signed=True)


def _cut(data: bytes, position: int, end: int) -> bytes:
    if not position <= end <= len(data):
        raise IndexError
    return data[position:end]
