"""What kretain remembers of a cluster, as values: what brokers forget and decisions need (docs/memory.md).

Pure: two memories of the same thing merge to one, in any order, so that two processes, pods or laptops can
remember together. Everything belongs to a topic id: a topic recreated starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from retention_cli.core.model import TopicPartition, Unknown
from retention_cli.memory.disk import DiskMemory
from retention_cli.memory.partition import PartitionMemory

Commits = Mapping[str, Sequence[tuple[int, int, int | None]]]
"""A group's commits by topic: partition, committed offset, leader epoch where the commit carries one."""
Rows = dict[str, list[tuple[int, int, int | None]]]
"""Remembered commits, likewise. The epoch is the one under which a commit was last seen to count: its own, or else the
leader's. Without one it was never seen to: what it is worth is unknown."""


Last = tuple[str, int, Rows]
"""A group that is gone: its name, when it was last seen (Unix ms), and its last commits."""


class LogNow(NamedTuple):
    """What a pass has found out of a partition's log, to judge the commits on it by (F5).

    ``unknown_epochs`` are leader epochs of commits that its leader does not know, ``unasked_epochs`` those that it
    could not be asked about. ``cut`` is where the log was cut since the last pass, None where it was not;
    ``cut_until`` the leader epoch after which that is known to be done with: a commit that was seen to count in a later
    one was seen in the log as it was cut. None, where that is not known of any.
    ``last_epoch`` is the epoch of its last record, None where that is not known.
    """

    high_watermark: int
    leader_epoch: int
    unknown_epochs: frozenset[int] = frozenset()
    unasked_epochs: frozenset[int] = frozenset()
    cut: int | None = None
    last_epoch: int | None = None
    cut_until: int | None = None

    @property
    def proves(self) -> int:
        """The epoch by which it can be told later whether what stands below H is still the same."""
        return self.leader_epoch if self.last_epoch is None else self.last_epoch


LogOf = Callable[[tuple[str, int]], LogNow | None]
"""Gives a partition's log, by topic and number; None where this pass has not read it."""


@dataclass(frozen=True, slots=True)
class RecalledGroup:
    """What is remembered of a live group: commits that are gone (F6), and those that count for nothing (F5)."""

    gone: Rows = field(default_factory=dict)
    refused: Mapping[tuple[str, int], tuple[int, int | None]] = field(default_factory=dict)


_NOTHING: Final = RecalledGroup()


class Memory(Protocol):
    """What reading a cluster asks of what is remembered, and tells it."""

    lost: Unknown | None
    """Why nothing can be recalled: what depends on it is unknown, and held."""

    def begin(self, topic_ids: Mapping[str, str]) -> None:
        """Take the ids that the cluster's topics have now."""
        ...

    def partition(self, topic: str, topic_id: str, partition: int) -> PartitionMemory:
        """Return what is remembered of a partition, to read and to add to."""
        ...

    def disk(self, name: str) -> DiskMemory:
        """Return what is remembered of a disk, to read and to add to."""
        ...

    def saw_group(self, name: str, commits: Commits, now_ms: int, since_ms: int) -> RecalledGroup:
        """Remember a group's commits; return what is known of it besides, seen at or after ``since_ms``."""
        ...

    def group_topics(self, name: str) -> Collection[str]:
        """Return the topics on which a consumer was ever seen to stand, whether or not its positions counted."""
        ...

    def gone_groups(self, present: Iterable[str], since_ms: int, *, outside: bool = False) -> Iterable[Last]:
        """Return the groups that are not ``present``, seen at or after ``since_ms``; ``outside``: of F7 alone."""
        ...

    def judge(self, log_of: LogOf, topics: Collection[str], cuts: Collection[TopicPartition]) -> None:
        """Judge the commits that were seen by what has been read of their logs since: which count, which are refused.

        ``topics`` are those whose logs were read, ``cuts`` the partitions whose logs were cut since the last pass.
        """
        ...


@dataclass(slots=True)
class NoMemory:
    """Remembers for as long as it lives, and recalls nothing. ``lost`` says why, where something was to be recalled."""

    lost: Unknown | None = None
    partitions: dict[tuple[str, int], PartitionMemory] = field(default_factory=dict)
    """By topic id and partition."""
    _disks: dict[str, DiskMemory] = field(default_factory=dict)

    def begin(self, topic_ids: Mapping[str, str]) -> None:
        """Do nothing: what lives as long as a process belongs to the ids that it was asked for."""

    def partition(self, topic: str, topic_id: str, partition: int) -> PartitionMemory:
        """Return what was added in this process."""
        del topic
        return self.partitions.setdefault((topic_id, partition), PartitionMemory())

    def disk(self, name: str) -> DiskMemory:
        """Return what was added in this process."""
        return self._disks.setdefault(name, DiskMemory())

    def saw_group(self, name: str, commits: Commits, now_ms: int, since_ms: int) -> RecalledGroup:
        """Return nothing."""
        del name, commits, now_ms, since_ms
        return _NOTHING

    def group_topics(self, name: str) -> Collection[str]:
        """Return nothing."""
        del name
        return ()

    def gone_groups(self, present: Iterable[str], since_ms: int, *, outside: bool = False) -> Iterable[Last]:
        """Return nothing."""
        del present, since_ms, outside
        return ()

    def judge(self, log_of: LogOf, topics: Collection[str], cuts: Collection[TopicPartition]) -> None:
        """Do nothing: no commit is kept."""


def lost(text: str) -> NoMemory:
    """Return a memory that can't be recalled: unknown, for every floor (F6) and every sample (G3)."""
    return NoMemory(Unknown.because("ledger", text))
