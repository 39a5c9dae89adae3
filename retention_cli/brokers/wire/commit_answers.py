"""Decode OffsetFetch answers in blocks of rows.

A large cluster's answer has hundreds of thousands of rows of twenty bytes. The client's decoder makes an object of
each, which was half of a plan's time; here ``struct`` reads a topic's rows at once, and only rows with metadata (Kafka
Streams writes it) are decoded one by one. tests/unit/brokers/test_commit_answers.py checks that both decoders agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from struct import Struct
from typing import Any, Final

from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse

from retention_cli.brokers.wire.response_bytes import after_tags, decode_body, decoded_by, length, short, string

STABLE_VERSION: Final = 7
"""The first version that can ask for only stable offsets."""
BATCHED_VERSION: Final = 8
"""The first version that accepts several groups. Later ones have topic ids instead of names."""

Commit = tuple[int, int, int | None]
"""Partition, committed offset, and the leader epoch of the record before it (None: the commit has none)."""

_START: Final = Struct(">iqi")
_ROW: Final = Struct(">iqi4x")
"""A row without metadata: offset from byte 4 on, epoch from 12, the length of its metadata at 16, error and tags."""


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """One group's answer; ``group`` is None if only one group was asked for.

    ``error_code`` is the protocol's, 0 for none. ``commits`` has each topic's rows with an offset, ``rows`` is the
    number of all rows. ``failed`` is the first row with an error: its topic, partition and the protocol's code, and
    ``failed_topics`` are the topics of all such rows.
    ``no_position`` has the stored offsets below zero, by topic and partition: brokers store what a client sends (F1).
    """

    group: str | None
    error_code: int
    commits: dict[str, list[Commit]]
    rows: int = 0
    failed: tuple[str, int, int] | None = None
    no_position: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    failed_topics: frozenset[str] = frozenset()


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
        wanted = [Group(group_id=name, topics=rows) for name in groups]
        return _Request(groups=wanted, require_stable=True, min_version=BATCHED_VERSION, max_version=BATCHED_VERSION)
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
    return Answer(throttle_time_ms, groups), after_tags(data, position)


def _group(data: bytes, position: int, group: str | None) -> tuple[GroupAnswer, int]:
    """Decode a group's topics, error and tags; return also the position after them."""
    count, position = length(data, position)
    commits: dict[str, list[Commit]] = {}
    no_position: dict[str, dict[int, int]] = {}
    all_rows, failed = 0, None
    failed_topics: set[str] = set()
    for _ in range(count):
        name, position = string(data, position)
        rows, position = length(data, position)
        all_rows += rows
        negative: dict[int, int] = {}
        commits[name], wrong, position = _rows(data, position, rows, negative)
        if negative:
            no_position[name] = negative
        if wrong is not None:
            failed_topics.add(name)
            failed = failed or (name, *wrong)
        position = after_tags(data, position)
    if len(commits) < count:  # one topic's rows would hide the other's
        raise ValueError("an OffsetFetch response names a topic twice")
    error, position = short(data, position)
    answer = GroupAnswer(group, error, commits, all_rows, failed, no_position, frozenset(failed_topics))
    return answer, after_tags(data, position)


def _rows(
    data: bytes, position: int, count: int, negative: dict[int, int]
) -> tuple[list[Commit], tuple[int, int] | None, int]:
    """Decode a topic's rows: partition, offset, leader epoch, metadata, error, tags.

    Offsets below zero go into ``negative``, by partition.
    """
    size = _ROW.size
    end = position + count * size
    block = data[position:end]
    # A column of all rows is tested at once: to test each row would cost more than to decode it.
    plain = not block[16::size].strip(b"\0\1") and not any(block[n::size].strip(b"\0") for n in (17, 18, 19))
    if not plain or end > len(data):
        return _rows_one_by_one(data, position, count, negative)
    rows = list(_ROW.iter_unpack(block))
    if not block[4::size].isascii():  # the sign bit of some offset is set
        negative.update((row[0], row[1]) for row in rows if row[1] < 0)
        rows = [row for row in rows if row[1] >= 0]
    if block[12::size].isascii():
        return rows, None, end
    return [row if row[2] >= 0 else (row[0], row[1], None) for row in rows], None, end


def _rows_one_by_one(
    data: bytes, position: int, count: int, negative: dict[int, int]
) -> tuple[list[Commit], tuple[int, int] | None, int]:
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
            commits.append(row if row[2] >= 0 else (row[0], row[1], None))
        elif not error:
            negative[row[0]] = row[1]
    return commits, failed, position
