"""What kretain remembers of a cluster, as values: what brokers forget and decisions need (docs/memory.md). Pure.

Two memories of the same thing merge in any order, so that processes, pods or laptops can share them. Everything
belongs to a topic id: a recreated topic starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from retention_cli.core.model import TopicPartition, Unknown
from retention_cli.memory.ages import Ages
from retention_cli.memory.disk import DiskMemory
from retention_cli.memory.partition import PartitionMemory

if TYPE_CHECKING:
    from retention_cli.memory.positions import Logs

Commits = Mapping[str, Sequence[tuple[int, int, int | None]]]
"""A group's commits by topic: partition, committed offset, and the commit's leader epoch, None if it has none."""
Rows = dict[str, list[tuple[int, int, int | None]]]
"""Remembered commits, likewise. The epoch is the one under which a commit was last seen to count: its own, else the
leader's. None: it was never seen to count, and whether it does is unknown."""


Last = tuple[str, int, Rows]
"""A group that is gone: its name, when it was last seen (Unix ms), and its last commits."""


LogsOf = Callable[[], "Logs"]
"""Returns what this pass has read of logs."""


@dataclass(frozen=True, slots=True)
class RecalledGroup:
    """What is remembered of a live group: commits that are gone (F6), and those that are refused (F5)."""

    gone: Rows = field(default_factory=dict)
    refused: Mapping[tuple[str, int], tuple[int, int | None]] = field(default_factory=dict)


_NOTHING: Final = RecalledGroup()


class Memory(Protocol):
    """What observing a cluster reads from its memory, and adds to it."""

    lost: Unknown | None
    """Why nothing can be recalled: what depends on it is unknown, and held."""

    def begin(self, topic_ids: Mapping[str, str]) -> None:
        """Set the cluster's current topic ids."""
        ...

    def partition(self, topic: str, topic_id: str, partition: int) -> PartitionMemory:
        """Return a partition's memory, to read and to add to."""
        ...

    def disk(self, name: str) -> DiskMemory:
        """Return a disk's memory, to read and to add to."""
        ...

    def ages(self, partitions: Mapping[str, int], groups: Collection[str], now_ms: int) -> Ages:
        """Note how many partitions topics have, and which groups there are; return which are younger (F2)."""
        ...

    def saw_group(self, name: str, commits: Commits, now_ms: int, since_ms: int) -> RecalledGroup:
        """Remember a group's commits; return its gone ones, seen at or after ``since_ms``, and its refused ones."""
        ...

    def group_topics(self, name: str) -> Collection[str]:
        """Return the topics that a consumer has ever committed on, whether or not its positions counted."""
        ...

    def commits_seen(self, name: str) -> Mapping[tuple[str, int], tuple[int, int | None]]:
        """Return a consumer's commits as of the last look, by topic and partition: offset and leader epoch."""
        ...

    def unmoved_since(self, name: str, commits: Commits | None) -> int | None:
        """Return the first look that found a consumer where it stands now (Unix ms): it hasn't moved since, at least.

        ``commits`` are those of now; None: it is gone. None is returned if they are not those that the last look saw.
        """
        ...

    def gone_groups(self, present: Iterable[str], since_ms: int, *, outside: bool = False) -> Iterable[Last]:
        """Return the groups not in ``present``, seen at or after ``since_ms``; with ``outside`` only those of F7."""
        ...

    def judge(self, logs_of: LogsOf, topics: Collection[str], cuts: Collection[TopicPartition]) -> None:
        """Judge which of the commits seen count and which are refused, by what was read of their logs since.

        ``topics`` are those whose logs were read, ``cuts`` the partitions whose logs were cut since the last pass.
        """
        ...


@dataclass(slots=True)
class NoMemory:
    """A memory that starts empty and is never saved. ``lost`` says why, if something should have been recalled."""

    lost: Unknown | None = None
    partitions: dict[tuple[str, int], PartitionMemory] = field(default_factory=dict)
    """By topic id and partition."""
    _disks: dict[str, DiskMemory] = field(default_factory=dict)

    def begin(self, topic_ids: Mapping[str, str]) -> None:
        """Do nothing: partitions are already by topic id."""

    def partition(self, topic: str, topic_id: str, partition: int) -> PartitionMemory:
        """Return what was added in this process."""
        del topic
        return self.partitions.setdefault((topic_id, partition), PartitionMemory())

    def disk(self, name: str) -> DiskMemory:
        """Return what was added in this process."""
        return self._disks.setdefault(name, DiskMemory())

    def ages(self, partitions: Mapping[str, int], groups: Collection[str], now_ms: int) -> Ages:
        """Return that all are equally old."""
        del partitions, groups, now_ms
        return Ages()

    def saw_group(self, name: str, commits: Commits, now_ms: int, since_ms: int) -> RecalledGroup:
        """Return nothing."""
        del name, commits, now_ms, since_ms
        return _NOTHING

    def group_topics(self, name: str) -> Collection[str]:
        """Return nothing."""
        del name
        return ()

    def commits_seen(self, name: str) -> Mapping[tuple[str, int], tuple[int, int | None]]:
        """Return nothing."""
        del name
        return {}

    def unmoved_since(self, name: str, commits: Commits | None) -> int | None:
        """Return nothing."""
        del name, commits
        return None

    def gone_groups(self, present: Iterable[str], since_ms: int, *, outside: bool = False) -> Iterable[Last]:
        """Return nothing."""
        del present, since_ms, outside
        return ()

    def judge(self, logs_of: LogsOf, topics: Collection[str], cuts: Collection[TopicPartition]) -> None:
        """Do nothing: no commit is kept."""


def lost(text: str) -> NoMemory:
    """Return a memory that can't be recalled: every floor (F6) and every sample (G3) is unknown."""
    return NoMemory(Unknown.because("ledger", text))
