"""The part of the ledger that one task needs: sent to it, and what it has seen returned."""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final, NamedTuple

from retention_cli.core.consumers import outlives_topics
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.group_rows import digest_of_packed, packed_of
from retention_cli.memory.interface import Commits, NoMemory, RecalledGroup
from retention_cli.memory.seen_group import recalled, recalled_of, seen, stored


class KnownGroup(NamedTuple):
    """What the ledger has of a group: the digest of its commits, whether there is nothing to recall, its document."""

    digest: bytes
    plain: bool
    seen_ms: int
    document: bytes


@dataclass(slots=True)
class SliceMemory(NoMemory):
    """The memory of some groups or partitions (:class:`retention_cli.memory.interface.Memory`).

    ``partitions`` are the records that the client has sent. ``seen`` are the groups that exist, with the commits of
    those that have changed (:func:`commits_as_bytes`) if the client ``remembers`` any. By ``slack_ms`` a group may have
    been seen later than the client's ledger knows. The client itself adds deleted
    groups, and judges commits, as only it sees all partitions.
    """

    groups: Mapping[str, KnownGroup] = field(default_factory=dict)
    remembers: bool = False
    slack_ms: int = 0
    seen: dict[str, bytes | None] = field(default_factory=dict)
    _ids: Mapping[str, str] = field(default_factory=dict)

    def begin(self, topic_ids: Mapping[str, str]) -> None:
        """Set the cluster's current topic ids."""
        self._ids = topic_ids

    def saw_group(self, name: str, commits: Commits, now_ms: int, since_ms: int) -> RecalledGroup:
        """Note a group's commits; return what is remembered of it, seen at or after ``since_ms`` (Unix ms)."""
        if not self.remembers:
            self.seen[name] = None
            return RecalledGroup()
        since_ms -= self.slack_ms
        packed, known = packed_of(commits, self._ids), self.groups.get(name)
        digest = digest_of_packed(packed)
        if known is not None and known.digest == digest:
            self.seen[name] = None
            if known.plain:
                return RecalledGroup()
            return recalled_of(known.document) or self._group(known).recalled(self._ids, since_ms)
        self.seen[name] = commits_as_bytes(commits, now_ms)
        if known is None:
            return RecalledGroup()
        before = stored(known.document)
        if before is not None and seen(before, known.seen_ms, commits, self._ids, packed, now_ms) is not None:
            return recalled(before)
        group = self._group(known)
        group.update(commits, self._ids, digest, now_ms, outlives=outlives_topics(name))
        return group.recalled(self._ids, since_ms)

    def _group(self, known: KnownGroup) -> GroupMemory:
        group = GroupMemory.from_bytes(known.document)
        group.seen_ms = known.seen_ms
        return group


def commits_as_bytes(commits: Commits, read_ms: int) -> bytes:
    """Return a group's commits, and when they were read (Unix ms), as bytes for the client: a head, then columns."""
    head = json.dumps([read_ms, {topic: len(rows) for topic, rows in commits.items()}], ensure_ascii=False).encode()
    rows = [*chain.from_iterable(commits.values())]
    partitions, offsets, epochs = zip(*rows, strict=True) if rows else ((), (), ())
    known = [_NO_EPOCH if epoch is None else epoch for epoch in epochs]
    columns = (array(kind, one) for kind, one in zip(_KINDS, (partitions, offsets, known), strict=True))
    return zlib.compress(b"".join([_HEAD.pack(len(head)), head, *map(_little, columns)]), 1)


def commits_from_bytes(raw: bytes) -> tuple[int, dict[str, list[tuple[int, int, int | None]]]]:
    """Return when commits were read (Unix ms), and the commits, that :func:`commits_as_bytes` wrote.

    Raises:
        ValueError: they are not valid.
    """
    try:
        content = zlib.decompress(raw)
        start = _HEAD.size + _HEAD.unpack_from(content)[0]
        read_ms, counts = json.loads(content[_HEAD.size : start])
        lengths = [*counts.values()]
        if type(read_ms) is not int or any(type(one) is not int or one < 0 for one in lengths):
            raise ValueError("a task's commits can't be read: their number is none")
        columns = [array(kind) for kind in _KINDS]
        if len(content) - start != sum(lengths) * sum(column.itemsize for column in columns):
            raise ValueError("a task's commits can't be read: they are not as many as they should be")
        for column in columns:
            end = start + sum(lengths) * column.itemsize
            column.frombytes(content[start:end])
            start = end
    except _BROKEN:
        raise ValueError("a task's commits can't be read") from None
    if sys.byteorder != "little":
        for column in columns:
            column.byteswap()
    partitions, offsets, known = columns
    epochs = [None if epoch == _NO_EPOCH else epoch for epoch in known]
    rows = zip(partitions, offsets, epochs, strict=True)
    return read_ms, {topic: [*islice(rows, count)] for topic, count in counts.items()}


def _little(column: array[int]) -> bytes:
    if sys.byteorder != "little":
        column.byteswap()
    return column.tobytes()


_BROKEN: Final = (
    zlib.error,
    struct.error,
    UnicodeDecodeError,
    json.JSONDecodeError,
    RecursionError,
    LookupError,
    TypeError,
    AttributeError,
)
_HEAD: Final = struct.Struct("<I")
_KINDS: Final = ("i", "q", "i")
"""A partition, an offset and a leader epoch, in 4, 8 and 4 bytes."""
_NO_EPOCH: Final = -(2**31)
