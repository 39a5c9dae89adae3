"""Every group's commits as rows, for engines that fold them elsewhere (F1–F6). Pure.

The rows have what :class:`~retention_cli.observe.floors.fold.FloorFold` makes floors of: commits, and whatever makes a
floor unknown. A group's rows are together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from retention_cli.core.model import Reason
from retention_cli.observe.floors.fold import Commit
from retention_cli.observe.floors.latest import NOBODY, Latest
from retention_cli.observe.floors.standing import (
    failed_reason,
    gone_without_commit_text,
    no_position_text,
    only_member_text,
    without_commit_text,
    younger_text,
)

Kind = Literal["commit", "gone", "missing", "refused", "failed", "memory"]


class CommitRow(NamedTuple):
    """One row. ``topic`` None means every topic of the cluster, ``partition`` None the whole topic.

    ========  ==============================================================================
    kind      means
    ========  ==============================================================================
    commit    ``group`` committed ``offset`` in ``leader_epoch`` (None: it carries none)
    gone      likewise, but the commit is gone; ``text``: when it was seen (F6). No epoch: it never counted
    missing   the group reads the topic and has no commit here; ``text`` says what to do (F2)
    refused   the group's commit here belongs to another log, and does not count (F5)
    failed    the group could not be read (F3), or none could be (F8, F9)
    memory    what the ledger should remember of the group; not a fact of the cluster
    ========  ==============================================================================
    """

    group: str
    topic: str | None
    partition: int | None
    kind: Kind
    offset: int | None = None
    leader_epoch: int | None = None
    code: str | None = None
    text: str | None = None


class CommitRows:
    """Turns groups into rows (:class:`~.fold.FloorSink`); ``take`` returns the new ones.

    Args:
        partitions: how many partitions each managed topic has; other topics are left out.
        latest: the groups that start at the end if they have no commit (F2).
    """

    def __init__(self, partitions: Mapping[str, int], latest: Latest = NOBODY) -> None:
        self._partitions = partitions
        self._latest = latest
        self._known: dict[str, dict[str, set[int]]] = {}
        self._skipped: dict[str, set[tuple[str, int]]] = {}
        self._unset: dict[str, dict[str, set[int]]] = {}
        self._rows: list[CommitRow] = []

    def take(self) -> list[CommitRow]:
        """Return the rows of the groups added since the last call."""
        rows, self._rows = self._rows, []
        return rows

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, group: str, commits: Mapping[str, Sequence[Commit]], reads: Iterable[str] = ()) -> None:
        """Add a group: its commits by topic, and the topics that its live members read."""
        append = self._rows.append
        known, skipped = self._known.pop(group, {}), self._skipped.pop(group, ())
        unset = self._unset.pop(group, {})
        live = frozenset(reads)
        known = {topic: places for topic, places in known.items() if topic not in live}
        for topic, rows in commits.items():
            count = self._partitions.get(topic)
            if count is None or not rows:
                continue
            there = set()
            for partition, offset, epoch in rows:
                if partition >= count:  # created since the metadata was read: not managed yet
                    continue
                there.add(partition)
                if not skipped or (topic, partition) not in skipped:
                    append(CommitRow(group, topic, partition, "commit", offset, epoch))
            there |= known.get(topic, set()) | unset.get(topic, set())
            if len(there) < count:
                self._mark_missing(group, topic, there, without_commit_text(group, topic, rows))
        for topic in live:
            if topic in self._partitions and not commits.get(topic):
                self._mark_missing(group, topic, unset.get(topic, ()), only_member_text(group, topic))
        for topic in {**known, **unset}:
            if not commits.get(topic) and topic not in live:
                places = known.get(topic, set()) | unset.get(topic, set())
                self._mark_missing(group, topic, places, gone_without_commit_text(group, topic, "before"))

    def recall(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Add positions of a group whose commits are gone (F6)."""
        for topic, rows in gone.items():
            count = self._partitions.get(topic)
            if count is None:
                continue
            here = self._known.setdefault(group, {}).setdefault(topic, set())
            for partition, offset, epoch in rows:
                if partition < count:
                    here.add(partition)
                    self._rows.append(CommitRow(group, topic, partition, "gone", offset, epoch, "F6", seen))

    def add_gone(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Add a group that is gone as a whole (F6). Where it read a topic without a commit, floors are unknown."""
        self.recall(group, gone, seen)
        for topic, places in self._known.pop(group, {}).items():
            if len(places) < self._partitions[topic]:
                self._mark_missing(group, topic, places, gone_without_commit_text(group, topic, seen))

    def refuse(self, group: str, refused: Mapping[tuple[str, int], tuple[int, int | None]]) -> None:
        """Add commits of a group that do not count (F5); for F2 the group has a commit there."""
        for (topic, partition), (offset, epoch) in refused.items():
            if partition < self._partitions.get(topic, 0):
                self._skipped.setdefault(group, set()).add((topic, partition))
                self._rows.append(CommitRow(group, topic, partition, "refused", offset, epoch, "F5"))

    def no_position(self, group: str, stored: Mapping[str, Mapping[int, int]]) -> None:
        """Add a group's stored offsets below zero: it reads there, from where only its client knows (F1, F2)."""
        for topic, offsets in stored.items():
            count = self._partitions.get(topic)
            if count is None:
                continue
            here = self._unset.setdefault(group, {}).setdefault(topic, set())
            for partition, offset in offsets.items():
                if partition < count:
                    here.add(partition)
                    text = no_position_text(group, topic, partition, offset)
                    self._rows.append(CommitRow(group, topic, partition, "missing", code="F2", text=text))

    def fail(self, group: str, text: str, topics: Iterable[str] | None) -> None:
        """Add a group that could not be read (F3), and the topics that it may read (None: any)."""
        self._fail(group, failed_reason(group, text), topics)

    def fail_all(self, reason: Reason, topics: Iterable[str] | None = None) -> None:
        """Make every floor unknown, or every one of these topics."""
        self._fail("", reason, topics)

    def _fail(self, group: str, reason: Reason, topics: Iterable[str] | None) -> None:
        for topic in (None,) if topics is None else topics:
            if topic is None or topic in self._partitions:
                self._reason(group, topic, None, "failed", reason)

    def _reason(self, group: str, topic: str | None, partition: int | None, kind: Kind, reason: Reason) -> None:
        self._rows.append(CommitRow(group, topic, partition, kind, code=reason.code, text=reason.text))

    def _mark_missing(self, group: str, topic: str, there: Iterable[int], text: str) -> None:
        known, count = frozenset(there), self._partitions[topic]
        text = younger_text(group) if group in self._latest.groups else text
        for partition in range(self._latest.covered(group, topic, count), count):
            if partition not in known:
                self._rows.append(CommitRow(group, topic, partition, "missing", code="F2", text=text))
