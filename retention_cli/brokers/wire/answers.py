"""Decode the bodies of large answers in blocks: those about committed offsets here, metadata in its own module.

A large cluster's OffsetFetch answer has hundreds of thousands of rows of twenty bytes. The client's decoder makes an
object of each, which was half of a plan's time; here ``struct`` reads a topic's rows at once, and only rows with
metadata (Kafka Streams writes it) are decoded one by one. tests/unit/brokers/test_wire.py checks that both
decoders agree. The client handles the request, its header, and the response's header. Kafka's protocol guide defines
the types.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from struct import Struct
from types import SimpleNamespace
from typing import Any, Final, TypeVar

from kafka.protocol.api_header import RequestHeader
from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse

T = TypeVar("T")

_INT16: Final = Struct(">h")


def decoded_by(request: Any, response: Any, decoders: Mapping[int, Callable[[bytes], Any]]) -> Any:
    """Return the client's request class, with its response's body decoded by these functions, one per version."""

    class Header(RequestHeader, init=False):  # type: ignore[call-arg,misc]
        def get_response_class(self) -> Any:
            version = self.request_api_version
            return SimpleNamespace(
                parse_header=response[version].parse_header, decode=lambda data: decoders[version](bytes(data.read()))
            )

    return type(request.__name__, (request,), {"header_class": Header}, init=False)


def decode_body(name: str, data: bytes, read: Callable[[bytes], tuple[T, int]]) -> T:
    """Return the body decoded by ``read``, which also returns the position after it.

    Raises:
        ValueError: that position is not the body's end.
    """
    try:
        answer, position = read(data)
    except (IndexError, struct.error):
        raise ValueError(f"a {name} response ends too early") from None
    if position != len(data):
        raise ValueError(f"a {name} response of {len(data)} bytes has to end at {position}")
    return answer


def varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode an UNSIGNED_VARINT; return it and the position after it, as do all functions below."""
    value = shift = 0
    while (byte := data[position]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if shift > 28:
            raise ValueError("a response has a number of more than 32 bits")
    return value | byte << shift, position + 1


def length(data: bytes, position: int) -> tuple[int, int]:
    """Decode the length of a compact string or array; 0 for null."""
    size, position = varint(data, position)
    return size and size - 1, position


def string(data: bytes, position: int) -> tuple[str, int]:
    """Decode a COMPACT_STRING."""
    size = data[position]
    if 0 < size < 0x80:  # nearly all of them
        size, position = size - 1, position + 1
    else:
        size, position = length(data, position)
    if (end := position + size) > len(data):
        raise IndexError
    return data[position:end].decode(), end


def short(data: bytes, position: int) -> tuple[int, int]:
    """Decode an INT16."""
    return _INT16.unpack_from(data, position)[0], position + _INT16.size


def after_tags(data: bytes, position: int) -> int:
    """Return the position after tagged fields: none of them is known here, so all are skipped (KIP-482)."""
    if not data[position]:
        return position + 1
    count, position = varint(data, position)
    for _ in range(count):
        _tag, position = varint(data, position)
        size, position = varint(data, position)
        position += size
    return position


STABLE_VERSION: Final = 7
"""The first version that can ask for only stable offsets."""
BATCHED_VERSION: Final = 8
"""The first version that accepts several groups. Later ones have topic ids instead of names."""

Commit = tuple[int, int, int | None]
"""Partition, committed offset, and the leader epoch of the record before it (None: the commit has none)."""

_START: Final = Struct(">iqi")
_ROW: Final = Struct(">iqi4x")
_BARE_ROW: Final = Struct(">iq8x")
"""A row without metadata: partition, offset, leader epoch, and one byte each for metadata and tags around the error."""
_SPECIAL: Final = bytes.fromhex("80000000 0000000000000000 00000000 feffffff")
"""The bits that are set if it has metadata, an error or tags, or a partition below zero."""
_TWICE: Final = "an OffsetFetch response names a partition twice, or one below zero"
_SIGNS: Final = bytes.fromhex("00000000 8000000000000000 80000000 00000000")
_NO_EPOCH: Final = bytes.fromhex("00000000 0000000000000000 80000000 00000000")
"""The sign bits of the offset and the epoch, which is −1 if there is none; the epoch's alone."""


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """One group's answer; ``group`` is None if only one group was asked for.

    ``error_code`` is the protocol's, 0 for none. ``commits`` has each topic's rows with an offset, ``rows`` is the
    number of all rows. ``failed`` has the topics with a row that is an error, in the answer's order: the partition and
    the protocol's code of the first such row.
    ``no_position`` has the stored offsets below zero, by topic and partition: brokers store what a client sends (F1).
    """

    group: str | None
    error_code: int
    commits: dict[str, list[Commit]]
    rows: int = 0
    failed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    no_position: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """A broker's answer; in version 7 it has only one group."""

    throttle_time_ms: int
    groups: list[GroupAnswer]


def decode(data: bytes, version: int) -> Answer:
    """Decode the body of an OffsetFetch response of version 7 or 8.

    Raises:
        ValueError: it is malformed.
    """
    return decode_body("OffsetFetch", data, partial(_answer, version=version))


def request(groups: Sequence[str], topics: Mapping[str, int] | None = None, *, batched: bool) -> Any:
    """Return a request for groups' stable offsets: all that they have, or on all partitions of ``topics`` (counts).

    Unless ``batched``, it is for the first group alone. Asked for by topic, a partition without an offset is a row of
    −1 in the answer. It says nothing of a stored offset.
    """
    Group = OffsetFetchRequest.OffsetFetchRequestGroup  # noqa: N806  (a class)
    Topic = Group.OffsetFetchRequestTopics if batched else OffsetFetchRequest.OffsetFetchRequestTopic  # noqa: N806
    rows = None
    if topics is not None:
        rows = [Topic(name=name, partition_indexes=list(range(count))) for name, count in topics.items()]
    if batched:
        return _Request(
            groups=[Group(group_id=name, topics=rows) for name in groups],
            require_stable=True,
            min_version=BATCHED_VERSION,
            max_version=BATCHED_VERSION,
        )
    return _Request(
        group_id=groups[0],
        topics=rows,
        require_stable=True,
        min_version=STABLE_VERSION,
        max_version=STABLE_VERSION,
    )


_Request: Final = decoded_by(
    OffsetFetchRequest,
    OffsetFetchResponse,
    {version: partial(decode, version=version) for version in (STABLE_VERSION, BATCHED_VERSION)},
)


def _answer(data: bytes, version: int) -> tuple[Answer, int]:
    throttle_time_ms = int.from_bytes(data[:4], "big", signed=True)
    if version < BATCHED_VERSION:
        group, position = _group(data, 4, None)
        return Answer(throttle_time_ms, [group]), position
    count, position = length(data, 4)
    groups = []
    for _ in range(count):
        name, position = string(data, position)
        group, position = _group(data, position, name)
        groups.append(group)
    if len({one.group for one in groups}) < count:
        raise ValueError("an OffsetFetch response names a group twice")
    return Answer(throttle_time_ms, groups), after_tags(data, position)


def _array_length(data: bytes, position: int) -> tuple[int, int]:
    """Decode the length of an array. Null would say nothing of a group's commits."""
    size, position = varint(data, position)
    if not size:
        raise ValueError("an OffsetFetch response has null in place of topics or partitions")
    return size - 1, position


def _group(data: bytes, position: int, group: str | None) -> tuple[GroupAnswer, int]:
    count, position = _array_length(data, position)
    commits: dict[str, list[Commit]] = {}
    no_position: dict[str, dict[int, int]] = {}
    failed: dict[str, tuple[int, int]] = {}
    all_rows = 0
    for _ in range(count):
        name, position = string(data, position)
        rows, position = _array_length(data, position)
        all_rows += rows
        negative: dict[int, int] = {}
        commits[name], wrong, position = _rows(data, position, rows, negative)
        if negative:
            no_position[name] = negative
        if wrong is not None:
            failed[name] = wrong
        position = after_tags(data, position)
    if len(commits) < count:  # one topic's rows would hide the other's
        raise ValueError("an OffsetFetch response names a topic twice")
    error, position = short(data, position)
    return GroupAnswer(group, error, commits, all_rows, failed, no_position), after_tags(data, position)


def _rows(
    data: bytes, position: int, count: int, negative: dict[int, int]
) -> tuple[list[Commit], tuple[int, int] | None, int]:
    """Decode a topic's rows: partition, offset, leader epoch, metadata, error, tags.

    Offsets below zero go into ``negative``, by partition.
    """
    if (end := position + count * _ROW.size) > len(data):  # before a mask of that size is made
        raise IndexError
    block = data[position:end]
    bits = int.from_bytes(block)  # tests all rows at once: to test each would cost more than to decode it
    if bits & _mask(_SPECIAL, count):
        return _rows_one_by_one(data, position, count, negative)
    # Their last bytes first: if all differ, as in most topics, so do the partitions.
    if len(set(block[3 :: _ROW.size])) < count and len({row[0] for row in _ROW.iter_unpack(block)}) < count:
        raise ValueError(_TWICE)
    signs = bits & _mask(_SIGNS, count)
    if signs == _mask(_NO_EPOCH, count):
        return [(partition, offset, None) for partition, offset in _BARE_ROW.iter_unpack(block)], None, end
    rows = list(_ROW.iter_unpack(block))
    if signs:
        negative.update((row[0], row[1]) for row in rows if row[1] < 0)
        rows = [row if row[2] >= 0 else (row[0], row[1], None) for row in rows if row[1] >= 0]
    return rows, None, end


@lru_cache(maxsize=64)
def _mask(row: bytes, count: int) -> int:
    return int.from_bytes(row * count)


def _rows_one_by_one(
    data: bytes, position: int, count: int, negative: dict[int, int]
) -> tuple[list[Commit], tuple[int, int] | None, int]:
    commits, failed, seen = [], None, set[int]()
    for _ in range(count):
        if position + _START.size > len(data):
            raise IndexError
        row = _START.unpack_from(data, position)
        metadata, position = length(data, position + _START.size)
        error, position = short(data, position + metadata)
        position = after_tags(data, position)
        if row[0] < 0 or row[0] in seen:
            raise ValueError(_TWICE)
        seen.add(row[0])
        if error:
            failed = failed or (row[0], error)
        elif row[1] >= 0:
            commits.append(row if row[2] >= 0 else (row[0], row[1], None))
        else:
            negative[row[0]] = row[1]
    return commits, failed, position
