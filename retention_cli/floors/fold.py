"""Every group's commits, folded to one floor per partition as they arrive (RULES.md F1–F5). Pure.

Memory grows with partitions, not with commits: a group's rows are forgotten once they are folded in. The
order in which groups arrive changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from retention_cli.floors.standing import (
    NAMED_AT_MOST,
    Best,
    Standing,
    diverged_reason,
    failed_reason,
    floor_of,
    leftover_reason,
    only_member_text,
    without_commit_text,
)
from retention_cli.model import Floor, Maybe, Reason, TopicPartition, Unknown

Commit = tuple[int, int, int | None]
"""Partition, committed offset, and leader epoch where the commit carries one."""


@dataclass(frozen=True, slots=True)
class TopicScope:
    """A topic whose floors are wanted: its leader epochs by partition, and the groups it requires (F4)."""

    leader_epochs: Sequence[int]
    require: tuple[str, ...] = ()


@dataclass(slots=True)
class _Missing:
    """Groups that read a topic and have no commit on one partition of it (F2)."""

    count: int = 0
    first: list[tuple[str, str]] = field(default_factory=list)

    def add(self, group: str, text: str) -> None:
        self.count += 1
        self.first.append((group, text))
        if len(self.first) > NAMED_AT_MOST:
            self.first.sort()
            self.first.pop()


class FloorSink(Protocol):
    """Takes groups as they are read: what :class:`FloorFold` folds, and others hand on as rows."""

    def add(self, group: str, commits: Mapping[str, Sequence[Commit]], reads: Iterable[str] = ()) -> None:
        """Take one group: its commits by topic, and the topics that its live members read."""
        ...

    def recall(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Note which of a group's commits are remembered ones (F6); called before ``add``."""
        ...

    def leftover(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Note a commit that counts for nothing (F5)."""
        ...

    def fail(self, group: str, text: str, topics: Iterable[str] | None) -> None:
        """Note a group that could not be read (F3), and where it may stand (None: anywhere)."""
        ...

    def fail_all(self, reason: Reason) -> None:
        """Make every floor unknown."""
        ...


class FloorFold:
    """Takes groups one by one; then answers each partition's floor.

    Args:
        topics: the managed topics.
        latest: names of groups that start at the end where they have no commit.
    """

    def __init__(self, topics: Mapping[str, TopicScope], latest: Iterable[str] = ()) -> None:
        self._topics = topics
        self._latest = frozenset(latest)
        self._best: dict[str, list[Best | None]] = {
            name: [None] * len(scope.leader_epochs) for name, scope in topics.items()
        }
        self._missing: dict[TopicPartition, _Missing] = {}
        self._failed_topics: dict[str, set[Reason]] = {}
        self._failed: set[Reason] = set()
        self._old_epochs: dict[tuple[TopicPartition, int], tuple[int, str]] = {}
        self._diverged: dict[TopicPartition, set[Reason]] = {}
        self._recalled: dict[tuple[str, str, int], str] = {}
        self._present: dict[tuple[str, str], set[int]] = {
            (group, name): set() for name, scope in topics.items() for group in scope.require
        }

    def add(self, group: str, commits: Mapping[str, Sequence[Commit]], reads: Iterable[str] = ()) -> None:
        """Fold in one group: its commits by topic, and the topics that its live members read."""
        for topic, rows in commits.items():
            if topic in self._topics and rows:
                known = self._fold(group, topic, rows)
                if (present := self._present.get((group, topic))) is not None:
                    present.update(row[0] for row in rows)
                if known < len(self._best[topic]):
                    self._mark_missing(group, topic, rows, without_commit_text(group, topic, rows))
        for topic in reads:
            if topic in self._topics and not commits.get(topic):
                self._mark_missing(group, topic, (), only_member_text(group, topic))

    def recall(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Note which of a group's commits are remembered ones (F6), for what is said of them; ``add`` folds them."""
        for topic, rows in gone.items():
            for row in rows:
                self._recalled[group, topic, row[0]] = seen

    def leftover(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Note a commit that was seen beyond the log's end, or on a topic that is gone, and has not changed (F5)."""
        self._diverged.setdefault(TopicPartition(topic, partition), set()).add(leftover_reason(group, offset))

    def fail(self, group: str, text: str, topics: Iterable[str] | None) -> None:
        """Note a group that could not be read (F3): it may stand anywhere in ``topics`` (None: in all of them)."""
        reason = failed_reason(group, text)
        if topics is None:
            self._failed.add(reason)
        else:
            for topic in topics:
                self._failed_topics.setdefault(topic, set()).add(reason)

    def fail_all(self, reason: Reason) -> None:
        """Make every floor unknown (F8, F9, or a listing that failed)."""
        self._failed.add(reason)

    def epochs_to_check(self) -> list[tuple[TopicPartition, int]]:
        """Return the leader epochs of commits that are not the partition's current one (F5)."""
        return sorted(self._old_epochs)

    def epoch_ends_at(self, tp: TopicPartition, epoch: int, end: Maybe[int]) -> None:
        """Take the end of a leader epoch: a commit beyond it belongs to a log that was lost (F5)."""
        offset, group = self._old_epochs[tp, epoch]
        if isinstance(end, Unknown):
            self._diverged.setdefault(tp, set()).update(end.reasons)
        elif offset > end:
            self._diverged.setdefault(tp, set()).add(diverged_reason(group, offset, epoch, end))

    def floor(self, tp: TopicPartition, log_start: Maybe[int], high_watermark: Maybe[int]) -> Maybe[Floor]:
        """Return the partition's floor. ``high_watermark`` must have been read after the commits (F5)."""
        best = self._best[tp.topic][tp.partition]
        missing = self._missing.get(tp, _NOBODY)
        standing = Standing(
            best=best,
            failed=self._failed,
            failed_topic=self._failed_topics.get(tp.topic, ()),
            diverged=self._diverged.get(tp, ()),
            missing=missing.first,
            missing_count=missing.count,
            absent=[
                group for group in self._topics[tp.topic].require if tp.partition not in self._present[group, tp.topic]
            ],
            recalled=None if best is None else self._recalled.get((best.low_by, tp.topic, tp.partition)),
        )
        return floor_of(standing, log_start, high_watermark)

    def _fold(self, group: str, topic: str, rows: Sequence[Commit]) -> int:
        """Fold a group's rows of one topic in; return on how many of its partitions it has a commit."""
        best_of = self._best[topic]
        epochs = self._topics[topic].leader_epochs
        count, known = len(best_of), len(rows)
        for partition, offset, epoch in rows:
            if partition >= count:  # it has come since the metadata was read: it is not managed yet
                known -= 1
                continue
            best = best_of[partition]
            if best is None:
                best_of[partition] = Best(offset, group, offset, group)
            else:
                if offset <= best.low and (offset < best.low or group < best.low_by):
                    best.low, best.low_by = offset, group
                if offset >= best.high and (offset > best.high or group < best.high_by):
                    best.high, best.high_by = offset, group
            if epoch is not None and epoch != epochs[partition]:
                key = (TopicPartition(topic, partition), epoch)
                before = self._old_epochs.get(key)
                if before is None or (offset, before[1]) > (before[0], group):
                    self._old_epochs[key] = (offset, group)
        return known

    def _mark_missing(self, group: str, topic: str, rows: Sequence[Commit], text: str) -> None:
        if group in self._latest:
            return
        there = {row[0] for row in rows}
        for partition in range(len(self._best[topic])):
            if partition not in there:
                self._missing.setdefault(TopicPartition(topic, partition), _Missing()).add(group, text)


_NOBODY: Final = _Missing()
