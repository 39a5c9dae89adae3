"""OffsetFetch answers, decoded in blocks of rows.

A large cluster's answer is some hundred thousand rows of twenty bytes. The client's decoder makes an object of each,
which was half of what a plan took; here ``struct`` reads a topic's rows at once, and only rows that carry metadata
(Kafka Streams writes it) are walked one by one. tests/unit/test_commit_answers.py holds both decoders together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple

from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse

from retention_cli.brokers.response_bytes import after_tags, decoded_by, length, short, string, whole

STABLE_VERSION: Final = 7
"""The first version that can ask for stable offsets alone."""
BATCHED_VERSION: Final = 8
"""The first version that takes several groups. Later ones name topics by id, not by name."""

Commit = tuple[int, int, int | None]
"""Partition, committed offset, and the leader epoch of the record before it (None: the commit carries none)."""

_START: Final = Struct(">iqi")
_ROW: Final = Struct(">iqi4x")
_OFFSET: Final = Struct(">iq8x")


class TopicAnswer(NamedTuple):
    """One topic of a group's answer: so many ``rows`` came, ``commits`` are those with an offset.

    ``failed`` is the first row that carries an error instead: its partition and the protocol's code.
    """

    name: str
    rows: int
    commits: list[Commit]
    failed: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """One group's answer; ``error_code`` is the protocol's, 0 for none. ``group`` is None where one alone was asked."""

    group: str | None
    error_code: int
    topics: list[TopicAnswer]


@dataclass(frozen=True, slots=True)
class Answer:
    """A broker's answer, of one group alone in version 7."""

    throttle_time_ms: int
    groups: list[GroupAnswer]


def decode(data: bytes, version: int) -> Answer:
    """Decode the body of an OffsetFetch response of version 7 or 8.

    Raises:
        ValueError: it is none.
    """
    return whole("OffsetFetch", data, partial(_answer, version=version))


def request(names: list[str] | str) -> Any:
    """Ask for all offsets of groups (topics: null), stable ones only; of one group alone where it is no list."""
    if isinstance(names, str):
        return _Request(group_id=names, topics=None, require_stable=True, **_exactly(STABLE_VERSION))
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    return _Request(groups=groups, require_stable=True, **_exactly(BATCHED_VERSION))


def _exactly(version: int) -> dict[str, int]:
    return {"min_version": version, "max_version": version}


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
    return Answer(throttle_time_ms, groups), after_tags(data, position)


def _group(data: bytes, position: int, group: str | None) -> tuple[GroupAnswer, int]:
    """Read a group's topics and its error, with the tags behind them."""
    count, position = length(data, position)
    topics = []
    for _ in range(count):
        name, position = string(data, position)
        rows, position = length(data, position)
        commits, failed, position = _rows(data, position, rows)
        topics.append(TopicAnswer(name, rows, commits, failed))
        position = after_tags(data, position)
    error, position = short(data, position)
    return GroupAnswer(group, error, topics), after_tags(data, position)


def _rows(data: bytes, position: int, count: int) -> tuple[list[Commit], tuple[int, int] | None, int]:
    """Read a topic's rows: partition, offset, leader epoch, metadata, error, tags."""
    end = position + count * _ROW.size
    block = data[position:end]
    # Without metadata and tags every row is of one size: each row found so says where the next one begins.
    plain = (
        len(block) == end - position
        and not block[16 :: _ROW.size].strip(b"\0\1")
        and not block[17 :: _ROW.size].strip(b"\0")
        and not block[18 :: _ROW.size].strip(b"\0")
        and not block[19 :: _ROW.size].strip(b"\0")
    )
    if not plain:
        return _rows_one_by_one(data, position, count)
    # An offset or an epoch that is there begins with a 0, one that is not is all ones.
    if block[4 :: _ROW.size].strip(b"\0"):
        return [_commit(row) for row in _ROW.iter_unpack(block) if row[1] >= 0], None, end
    epochs = block[12 :: _ROW.size]
    if not epochs.strip(b"\0"):
        return list(_ROW.iter_unpack(block)), None, end
    if not epochs.strip(b"\xff"):
        return [(partition, offset, None) for partition, offset in _OFFSET.iter_unpack(block)], None, end
    return [_commit(row) for row in _ROW.iter_unpack(block)], None, end


def _rows_one_by_one(data: bytes, position: int, count: int) -> tuple[list[Commit], tuple[int, int] | None, int]:
    commits, failed = [], None
    for _ in range(count):
        if position + _START.size > len(data):
            raise IndexError
        row = _START.unpack_from(data, position)
        metadata, position = length(data, position + _START.size)
        error, position = short(data, position + metadata)
        position = after_tags(data, position)
        if error and failed is None:
            failed = row[0], error
        if not error and row[1] >= 0:
            commits.append(_commit(row))
    return commits, failed, position


def _commit(row: tuple[int, int, int]) -> Commit:
    return row if row[2] >= 0 else (row[0], row[1], None)
