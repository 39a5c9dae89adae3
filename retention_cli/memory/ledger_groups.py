"""The groups of a ledger: those that it stores, and those that were read and are not written yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from retention_cli.core.consumers import outlives_topics
from retention_cli.core.model import TopicPartition
from retention_cli.memory.group import GroupMemory, digest_of
from retention_cli.memory.interface import Commits, Last, LogsOf, RecalledGroup
from retention_cli.memory.ledger_rows import SEEN_AGAIN_MS, Head, LedgerRows
from retention_cli.memory.positions import NOTHING, Logs, Positions


class LedgerGroups(LedgerRows):
    """A ledger's groups. Those that changed are in ``_groups``, and from judging on in ``_judged``, as stored."""

    reads: list[tuple[str, GroupMemory | None]] | None = None
    """A list of one's own to note here what groups are read as, in order: all open; None: as is remembered."""

    def __init__(self, folder: Path | None, known_id: str | None = None, *, shared: bool = False) -> None:
        self._ids: Mapping[str, str] = {}
        self._groups: dict[str, GroupMemory] = {}
        self._judged: dict[str, bytes] = {}
        self._touched: dict[str, int] = {}
        self._present: set[str] = set()
        self._heads: dict[str, Head] = {}
        self._outdated = False  # what was read is not what the file has
        super().__init__(folder, known_id, shared=shared)

    @property
    def slack_ms(self) -> int:
        """By so much a group may have been seen later than is remembered (F6)."""
        return SEEN_AGAIN_MS if self.shared else 0

    def saw_group(self, name: str, commits: Commits, now_ms: int, since_ms: int) -> RecalledGroup:
        """Remember a group's commits; return its gone ones, seen at or after ``since_ms``, and its refused ones."""
        since_ms -= self.slack_ms
        digest = digest_of(commits, self._ids)
        head = self._heads.get(name)
        stands = head is not None and head.digest == digest
        now = None if stands else Positions.of(commits)
        if self.reads is not None:
            self.reads.append((name, None if now is None else GroupMemory(now_ms, digest, open=now)))
        if head is not None and now is None:
            self.saw_again(name, now_ms)
            return RecalledGroup() if head.plain else self.group(name).recalled(self._ids, since_ms)
        group = self.group(name)
        group.update(now or NOTHING, self._ids, digest, now_ms, named=commits if outlives_topics(name) else None)
        self._see(name, group)
        return group.recalled(self._ids, since_ms)

    def group_topics(self, name: str) -> Collection[str]:
        """Return the topics that a consumer has ever committed on."""
        return self.group(name).topics()

    def commits_seen(self, name: str) -> Mapping[tuple[str, int], tuple[int, int | None]]:
        """Return a consumer's commits as of the last look, by topic and partition: offset and leader epoch."""
        return self.group(name).live.commits()

    def unmoved_since(self, name: str, commits: Commits | None) -> int | None:
        """Return the first look that found a consumer's commits where they are, None if no look did."""
        head = self._heads.get(name)
        if head is None or (commits is not None and head.digest != digest_of(commits, self._ids)):
            return None
        return self.group(name).stood_ms

    def gone_groups(self, present: Iterable[str], since_ms: int, *, outside: bool = False) -> Iterable[Last]:
        """Return the groups not in ``present``, seen at or after ``since_ms``; with ``outside`` only those of F7."""
        since_ms -= self.slack_ms
        here = frozenset(present)
        for name, head in sorted(self._heads.items()):
            if name not in here and head.seen_ms >= since_ms and (outlives_topics(name) or not outside):
                yield name, head.seen_ms, self.group(name).last_commits(self._ids, since_ms)

    def judge(self, logs_of: LogsOf, topics: Collection[str], cuts: Collection[TopicPartition]) -> None:
        """Judge the commits of the groups that exist by what this pass has read of their logs (F5)."""
        wanted = [one for one in self._heads.items() if cuts or not one[1].open.isdisjoint(topics)]
        logs = logs_of() if wanted else Logs(())
        for name, head in wanted:
            group = self.group(name)
            if unseen := bool(cuts) and outlives_topics(name) and name not in self._present:
                group.cut_unseen({tp.topic for tp in cuts})
            # If another run has seen it since, its commits may be later than the logs that this pass has read.
            mine = (unseen or name in self._present) and group.seen_ms == head.seen_ms
            if group.refuse_beyond(cuts, logs) | (mine and group.judge(logs)) | unseen:
                self._drop(name)
                self._heads[name], self._judged[name] = Head.of(group), group.as_bytes()

    def remembers_group(self, name: str) -> bool:
        """Return whether anything is remembered of a group."""
        return name in self._heads

    def groups(self) -> dict[str, GroupMemory]:
        """Return the memory of every group, by name."""
        return {name: self.group(name) for name in sorted(self._heads)}

    def saw_read(self, name: str, read: GroupMemory | None, listed_ms: int) -> None:
        """Remember what a part of this ledger has in :attr:`reads` (:mod:`retention_cli.state.parts`).

        Others may have written since: what they have read is merged by when that was, as their commits may be later.

        Args:
            name: the group's key.
            read: its commits, None if they are those that are remembered.
            listed_ms: the groups were listed later than that (Unix ms).
        """
        if read is None:
            self.saw_again(name, listed_ms)
            return
        apart = self._outdated or self._meta("revision") != self._revision
        group = GroupMemory() if apart and name not in self._groups and name not in self._judged else self.group(name)
        group.update(read.open, self._ids, read.digest, read.seen_ms, named=() if outlives_topics(name) else None)
        self._see(name, group)

    def saw_again(self, name: str, now_ms: int) -> None:
        """Note that a group was seen, unchanged."""
        self._touched[name] = now_ms
        self._present.add(name)

    def _see(self, name: str, group: GroupMemory) -> None:
        self._present.add(name)
        self._adopt(name, group)

    def _adopt(self, name: str, group: GroupMemory) -> None:
        self._drop(name)
        self._heads[name], self._groups[name] = Head.of(group), group

    def _drop(self, name: str) -> None:
        for some in (self._heads, self._groups, self._judged):
            some.pop(name, None)

    def group(self, name: str) -> GroupMemory:
        """Return a group's memory, empty if it was never seen."""
        if (waiting := self._groups.get(name)) is not None:
            return waiting
        with self._errors():
            if (judged := self._judged.get(name)) is not None:
                return GroupMemory.from_bytes(judged)
            there = self._stored_group(name)
            if there is None and name in self._heads:
                raise ValueError(f"what it remembers of group {name!r} is missing")
            return there or GroupMemory()
