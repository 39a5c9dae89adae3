"""The part of the ledger that one task needs: sent to it, and what it has seen returned."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from retention_cli.core.consumers import outlives_topics
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.group_columns import Columns, are_numbers, columns_of, nothing, packed, unpacked
from retention_cli.memory.group_rows import digest_of
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
    those that have changed (:class:`ReadCommits`) if the client ``remembers`` any. By ``slack_ms`` a group may have
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
        digest, known = digest_of(commits, self._ids), self.groups.get(name)
        if known is not None and known.digest == digest:
            self.seen[name] = None
            if known.plain:
                return RecalledGroup()
            return recalled_of(known.document) or self._group(known).recalled(self._ids, since_ms)
        now = columns_of(commits)
        self.seen[name] = ReadCommits(now_ms, digest, commits if now is None else now).as_bytes()
        if known is None:
            return RecalledGroup()
        before = stored(known.document)
        if before is not None:
            one = seen(before._replace(seen_ms=known.seen_ms), now, self._ids, digest, now_ms)
            if one is not None:
                return recalled(one.before)
        group = self._group(known)
        group.update(commits, self._ids, digest, now_ms, outlives=outlives_topics(name))
        return group.recalled(self._ids, since_ms)

    def group_topics(self, name: str) -> Collection[str]:
        """Return the topics that a group has ever committed on, whether or not its positions counted."""
        known = self.groups.get(name)
        return () if known is None else self._group(known).topics()

    def commits_seen(self, name: str) -> Mapping[tuple[str, int], tuple[int, int | None]]:
        """Return a group's commits as of the last look, by topic and partition: offset and leader epoch."""
        known = self.groups.get(name)
        return {} if known is None else self._group(known).live()

    def _group(self, known: KnownGroup) -> GroupMemory:
        group = GroupMemory.from_bytes(known.document)
        group.seen_ms = known.seen_ms
        return group


class ReadCommits(NamedTuple):
    """A group's commits as a task has read them, for the client: when that was (Unix ms), and their digest.

    They are columns, or rows where they are none (:func:`~retention_cli.memory.group_columns.columns_of`).
    """

    read_ms: int
    digest: bytes
    commits: Columns | Commits

    @property
    def columns(self) -> Columns | None:
        """The commits as columns, None if they are none."""
        return self.commits if isinstance(self.commits, Columns) else None

    @property
    def size(self) -> int:
        """How many commits these are."""
        return sum(map(len, self.rows().values())) if self.columns is None else len(self.columns.offsets)

    def rows(self) -> Commits:
        """Return the commits as rows."""
        return self.commits.rows() if isinstance(self.commits, Columns) else self.commits

    def as_bytes(self) -> bytes:
        """Return all of it as bytes."""
        columns = self.columns
        rows = self.rows() if columns is None else None
        return packed([self.read_ms, self.digest.hex(), rows], [nothing() if columns is None else columns])

    @classmethod
    def from_bytes(cls, raw: bytes) -> ReadCommits:
        """Return what :meth:`as_bytes` wrote.

        Raises:
            ValueError: it is not valid.
        """
        head, [columns], more = unpacked(raw, 1, proven=False)
        try:
            read_ms, digest, rows = head
            found = cls(read_ms, bytes.fromhex(digest), columns if rows is None else _rows(rows))
        except (ValueError, TypeError, AttributeError):
            found = None
        if found is None or type(found.read_ms) is not int or more or not columns.are_in_order:
            raise ValueError("a task's commits can't be read")
        return found


def _rows(by_topic: Mapping[str, list[list[Any]]]) -> Commits:
    if not are_numbers(by_topic, 3):
        raise ValueError("a commit is no number")
    return {
        topic: [(partition, offset, epoch) for partition, offset, epoch in rows] for topic, rows in by_topic.items()
    }
