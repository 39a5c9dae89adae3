"""The part of the ledger that one task needs: sent with its slice, and returned where it changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from retention_cli.memory.group import GroupMemory
from retention_cli.memory.group_rows import digest_of
from retention_cli.memory.interface import Commits, NoMemory, RecalledGroup


@dataclass(slots=True)
class SliceMemory(NoMemory):
    """The memory of some groups or partitions (:class:`retention_cli.memory.interface.Memory`).

    ``partitions`` are the records that the client has sent. ``seen`` are the groups that exist, ``changed`` those whose
    commits changed. The client itself adds deleted groups, and judges commits, as only it sees all partitions.
    """

    groups: dict[str, GroupMemory] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    _ids: Mapping[str, str] = field(default_factory=dict)

    def begin(self, topic_ids: Mapping[str, str]) -> None:
        """Set the cluster's current topic ids."""
        self._ids = topic_ids

    def saw_group(self, name: str, commits: Commits, now_ms: int, since_ms: int) -> RecalledGroup:
        """Record a group's commits; return what is remembered of it, seen at or after ``since_ms`` (Unix ms)."""
        self.seen.add(name)
        group = self.groups.setdefault(name, GroupMemory())
        digest = digest_of(commits, self._ids)
        if group.digest != digest:
            group.update(commits, self._ids, digest, now_ms)
            self.changed.add(name)
        return group.recalled(self._ids, since_ms)
