"""Compare what is remembered of consumers with what was read of them (F5, F6)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from retention_cli.core.consumers import group_id, is_share
from retention_cli.core.model import Code, Reason
from retention_cli.core.units import format_time
from retention_cli.memory.interface import Commits, RecalledGroup
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.floors.fold import FloorFold
from retention_cli.policy.model import matches
from retention_cli.policy.settings import GroupRules


@dataclass(frozen=True, slots=True)
class Recall:
    """Compares what is remembered of groups with what was read (F5, F6)."""

    memory: Ledger
    rules: GroupRules
    now_ms: int
    clock_is_right: bool = True

    @property
    def since_ms(self) -> int:
        """A group that is gone still counts if it was seen since then (F6). Unix ms."""
        return self.now_ms - self.rules.remember_ms

    def saw(self, name: str, commits: Commits, unread: Collection[str | tuple[str, int]] = ()) -> RecalledGroup:
        """Remember a group's commits; return which of them do not count (F5), and which are gone (F6).

        On ``unread`` topics and partitions its commits could not be read: what is remembered of them stays as it is.
        """
        if unread:
            as_before: dict[str, list[tuple[int, int, int | None]]] = {}
            for (topic, partition), commit in self.memory.group(name).live.commits().items():
                if topic in unread or (topic, partition) in unread:
                    rows = () if topic in unread else commits.get(topic, ())
                    as_before.setdefault(topic, [*rows]).append((partition, *commit))
            commits = {**commits, **as_before}
        return self.memory.saw_group(name, commits, self.now_ms, self.since_ms)

    def saw_all(self) -> None:
        """Remember that every group that counts was listed and read (F10)."""
        if self.clock_is_right:
            self.memory.saw_all(*self.rules.watched, self.now_ms)

    def without_stale_epochs(self, name: str, commits: Commits) -> Commits:
        """Return a group's commits without their leader epochs (``groups.stale.epochs``, F5).

        A commit that was seen with its epoch keeps it until it moves: whether it belongs to this log was judged by it.
        """
        seen = self.memory.group(name).live.commits()
        return {
            topic: [
                (partition, offset, epoch if seen.get((topic, partition)) == (offset, epoch) else None)
                for partition, offset, epoch in rows
            ]
            for topic, rows in commits.items()
        }

    def add_gone(self, fold: FloorFold, listed: Collection[str]) -> None:
        """Fold in remembered groups that are not ``listed``. If the memory is lost, every floor is unknown."""
        if self.memory.lost is not None:
            for reason in self.memory.lost.reasons:
                fold.fail_all(Reason(Code.F6, reason.text))
        for name, seen_ms, rows in self.memory.gone_groups(listed, self.since_ms):
            group = group_id(name)
            if group is None or (is_share(name) and self.rules.share == "ignore"):
                continue
            if not matches(self.rules.ignore, group):
                fold.add_gone(name, rows, format_time(seen_ms // 1000 * 1000))
