"""What is remembered, as far as one task needs it: sent along with its slice, and handed back where it grew."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from retention_cli.core.model import TopicPartition, Unknown
from retention_cli.memory.disk import DiskMemory
from retention_cli.memory.group import GroupMemory, digest_of
from retention_cli.memory.interface import Commits, LogOf, RecalledGroup, Rows
from retention_cli.memory.partition import PartitionMemory


@dataclass(slots=True)
class SliceMemory:
    """The memory of some groups or partitions (:class:`retention_cli.memory.interface.Memory`).

    ``seen`` names the groups that were there, ``changed`` those of which something new was seen. ``partitions`` are
    by topic and partition.
    """

    groups: dict[str, GroupMemory] = field(default_factory=dict)
    partitions: dict[tuple[str, int], PartitionMemory] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    lost: Unknown | None = None
    _ids: Mapping[str, str] = field(default_factory=dict)

    def begin(self, topic_ids: Mapping[str, str]) -> None:
        """Take the ids that the cluster's topics have now."""
        self._ids = topic_ids

    def partition(self, topic: str, topic_id: str, partition: int) -> PartitionMemory:
        """Return what is remembered of a partition; the client has sent what belongs to its topic id."""
        del topic_id
        return self.partitions.setdefault((topic, partition), PartitionMemory())

    def disk(self, name: str) -> DiskMemory:
        """Return nothing: no task looks at disks."""
        del name
        return DiskMemory()

    def saw_group(self, name: str, commits: Commits, now_ms: int, since_ms: int) -> RecalledGroup:
        """Remember a group's commits; return what is known of it besides, seen at or after ``since_ms``."""
        self.seen.add(name)
        group = self.groups.setdefault(name, GroupMemory())
        digest = digest_of(commits, self._ids)
        if group.digest != digest:
            group.update(commits, self._ids, digest, now_ms)
            self.changed.add(name)
        return group.recalled(self._ids, since_ms)

    def gone_groups(self, present: Iterable[str], since_ms: int) -> Iterable[tuple[str, int, Rows]]:
        """Return nothing: the client adds those."""
        del present, since_ms
        return ()

    def judge(self, log_of: LogOf, topics: Collection[str], cuts: Collection[TopicPartition]) -> None:
        """Leave it to the client: it sees all partitions."""
