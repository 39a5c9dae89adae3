"""The groups of a ledger: those that it stores, and those that were read and are not written yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from retention_cli.core.consumers import outlives_topics
from retention_cli.core.model import TopicPartition
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.group_columns import Columns, Document, columns_of
from retention_cli.memory.group_rows import digest_of
from retention_cli.memory.interface import Commits, Last, LogOf, PlainLogs, RecalledGroup
from retention_cli.memory.judged_group import JudgedGroup, Logs, judged
from retention_cli.memory.ledger_file import LedgerFile
from retention_cli.memory.read_commits import ReadCommits
from retention_cli.memory.seen_group import SeenGroup, expanded, recalled, seen, stored


class Head(NamedTuple):
    """A group's row without its document: when it was last seen (Unix ms), and the digest of its commits.

    ``plain``: there is nothing to recall of it. ``open`` are the topics with a commit that was not judged yet.
    """

    seen_ms: int
    digest: bytes
    plain: bool
    open: frozenset[str]


class LedgerGroups(LedgerFile):
    """A ledger's groups.

    Those that changed are in ``_groups``, or, as nearly all of a live cluster, in ``_unjudged`` until they are judged
    and in ``_judged`` from then on; a name is in one of these at most.
    """

    slack_ms: int = 0
    """By so much a group may have been seen later than is remembered (F6)."""
    reads: list[tuple[str, ReadCommits | None]] | None = None
    """A list of one's own to note here what groups are read as, in order; None: as is remembered."""

    def __init__(self, folder: Path, known_id: str | None = None) -> None:
        self._ids: Mapping[str, str] = {}
        self._groups: dict[str, GroupMemory] = {}
        self._unjudged: dict[str, SeenGroup] = {}
        self._judged: dict[str, JudgedGroup] = {}
        self._touched: dict[str, int] = {}
        self._present: set[str] = set()
        self._heads: dict[str, Head] = {}
        self._outdated = False  # what was read is not what the file has
        super().__init__(folder, known_id)

    def saw_group(
        self, name: str, commits: Commits, now_ms: int, since_ms: int, digest: bytes | None = None
    ) -> RecalledGroup:
        """Remember a group's commits; return its gone ones, seen at or after ``since_ms``, and its refused ones.

        ``digest`` is that of the commits as the broker has them, if somebody else has put them in order since.
        """
        digest = digest or digest_of(commits, self._ids)
        head = self._heads.get(name)
        stands = head is not None and head.digest == digest
        columns = None if stands else columns_of(commits)
        if self.reads is not None:
            self.reads.append((name, None if stands else ReadCommits(now_ms, digest, columns or commits)))
        if head is not None and stands:
            self.saw_again(name, now_ms)
            return RecalledGroup() if head.plain else self._recalled(name, since_ms)
        if (known := self.saw_columns(name, columns, digest, now_ms)) is not None:
            return known
        group = self._group(name)
        group.update(commits, self._ids, digest, now_ms, outlives=outlives_topics(name))
        self._see(name, group)
        return group.recalled(self._ids, since_ms)

    def _is_stored(self, name: str) -> bool:
        return not (name in self._groups or name in self._unjudged or name in self._judged)

    def _recalled(self, name: str, since_ms: int) -> RecalledGroup:
        """Return what is to be recalled of a group that has not changed."""
        found = self._stored_columns(name)
        return self._group(name).recalled(self._ids, since_ms) if found is None else recalled(found)

    def _stored_columns(self, name: str) -> Document | None:
        """Return what is stored of a group, None if that is not all, or only :class:`GroupMemory` can use it."""
        if not self._is_stored(name):
            return None
        with self._errors():
            return _columns_in(self._stored_document(name))

    def saw_columns(self, name: str, now: Columns | None, digest: bytes, now_ms: int) -> RecalledGroup | None:
        """Remember commits, with their digest, that have changed; return those refused, None if that can't be.

        They stay columns until they are judged. Where that can't be, :meth:`saw_group` remembers them.
        """
        if outlives_topics(name) or not self._is_stored(name):
            return None
        with self._errors():
            there = self._stored_document(name)
            before = _columns_in(there)
        if (there is None) == (name in self._heads) or (there is None) != (before is None):
            return None
        one = seen(before, now, self._ids, digest, now_ms)
        if one is None:
            return None
        known = recalled(one.before)
        self._unjudged[name] = one
        self._present.add(name)
        self._heads[name] = Head(one.seen_ms, one.digest, not known.refused, frozenset())
        return known

    def group_topics(self, name: str) -> Collection[str]:
        """Return the topics that a consumer has ever committed on."""
        return self._group(name).topics()

    def commits_seen(self, name: str) -> Mapping[tuple[str, int], tuple[int, int | None]]:
        """Return a consumer's commits as of the last look, by topic and partition: offset and leader epoch."""
        return self._group(name).live()

    def unmoved_since(self, name: str, commits: Commits | None) -> int | None:
        """Return the first look that found a consumer's commits where they are, None if no look did."""
        head = self._heads.get(name)
        if head is None or (commits is not None and head.digest != digest_of(commits, self._ids)):
            return None
        found = self._stored_columns(name)
        return self._group(name).stood_ms if found is None else found.stood_ms

    def gone_groups(self, present: Iterable[str], since_ms: int, *, outside: bool = False) -> Iterable[Last]:
        """Return the groups not in ``present``, seen at or after ``since_ms``; with ``outside`` only those of F7."""
        here = frozenset(present)
        for name, head in sorted(self._heads.items()):
            if name not in here and head.seen_ms >= since_ms and (outlives_topics(name) or not outside):
                yield name, head.seen_ms, self._group(name).last_commits(self._ids, since_ms)

    def judge(
        self,
        log_of: LogOf,
        topics: Collection[str],
        cuts: Collection[TopicPartition],
        plain: PlainLogs = lambda _topic: ((), ()),
    ) -> None:
        """Judge the commits of the groups that exist by what this pass has read of their logs (F5).

        ``plain`` are those of the logs that are plain, where they are known at once.
        """
        done = set() if cuts else self._judge_columns(Logs(log_of, plain))
        for name, head in list(self._heads.items()):
            if name in done or (name not in self._groups and head.open.isdisjoint(topics) and not cuts):
                continue
            group = self._group(name)
            if unseen := bool(cuts) and outlives_topics(name) and name not in self._present:
                group.cut_unseen({tp.topic for tp in cuts})
            # If another run has seen it since, its commits may be later than the logs that this pass has read.
            mine = name in self._present and group.seen_ms == head.seen_ms
            if group.refuse_beyond(cuts, log_of) | (mine and group.judge(log_of)) | unseen:
                self._adopt(name, group)

    def _judge_columns(self, logs: Logs) -> set[str]:
        """Judge the groups that are kept as columns; return their names."""
        done = set(self._unjudged).intersection(self._present)
        for name in done:
            one = self._judged[name] = judged(self._unjudged.pop(name), logs)
            self._heads[name] = Head(one.seen_ms, one.digest, one.plain, one.open)
        return done

    def remembers_group(self, name: str) -> bool:
        """Return whether anything is remembered of a group."""
        return name in self._heads

    def group(self, name: str) -> GroupMemory:
        """Return a group's memory, empty if it was never seen."""
        return self._group(name)

    def groups(self) -> dict[str, GroupMemory]:
        """Return the memory of every group, by name."""
        return {name: self._group(name) for name in sorted(self._heads)}

    def saw_read(self, name: str, read: ReadCommits | None, listed_ms: int, since_ms: int) -> None:
        """Remember what a part of this ledger has in :attr:`reads` (:mod:`.parts`).

        Others may have written since: what they have read is merged by when that was, as their commits may be later.

        Args:
            name: the group's key.
            read: its commits, None if they are those that are remembered.
            listed_ms: the groups were listed later than that (Unix ms).
            since_ms: since when a group that is gone counts (Unix ms).
        """
        if read is None:
            self.saw_again(name, listed_ms)
        elif self._outdated or self._meta("revision") != self._revision:
            group = GroupMemory() if self._is_stored(name) else self._group(name)  # an earlier reading of this pass
            group.update(read.rows(), self._ids, read.digest, read.read_ms, outlives=outlives_topics(name))
            self._see(name, group)
        elif self.saw_columns(name, read.columns, read.digest, read.read_ms) is None:
            self.saw_group(name, read.rows(), read.read_ms, since_ms, read.digest)

    def saw_again(self, name: str, now_ms: int) -> None:
        """Note that a group was seen, unchanged."""
        self._touched[name] = now_ms
        self._present.add(name)

    def _see(self, name: str, group: GroupMemory) -> None:
        self._present.add(name)
        self._adopt(name, group)

    def _adopt(self, name: str, group: GroupMemory) -> None:
        self._drop(name)
        self._heads[name] = Head(group.seen_ms, group.digest, group.plain, group.open_topics)
        self._groups[name] = group

    def _drop(self, name: str) -> None:
        for some in (self._heads, self._groups, self._unjudged, self._judged):
            some.pop(name, None)

    def _expand_columns(self) -> None:
        """Turn groups that are kept as columns into those of the ordinary kind, which can do everything."""
        for name in list(self._unjudged):
            self._group(name)

    def _expand_judged(self) -> None:
        for name in list(self._judged):
            self._adopt(name, self._group(name))

    def _group(self, name: str) -> GroupMemory:
        if name in self._groups:
            return self._groups[name]
        with self._errors():
            if (known := self._judged.get(name)) is not None:
                return GroupMemory.from_bytes(known.document)
            if (one := self._unjudged.get(name)) is not None:
                group = expanded(one)
                self._adopt(name, group)
                return group
            there = self._stored_group(name)
            if there is None and name in self._heads:
                raise ValueError(f"what it remembers of group {name!r} is missing")
            return there or GroupMemory()


def _columns_in(there: tuple[int, bytes] | None) -> Document | None:
    """Return a stored document as of when its group was last seen, None if only :class:`GroupMemory` can use it."""
    found = None if there is None else stored(there[1])
    return None if there is None or found is None else found._replace(seen_ms=there[0])
