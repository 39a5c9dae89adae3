"""ListOffsets answers, decoded in blocks of rows: a plan asks for every partition five times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Final

from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from retention_cli.brokers.response_bytes import after_tags, characters, decoded_by, length, short, string, whole

ROWS_VERSION: Final = 4
"""From here on a request's row is partition, leader epoch and time."""
FIXED_VERSION: Final = 5
"""The last version without tags on every row; what came later is MAX_TIMESTAMP, and is about tiered data."""
MAX_TIMESTAMP_VERSION: Final = 7
"""Before 3.0 a broker answers MAX_TIMESTAMP with the first record, in silence."""

Row = tuple[int, int, int, int]
"""Partition, the protocol's error code, timestamp (Unix ms) and offset; −1 for none."""

_ROW: Final = Struct(">ihqq4x")
_TAGGED: Final = Struct(">ihqq4xx")


@dataclass(frozen=True, slots=True)
class Answer:
    """A broker's answer: each topic with its rows."""

    throttle_time_ms: int
    topics: list[tuple[str, Iterable[Row]]]


def decode(data: bytes, version: int) -> Answer:
    """Decode the body of a ListOffsets response of version 4, 5 or 7.

    Raises:
        ValueError: it is none.
    """
    return whole("ListOffsets", data, _tagged if version == MAX_TIMESTAMP_VERSION else _fixed)


Request: Final = decoded_by(
    ListOffsetsRequest,
    ListOffsetsResponse,
    {version: partial(decode, version=version) for version in (ROWS_VERSION, FIXED_VERSION, MAX_TIMESTAMP_VERSION)},
)


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
        for _ in range(number):  # tags may stand behind any row
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
