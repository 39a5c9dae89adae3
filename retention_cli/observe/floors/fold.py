"""Fold every group's commits into one floor per partition as they arrive (F1–F6). Pure.

Memory grows with partitions, not with commits: a group's rows are dropped once they are folded. The order in which
groups arrive does not matter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from retention_cli.core.consumers import floor_by
from retention_cli.core.model import Floor, Maybe, Reason, TopicPartition
from retention_cli.observe.floors.latest import NOBODY, Latest
from retention_cli.observe.floors.odd import Odd
from retention_cli.observe.floors.standing import (
    CUT_UNTOLD,
    Best,
    EpochEnd,
    GoneCommit,
    Refused,
    Standing,
    failed_reason,
    floor_of,
    gone_without_commit_text,
    no_position_text,
    only_member_text,
    without_commit_text,
    younger_text,
)

Commit = tuple[int, int, int | None]
"""Partition, committed offset, and leader epoch, None if the commit carries none."""


@dataclass(frozen=True, slots=True)
class TopicScope:
    """A topic whose floors are wanted: its leader epochs by partition, and the groups it requires (F4)."""

    leader_epochs: Sequence[int]
    require: tuple[str, ...] = ()


NO_COMMIT: Final = 2**63 - 1
"""The lowest commit where nobody has committed. A group may commit this very number: only ``high`` tells (F5)."""
NO_HIGHEST: Final = -1
"""The highest commit where nobody has committed: below any offset."""


class Columns(NamedTuple):
    """A topic's lowest and highest commits, and whose they are, by partition: of equal ones, the first group by name.

    ``low`` is :data:`NO_COMMIT`, ``high`` :data:`NO_HIGHEST` where nobody has committed. ``bare``: some commit carries
    no leader epoch.
    """

    low: list[int]
    low_by: list[str]
    high: list[int]
    high_by: list[str]
    bare: bytearray

    @classmethod
    def of(cls, count: int) -> Columns:
        """Return the columns of so many partitions without a commit."""
        return cls([NO_COMMIT] * count, [""] * count, [NO_HIGHEST] * count, [""] * count, bytearray(count))


class FloorSink(Protocol):
    """Receives groups as they are read: :class:`FloorFold` folds them, others turn them into rows.

    For each group, ``recall``, ``refuse`` and ``no_position`` are called before ``add``.
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

    def no_position(self, group: str, stored: Mapping[str, Mapping[int, int]]) -> None:
        """Add a group's stored offsets below zero, by topic and partition: none of them is a position (F1, F2)."""
        ...

    def fail(self, group: str, text: str, topics: Iterable[str] | None) -> None:
        """Add a group that could not be read (F3), and the topics that it may read (None: any)."""
        ...

    def fail_all(self, reason: Reason, topics: Iterable[str] | None = None) -> None:
        """Make every floor unknown, or every one of these topics."""
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

    def no_position(self, group: str, stored: Mapping[str, Mapping[int, int]]) -> None:
        """See :class:`FloorSink`."""
        self.first.no_position(group, stored)
        self.second.no_position(group, stored)

    def fail(self, group: str, text: str, topics: Iterable[str] | None) -> None:
        """See :class:`FloorSink`."""
        named = None if topics is None else tuple(topics)
        self.first.fail(group, text, named)
        self.second.fail(group, text, named)

    def fail_all(self, reason: Reason, topics: Iterable[str] | None = None) -> None:
        """See :class:`FloorSink`."""
        named = None if topics is None else tuple(topics)
        self.first.fail_all(reason, named)
        self.second.fail_all(reason, named)


class FloorFold:
    """Folds groups one by one, then returns each partition's floor.

    A fold over some groups can be cut by topics (:meth:`part`) and added to the fold of others (:meth:`take`).

    Args:
        topics: the managed topics.
        latest: the groups that start at the end if they have no commit (F2).
    """

    def __init__(self, topics: Mapping[str, TopicScope], latest: Latest = NOBODY) -> None:
        self._topics = topics
        self._latest = latest
        self.columns: dict[str, Columns] = {name: Columns.of(len(one.leader_epochs)) for name, one in topics.items()}
        self.odd: dict[TopicPartition, Odd] = {}
        self.failed_topics: dict[str, set[Reason]] = {}
        self.failed: set[Reason] = set()
        self.present: dict[tuple[str, str], set[int]] = {
            (group, name): set() for name, scope in topics.items() for group in scope.require
        }
        self._known: dict[str, dict[str, set[int]]] = {}
        self._skipped: dict[str, dict[str, set[int]]] = {}
        self._unset: dict[str, dict[str, set[int]]] = {}

    def add(self, group: str, commits: Mapping[str, Sequence[Commit]], reads: Iterable[str] = ()) -> None:
        """Fold in a group: its commits by topic, and the topics that its live members read."""
        known = self._known.pop(group, _NOWHERE) if self._known else _NOWHERE
        skipped = self._skipped.pop(group, _NOWHERE) if self._skipped else _NOWHERE
        unset = self._unset.pop(group, _NOWHERE) if self._unset else _NOWHERE
        live = frozenset(reads)
        if live and known:  # a live member starts anew where it has no commit, whatever is remembered (F2)
            known = {topic: places for topic, places in known.items() if topic not in live}
        for topic, rows in commits.items():
            if topic in self._topics and rows:
                there = self._fold(group, topic, rows, skipped.get(topic, ()))
                if (present := self.present.get((group, topic))) is not None:
                    present.update(row[0] for row in rows)
                if there < self._count(topic):
                    places = {row[0] for row in rows} | known.get(topic, set()) | unset.get(topic, set())
                    self._mark_missing(group, topic, places, without_commit_text(group, topic, rows))
        for topic in live:
            if topic in self._topics and not commits.get(topic):
                self._mark_missing(group, topic, unset.get(topic, ()), only_member_text(group, topic))
        for topic in {**known, **unset}:  # it has no position on the topic any more
            if not commits.get(topic) and topic not in live:
                places = known.get(topic, set()) | unset.get(topic, set())
                self._mark_missing(group, topic, places, gone_without_commit_text(group, topic, _BEFORE))
        for topic, places in unset.items():  # what is remembered there is no commit, either (F4)
            self.present.get((group, topic), set()).difference_update(places)

    def recall(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Fold in positions of a group whose commits are gone: the lowest of each leader epoch is kept (F6)."""
        for topic, rows in gone.items():
            if topic not in self._topics:
                continue
            count = self._count(topic)
            here = self._known.setdefault(group, {}).setdefault(topic, set())
            for partition, offset, epoch in rows:
                if partition < count:
                    here.add(partition)
                    self._odd(topic, partition).left(epoch, GoneCommit(offset, group, seen))
            if (present := self.present.get((group, topic))) is not None:
                present.update(here)

    def add_gone(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Fold in a group that is gone as a whole (F6). Where it read a topic without a commit, floors are unknown."""
        self.recall(group, gone, seen)
        for topic, places in self._known.pop(group, _NOWHERE).items():
            if len(places) < self._count(topic):
                self._mark_missing(group, topic, places, gone_without_commit_text(group, topic, seen))

    def refuse(self, group: str, refused: Mapping[tuple[str, int], tuple[int, int | None]]) -> None:
        """Fold in commits of a group that do not count (F5); for F2 the group has a commit there."""
        skipped = self._skipped.setdefault(group, {})
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
            odd, one = self._odd(topic, partition), Refused(offset, epoch, group)
            odd.refuses(one)
            if epoch is not None and epoch > epochs[partition]:
                odd.is_ahead(one)

    def no_position(self, group: str, stored: Mapping[str, Mapping[int, int]]) -> None:
        """Fold in a group's stored offsets below zero: it reads there, from where only its client knows (F1, F2)."""
        for topic, offsets in stored.items():
            if topic not in self._topics:
                continue
            here = self._unset.setdefault(group, {}).setdefault(topic, set())
            for partition, offset in offsets.items():
                if partition < self._count(topic):
                    here.add(partition)
                    self._odd(topic, partition).lacks(group, no_position_text(group, topic, partition, offset))

    def fail(self, group: str, text: str, topics: Iterable[str] | None) -> None:
        """Fold in a group that could not be read (F3): it may read any of ``topics`` (None: any topic)."""
        self.fail_all(failed_reason(group, text), topics)

    def fail_all(self, reason: Reason, topics: Iterable[str] | None = None) -> None:
        """Make every floor unknown, or every one of these topics (F8, F9, or a listing that failed)."""
        if topics is None:
            self.failed.add(reason)
        else:
            for topic in topics:
                self.failed_topics.setdefault(topic, set()).add(reason)

    def part(self, topics: Iterable[str]) -> FloorFold:
        """Return what the groups so far come to on these topics, to be added to another fold."""
        wanted, found = frozenset(topics), FloorFold({})
        found.columns = {
            name: one for name, one in self.columns.items() if name in wanted and max(one.high) != NO_HIGHEST
        }
        found.odd = {tp: one for tp, one in self.odd.items() if tp.topic in wanted}
        found.failed = self.failed
        found.failed_topics = {name: reasons for name, reasons in self.failed_topics.items() if name in wanted}
        found.present = {key: places for key, places in self.present.items() if key[1] in wanted}
        return found

    def take(self, other: FloorFold) -> None:
        """Add what other groups come to on the same topics."""
        for topic, theirs in other.columns.items():
            low, low_by, high, high_by, bare = self.columns[topic]
            for n, most in enumerate(theirs.high):
                if most == NO_HIGHEST:
                    continue
                least, group = theirs.low[n], theirs.low_by[n]
                if high[n] == NO_HIGHEST or least < low[n] or (least == low[n] and group < low_by[n]):
                    low[n], low_by[n] = least, group
                group = theirs.high_by[n]
                if most > high[n] or (most == high[n] and group < high_by[n]):
                    high[n], high_by[n] = most, group
                bare[n] |= theirs.bare[n]
        for tp, odd in other.odd.items():
            self._odd(*tp).take(odd)
        self.failed |= other.failed
        for topic, reasons in other.failed_topics.items():
            self.failed_topics.setdefault(topic, set()).update(reasons)
        for key, places in other.present.items():
            self.present[key] |= places

    def epochs_to_check(self) -> list[tuple[TopicPartition, int]]:
        """Return the leader epochs of commits, including gone ones, other than the partition's current one (F5, F6)."""
        found = []
        for tp, one in self.odd.items():
            if one.epochs or one.gone:
                now = self._topics[tp.topic].leader_epochs[tp.partition]
                found += [(tp, epoch) for epoch in {**(one.epochs or {}), **(one.gone or {})} if epoch != now]
        return sorted(found)

    def epoch_ends_at(self, tp: TopicPartition, epoch: int, end: EpochEnd) -> None:
        """Record where a leader epoch ends, None if the leader does not know it."""
        one = self._odd(*tp)
        one.ends = {**(one.ends or {}), epoch: end}

    def cut_at(self, tp: TopicPartition, cut: int, epoch: int | None) -> None:
        """Record where the log was cut since the last pass, and which epoch ended there."""
        self._odd(*tp).cut = (cut, epoch)

    def cut_untold(self, tp: TopicPartition) -> None:
        """Record that it is unknown whether the log was cut: commits without a leader epoch hold (M4)."""
        self._odd(*tp).cut = CUT_UNTOLD

    def floor(self, tp: TopicPartition, log_start: Maybe[int], high_watermark: Maybe[int]) -> Maybe[Floor]:
        """Return the partition's floor. ``high_watermark`` must have been read after the commits (F5)."""
        topic, partition = tp
        scope, here, odd = self._topics[topic], self.columns[topic], self.odd.get(tp, _ORDINARY)
        low, low_by, high = here.low[partition], here.low_by[partition], here.high[partition]
        sound = odd is _ORDINARY and not (self.failed or self.failed_topics or scope.require)
        if (
            sound
            and type(high_watermark) is int
            and type(log_start) is int
            and log_start <= low <= high <= high_watermark
        ):
            return Floor(low, floor_by(low_by))  # as nearly always: what follows comes to the same
        best = None if high == NO_HIGHEST else Best(low, low_by, high, here.high_by[partition])
        standing = Standing(
            leader_epoch=scope.leader_epochs[partition],
            best=best,
            failed=self.failed,
            failed_topic=self.failed_topics.get(topic, ()),
            epochs=odd.epochs or _NO_EPOCHS,
            ends=odd.ends or _NO_EPOCHS,
            refused=odd.refused,
            ahead=odd.ahead,
            missing=odd.missing,
            missing_count=odd.missing_count,
            absent=[group for group in scope.require if partition not in self.present[group, topic]],
            gone=odd.gone or _NO_EPOCHS,
            unproven=odd.unproven,
            bare=bool(here.bare[partition]),
            cut=odd.cut,
        )
        return floor_of(standing, log_start, high_watermark)

    def _fold(self, group: str, topic: str, rows: Sequence[Commit], skipped: Collection[int]) -> int:
        """Fold in a group's rows of one topic; return on how many of its partitions the group has a commit."""
        low, low_by, high, high_by, bare = self.columns[topic]
        epochs = self._topics[topic].leader_epochs
        count, known = len(low), len(rows)
        for partition, offset, epoch in rows:
            if partition >= count:  # created since the metadata was read: not managed yet
                known -= 1
                continue
            if skipped and partition in skipped:
                continue
            least, most = low[partition], high[partition]
            if offset <= least and (offset < least or group < low_by[partition]):
                low[partition], low_by[partition] = offset, group
            if offset >= most and (offset > most or group < high_by[partition]):
                high[partition], high_by[partition] = offset, group
            if epoch is None:
                bare[partition] = 1
            elif epoch != epochs[partition]:
                self._odd(topic, partition).commits(epoch, offset, group)
        return known

    def _mark_missing(self, group: str, topic: str, there: Collection[int], text: str) -> None:
        count = self._count(topic)
        text = younger_text(group) if group in self._latest.groups else text
        for partition in range(self._latest.covered(group, topic, count), count):
            if partition not in there:
                self._odd(topic, partition).lacks(group, text)

    def _count(self, topic: str) -> int:
        return len(self._topics[topic].leader_epochs)

    def _odd(self, topic: str, partition: int) -> Odd:
        tp = TopicPartition(topic, partition)
        found = self.odd.get(tp)
        if found is None:
            found = self.odd[tp] = Odd()
        return found


_BEFORE: Final = "before"
_ORDINARY: Final = Odd()
_NOWHERE: Final[Mapping[str, set[int]]] = MappingProxyType({})
_NO_EPOCHS: Final[Mapping[int, Any]] = MappingProxyType({})
