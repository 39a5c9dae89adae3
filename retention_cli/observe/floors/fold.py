"""Fold every group's commits into one floor per partition as they arrive (F1–F6). Pure.

Memory grows with partitions, not with commits: a group's rows are dropped once they are folded. The order in which
groups arrive does not matter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

from retention_cli.core.model import Floor, Maybe, Reason, TopicPartition
from retention_cli.observe.floors.standing import (
    CUT_UNTOLD,
    NAMED_AT_MOST,
    Best,
    EpochEnd,
    GoneCommit,
    Refused,
    Standing,
    failed_reason,
    floor_of,
    gone_without_commit_text,
    only_member_text,
    without_commit_text,
)

Commit = tuple[int, int, int | None]
"""Partition, committed offset, and leader epoch, None if the commit carries none."""


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
    """Receives groups as they are read: :class:`FloorFold` folds them, others turn them into rows.

    For each group, ``recall`` and ``refuse`` are called before ``add``.
    """

    def add(self, group: str, commits: Mapping[str, Sequence[Commit]], reads: Iterable[str] = ()) -> None:
        """Add a group: its commits by topic, and the topics that its live members read."""
        ...

    def recall(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Add positions of a group whose commits are gone (F6)."""
        ...

    def add_gone(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Add a group that is gone as a whole (F6), with its last positions."""
        ...

    def refuse(self, group: str, refused: Mapping[tuple[str, int], tuple[int, int | None]]) -> None:
        """Add commits of a group that do not count (F5): offset and leader epoch by topic and partition."""
        ...

    def fail(self, group: str, text: str, topics: Iterable[str] | None) -> None:
        """Add a group that could not be read (F3), and the topics that it may read (None: any)."""
        ...

    def fail_all(self, reason: Reason) -> None:
        """Make every floor unknown."""
        ...


@dataclass(frozen=True, slots=True)
class Both:
    """Hands every group to two sinks."""

    first: FloorSink
    second: FloorSink

    def add(self, group: str, commits: Mapping[str, Sequence[Commit]], reads: Iterable[str] = ()) -> None:
        """See :class:`FloorSink`."""
        topics = tuple(reads)
        self.first.add(group, commits, topics)
        self.second.add(group, commits, topics)

    def recall(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """See :class:`FloorSink`."""
        self.first.recall(group, gone, seen)
        self.second.recall(group, gone, seen)

    def add_gone(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """See :class:`FloorSink`."""
        self.first.add_gone(group, gone, seen)
        self.second.add_gone(group, gone, seen)

    def refuse(self, group: str, refused: Mapping[tuple[str, int], tuple[int, int | None]]) -> None:
        """See :class:`FloorSink`."""
        self.first.refuse(group, refused)
        self.second.refuse(group, refused)

    def fail(self, group: str, text: str, topics: Iterable[str] | None) -> None:
        """See :class:`FloorSink`."""
        named = None if topics is None else tuple(topics)
        self.first.fail(group, text, named)
        self.second.fail(group, text, named)

    def fail_all(self, reason: Reason) -> None:
        """See :class:`FloorSink`."""
        self.first.fail_all(reason)
        self.second.fail_all(reason)


class FloorFold:
    """Folds groups one by one, then returns each partition's floor.

    Args:
        topics: the managed topics.
        latest: names of groups that start at the end if they have no commit (F2).
    """

    def __init__(self, topics: Mapping[str, TopicScope], latest: Iterable[str] = ()) -> None:
        self._topics = topics
        self._latest = frozenset(latest)
        self._best: dict[str, list[Best | None]] = {
            name: [None] * len(scope.leader_epochs) for name, scope in topics.items()
        }
        self._bare = {name: bytearray(len(scope.leader_epochs)) for name, scope in topics.items()}
        self._missing: dict[TopicPartition, _Missing] = {}
        self._failed_topics: dict[str, set[Reason]] = {}
        self._failed: set[Reason] = set()
        self._epochs: dict[TopicPartition, dict[int, tuple[int, str]]] = {}
        self._ends: dict[TopicPartition, dict[int, EpochEnd]] = {}
        self._refused: dict[TopicPartition, Refused] = {}
        self._ahead: dict[TopicPartition, Refused] = {}
        self._gone: dict[TopicPartition, dict[int, GoneCommit]] = {}
        self._unproven: dict[TopicPartition, GoneCommit] = {}
        self._cuts: dict[TopicPartition, Maybe[tuple[int, int | None]]] = {}
        self._known: dict[str, dict[str, set[int]]] = {}
        self._skipped: dict[str, dict[str, set[int]]] = {}
        self._present: dict[tuple[str, str], set[int]] = {
            (group, name): set() for name, scope in topics.items() for group in scope.require
        }

    def add(self, group: str, commits: Mapping[str, Sequence[Commit]], reads: Iterable[str] = ()) -> None:
        """Fold in a group: its commits by topic, and the topics that its live members read."""
        known = self._known.pop(group, _NOWHERE) if self._known else _NOWHERE
        skipped = self._skipped.pop(group, _NOWHERE) if self._skipped else _NOWHERE
        for topic, rows in commits.items():
            if topic in self._topics and rows:
                there = self._fold(group, topic, rows, skipped.get(topic, ()))
                if (present := self._present.get((group, topic))) is not None:
                    present.update(row[0] for row in rows)
                if there < len(self._best[topic]):
                    places = {row[0] for row in rows} | known.get(topic, set())
                    self._mark_missing(group, topic, places, without_commit_text(group, topic, rows))
        for topic in reads:
            if topic in self._topics and not commits.get(topic):
                self._mark_missing(group, topic, known.get(topic, ()), only_member_text(group, topic))
        for topic, places in known.items():  # all of its commits on the topic are gone
            if not commits.get(topic) and topic not in reads and len(places) < len(self._best[topic]):
                self._mark_missing(group, topic, places, gone_without_commit_text(group, topic, _BEFORE))

    def recall(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Fold in positions of a group whose commits are gone: the lowest of each leader epoch is kept (F6)."""
        for topic, rows in gone.items():
            if topic not in self._topics:
                continue
            count = len(self._best[topic])
            here = self._known.setdefault(group, {}).setdefault(topic, set())
            for partition, offset, epoch in rows:
                if partition >= count:
                    continue
                here.add(partition)
                tp, one = TopicPartition(topic, partition), GoneCommit(offset, group, seen)
                if epoch is None:
                    never = self._unproven.get(tp)
                    if never is None or group < never.group:
                        self._unproven[tp] = one
                else:
                    lowest = self._gone.setdefault(tp, {})
                    if epoch not in lowest or one[:2] < lowest[epoch][:2]:
                        lowest[epoch] = one
            if (present := self._present.get((group, topic))) is not None:
                present.update(here)

    def add_gone(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Fold in a group that is gone as a whole (F6). Where it read a topic without a commit, floors are unknown."""
        self.recall(group, gone, seen)
        for topic, places in self._known.pop(group, _NOWHERE).items():
            if len(places) < len(self._best[topic]):
                self._mark_missing(group, topic, places, gone_without_commit_text(group, topic, seen))

    def refuse(self, group: str, refused: Mapping[tuple[str, int], tuple[int, int | None]]) -> None:
        """Fold in commits of a group that do not count (F5); for F2 the group has a commit there."""
        first, skipped = self._refused, self._skipped.setdefault(group, {})
        last: str | None = None
        epochs: Sequence[int] = ()
        here: set[int] = set()
        for (topic, partition), (offset, epoch) in refused.items():
            if topic != last:  # a group's rows come topic by topic
                last, scope = topic, self._topics.get(topic)
                epochs = () if scope is None else scope.leader_epochs
                here = skipped.setdefault(topic, set())
            if partition >= len(epochs):
                continue
            here.add(partition)
            tp = TopicPartition(topic, partition)
            known = first.get(tp)
            if known is None or offset > known[0] or (offset == known[0] and group < known[2]):  # by its rank
                first[tp] = Refused(offset, epoch, group)
            if epoch is not None and epoch > epochs[partition]:
                _keep_first(self._ahead, tp, Refused(offset, epoch, group))

    def fail(self, group: str, text: str, topics: Iterable[str] | None) -> None:
        """Fold in a group that could not be read (F3): it may read any of ``topics`` (None: any topic)."""
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
        """Return the leader epochs of commits, including gone ones, other than the partition's current one (F5, F6)."""
        found = [(tp, epoch) for tp, epochs in self._epochs.items() for epoch in epochs]
        for tp, epochs in self._gone.items():
            now = self._topics[tp.topic].leader_epochs[tp.partition]
            found += [(tp, epoch) for epoch in epochs if epoch != now]
        return sorted(set(found))

    def epoch_ends_at(self, tp: TopicPartition, epoch: int, end: EpochEnd) -> None:
        """Record where a leader epoch ends, None if the leader does not know it."""
        self._ends.setdefault(tp, {})[epoch] = end

    def cut_at(self, tp: TopicPartition, cut: int, epoch: int | None) -> None:
        """Record where the log was cut since the last pass, and which epoch ended there."""
        self._cuts[tp] = (cut, epoch)

    def cut_untold(self, tp: TopicPartition) -> None:
        """Record that it is unknown whether the log was cut: commits without a leader epoch hold (M4)."""
        self._cuts[tp] = CUT_UNTOLD

    def floor(self, tp: TopicPartition, log_start: Maybe[int], high_watermark: Maybe[int]) -> Maybe[Floor]:
        """Return the partition's floor. ``high_watermark`` must have been read after the commits (F5)."""
        topic, partition = tp
        missing = self._missing.get(tp, _NOBODY)
        scope = self._topics[topic]
        standing = Standing(
            leader_epoch=scope.leader_epochs[partition],
            best=self._best[topic][partition],
            failed=self._failed,
            failed_topic=self._failed_topics.get(topic, ()),
            epochs=self._epochs.get(tp, _NO_EPOCHS),
            ends=self._ends.get(tp, _NO_EPOCHS),
            refused=self._refused.get(tp),
            ahead=self._ahead.get(tp),
            missing=missing.first,
            missing_count=missing.count,
            absent=[group for group in scope.require if partition not in self._present[group, topic]],
            gone=self._gone.get(tp, _NO_EPOCHS),
            unproven=self._unproven.get(tp),
            bare=bool(self._bare[topic][partition]),
            cut=self._cuts.get(tp),
        )
        return floor_of(standing, log_start, high_watermark)

    def _fold(self, group: str, topic: str, rows: Sequence[Commit], skipped: Collection[int]) -> int:
        """Fold in a group's rows of one topic; return on how many of its partitions the group has a commit."""
        best_of, bare = self._best[topic], self._bare[topic]
        epochs = self._topics[topic].leader_epochs
        count, known = len(best_of), len(rows)
        for partition, offset, epoch in rows:
            if partition >= count:  # created since the metadata was read: not managed yet
                known -= 1
                continue
            if skipped and partition in skipped:
                continue
            best = best_of[partition]
            if best is None:
                best_of[partition] = Best(offset, group, offset, group)
            else:
                if offset <= best.low and (offset < best.low or group < best.low_by):
                    best.low, best.low_by = offset, group
                if offset >= best.high and (offset > best.high or group < best.high_by):
                    best.high, best.high_by = offset, group
            if epoch is None:
                bare[partition] = 1
            elif epoch != epochs[partition]:
                highest = self._epochs.setdefault(TopicPartition(topic, partition), {})
                before = highest.get(epoch)
                if before is None or (-offset, group) < (-before[0], before[1]):
                    highest[epoch] = (offset, group)
        return known

    def _mark_missing(self, group: str, topic: str, there: Collection[int], text: str) -> None:
        if group in self._latest:
            return
        for partition in range(len(self._best[topic])):
            if partition not in there:
                self._missing.setdefault(TopicPartition(topic, partition), _Missing()).add(group, text)


def _keep_first(kept: dict[TopicPartition, Refused], tp: TopicPartition, one: Refused) -> None:
    if (known := kept.get(tp)) is None or one.rank < known.rank:
        kept[tp] = one


_BEFORE: Final = "before"
_NOBODY: Final = _Missing()
_NOWHERE: Final[Mapping[str, set[int]]] = MappingProxyType({})
_NO_EPOCHS: Final[Mapping[int, Any]] = MappingProxyType({})
