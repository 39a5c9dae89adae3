"""Fold every group's commits into one floor per partition as they arrive (F1–F6). Pure.

Memory grows with partitions, not with commits: a group's rows are dropped once they are folded. The order in which
groups arrive does not matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from retention_cli.core.consumers import floor_by, who
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Code, Floor, Maybe, Reason, TopicPartition
from retention_cli.memory.ages import Ages
from retention_cli.memory.group import NOTHING_RECALLED, RecalledGroup
from retention_cli.observe.floors.standing import (
    NO_HIGHEST,
    GoneCommit,
    Irregular,
    Refused,
    Standing,
    Start,
    floor_of,
    gone_without_commit_text,
    gone_without_start_text,
    highest,
    no_position_text,
    only_member_text,
    started_text,
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
"""The lowest commit where no group has committed. A group may commit this very number: only ``high`` tells (F5)."""


class Columns(NamedTuple):
    """A topic's lowest and highest commits, and whose they are, by partition: of equal ones, the first group by name.

    ``low`` is :data:`NO_COMMIT`, ``high`` :data:`NO_HIGHEST` without any commit. ``bare``: some commit carries
    no leader epoch.
    """

    low: list[int]
    low_by: list[str]
    high: list[int]
    high_by: list[str]
    bare: bytearray


Kind = Literal["commit", "gone", "missing", "refused", "failed"]


class CommitRow(NamedTuple):
    """One row about a group. ``topic`` None means every topic of the cluster, ``partition`` None all of the topic.

    ========  ==============================================================================
    kind      means
    ========  ==============================================================================
    commit    ``group`` committed ``offset`` in ``leader_epoch`` (None: it carries none)
    gone      the same, but the commit is gone; ``text``: when it was seen (F6). No epoch: it never counted
    missing   the group reads the topic and has no commit here; ``text`` says what to do (F2)
    refused   the group's commit here belongs to another log, and does not count (F5)
    failed    the group could not be read (F3), or none could be (F8, F9)
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


class Seen(NamedTuple):
    """What a group has on some partitions of a topic. ``kind`` is as in :class:`CommitRow`; an offset of −1: none."""

    group: str
    topic: str
    kind: Kind
    commits: Sequence[Commit]


def position_of(row: CommitRow, leader_epoch: int | None, ends: Mapping[int, int | None]) -> int | None:
    """Return a consumer's position from one of its rows, None if nothing shows that the commit is this log's (F5, F6).

    ``ends`` has where leader epochs other than the current one end. A consumer that is gone counts at the end of its
    epoch, if that is lower. Whether the offset lies beyond H is not looked at.
    """
    offset, epoch = row.offset, row.leader_epoch
    if row.kind not in ("commit", "gone") or offset is None:
        return None
    if epoch is None:
        return offset if row.kind == "commit" else None
    if leader_epoch is not None and epoch > leader_epoch:
        return None
    end = ends.get(epoch, offset)
    return None if end is None or (row.kind == "commit" and offset > end) else min(offset, end)


SEEN_A_PARTITION: Final = 8
"""If groups have more commits than this on a partition (on average), evidence has only those that decide the floor."""


_NOWHERE: Final[Mapping[str, set[int]]] = MappingProxyType({})


class FloorFold:
    """Folds groups one by one, then returns each partition's floor.

    A fold over some groups can be cut by topics (:meth:`part`) and added to the fold of others (:meth:`take`). ``gone``
    has the positions of groups whose commits are gone (F6), ``starts`` how far back (ms) groups without a commit start
    (F2), by key; None: unknown. ``rows`` has every group as rows, a group's together, if they are wanted.
    ``seen`` has what was folded in, as it came, if that is wanted: evidence keeps it.
    ``latest`` are the groups of ``groups.latest``, by key, which start at the end where they have no commit (F2).
    By ``ages``, a partition that was added after a group was first seen is not covered: with KIP-1327 its members read
    it from 0.
    ``may_lack``: groups may be missing from the listing (F8, F9), so what is remembered of them satisfies no F4.
    ``counts`` are the topics' partition counts.

    Args:
        topics: the managed topics.
        with_rows: whether to keep rows, too.
        with_seen: whether to keep what is folded in.
    """

    def __init__(self, topics: Mapping[str, TopicScope], *, with_rows: bool = False, with_seen: bool = False) -> None:
        self.topics = topics
        self.counts = {name: len(one.leader_epochs) for name, one in topics.items()}
        self.gone: list[tuple[str, Mapping[str, Sequence[Commit]]]] = []
        self.rows: list[CommitRow] | None = [] if with_rows else None
        self.seen: list[Seen] | None = [] if with_seen else None
        self._room = SEEN_A_PARTITION * sum(self.counts.values())
        self.latest: frozenset[str] = frozenset()
        self.ages = Ages()
        self.starts: Mapping[str, int | None] = {}
        self.may_lack = False
        self.columns = {
            name: Columns([NO_COMMIT] * count, [""] * count, [NO_HIGHEST] * count, [""] * count, bytearray(count))
            for name, count in self.counts.items()
        }
        self.irregular = defaultdict[TopicPartition, Irregular](Irregular)
        self.failed_topics: dict[str, set[Reason]] = {}
        self.failed: set[Reason] = set()
        self.present: dict[tuple[str, str], set[int]] = {
            (group, name): set() for name, scope in topics.items() for group in scope.require
        }

    def add(
        self,
        group: str,
        commits: Mapping[str, Sequence[Commit]],
        reads: Iterable[str] = (),
        recalled: RecalledGroup = NOTHING_RECALLED,
        no_position: Mapping[str, Mapping[int, int]] = MappingProxyType({}),
    ) -> None:
        """Fold in a group.

        Args:
            group: its key.
            commits: by topic.
            reads: the topics that its live members read.
            recalled: commits that are gone (F6), and those that do not count (F5): for F2 it has a commit there.
            no_position: stored offsets below zero: it reads there, from where only its client knows (F1, F2).
        """
        skipped = self._add_refused(group, recalled.refused) if recalled.refused else _NOWHERE
        known = self._add_gone_commits(group, recalled.gone, "before", listed=True) if recalled.gone else _NOWHERE
        unset = self._add_no_position(group, no_position) if no_position else _NOWHERE
        # Where it has no commit, a live member starts over, even if one is remembered (F2).
        if (live := frozenset(reads)) and known:
            known = {topic: partitions for topic, partitions in known.items() if topic not in live}
        for topic, rows in commits.items():
            if topic in self.topics and rows:
                there = self._fold(group, topic, rows, skipped.get(topic, ()))
                if (present := self.present.get((group, topic))) is not None:
                    present.update(row[0] for row in rows)
                if there < self.counts[topic]:
                    has = {row[0] for row in rows} | known.get(topic, set()) | unset.get(topic, set())
                    self._mark_missing(group, topic, has, without_commit_text(group, topic, rows), live=topic in live)
        for topic in {*live, *known, *unset} & self.topics.keys():
            if not commits.get(topic):  # or it has no position there any more
                why = (
                    only_member_text(group, topic)
                    if topic in live
                    else gone_without_commit_text(group, topic, "before")
                )
                has = known.get(topic, set()) | unset.get(topic, set())
                self._mark_missing(group, topic, has, why, live=topic in live)
        for topic, partitions in unset.items():  # what is remembered there is no commit, either (F4)
            self.present.get((group, topic), set()).difference_update(partitions)

    def add_gone(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Fold in a group that no longer exists (F6). Where it read a topic without a commit, floors are unknown."""
        for topic, partitions in self._add_gone_commits(group, gone, seen, listed=False).items():
            if len(partitions) < self.counts[topic]:
                self._mark_missing(group, topic, partitions, gone_without_commit_text(group, topic, seen))

    def _add_gone_commits(
        self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str, *, listed: bool
    ) -> dict[str, set[int]]:
        """Fold in commits that are gone: the lowest of each leader epoch counts (F6). Return their partitions."""
        self.gone.append((group, gone))
        found: dict[str, set[int]] = {}
        for topic in [one for one in gone if one in self.topics]:
            here = found[topic] = set()
            if self.seen is not None:
                self.seen.append(Seen(group, topic, "gone", gone[topic]))
            for partition, offset, epoch in gone[topic]:
                if 0 <= partition < self.counts[topic]:
                    here.add(partition)
                    self.at(topic, partition).left(epoch, GoneCommit(offset, group, seen))
                    if group in self.starts:  # it has no commit any more
                        self._start(group, topic, partition, gone_without_start_text(group, topic, listed=listed))
                    self._row(group, topic, partition, "gone", offset, epoch, Code.F6, seen)
            if listed or not self.may_lack:
                self.present.get((group, topic), set()).update(here)
        return found

    def _add_refused(
        self, group: str, refused: Mapping[tuple[str, int], tuple[int, int | None]]
    ) -> dict[str, set[int]]:
        """Fold in commits that do not count (F5). Return their partitions."""
        found: dict[str, set[int]] = {}
        for (topic, partition), (offset, epoch) in refused.items():
            epochs = self.topics[topic].leader_epochs if topic in self.topics else ()
            if not 0 <= partition < len(epochs):
                continue
            found.setdefault(topic, set()).add(partition)
            if self.seen is not None:
                self.seen.append(Seen(group, topic, "refused", [(partition, offset, epoch)]))
            self._row(group, topic, partition, "refused", offset, epoch, Code.F5)
            at, one = self.at(topic, partition), Refused(offset, epoch, group)
            at.refused = highest(at.refused, one)
            if epoch is not None and epoch > epochs[partition]:
                at.ahead = highest(at.ahead, one)
        return found

    def _add_no_position(self, group: str, stored: Mapping[str, Mapping[int, int]]) -> dict[str, set[int]]:
        """Fold in stored offsets below zero (F1, F2). Return their partitions."""
        found: dict[str, set[int]] = {}
        for topic in [one for one in stored if one in self.topics]:
            here = {n: offset for n, offset in stored[topic].items() if 0 <= n < self.counts[topic]}
            found[topic] = set(here)
            for partition, offset in here.items():
                self._lacks(group, topic, partition, no_position_text(group, topic, partition, offset))
        return found

    def fail(self, group: str, text: str, topics: Iterable[str] | None) -> None:
        """Fold in a group that could not be read (F3): it may read any of ``topics`` (None: any topic)."""
        self.fail_all(Reason(Code.F3, f"{who(group)} could not be read: {text}"), topics, group)

    def fail_all(self, reason: Reason, topics: Iterable[str] | None = None, group: str = "") -> None:
        """Make every floor unknown, or every one of these topics (F8, F9, or a listing that failed)."""
        if topics is None:
            self.failed.add(reason)
            self._row(group, None, None, "failed", code=reason.code, text=reason.text)
        else:
            for topic in topics:
                self.failed_topics.setdefault(topic, set()).add(reason)
                if topic in self.topics:
                    self._row(group, topic, None, "failed", code=reason.code, text=reason.text)

    def part(self, topics: Iterable[str]) -> FloorFold:
        """Return what the groups so far amount to on these topics, to be added to another fold."""
        wanted, found = frozenset(topics), FloorFold({})
        found.columns = {
            name: one for name, one in self.columns.items() if name in wanted and max(one.high) != NO_HIGHEST
        }
        found.irregular.update((tp, one) for tp, one in self.irregular.items() if tp.topic in wanted)
        found.failed = self.failed
        found.failed_topics = {name: reasons for name, reasons in self.failed_topics.items() if name in wanted}
        found.present = {key: partitions for key, partitions in self.present.items() if key[1] in wanted}
        return found

    def take(self, other: FloorFold) -> None:
        """Add what other groups amount to on the same topics."""
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
        for tp, one in other.irregular.items():
            self.at(*tp).take(one)
        self.failed |= other.failed
        for topic, reasons in other.failed_topics.items():
            self.failed_topics.setdefault(topic, set()).update(reasons)
        for key, partitions in other.present.items():
            self.present[key] |= partitions

    def epochs_to_check(self) -> list[tuple[TopicPartition, int]]:
        """Return the leader epochs of commits, including gone ones, other than the partition's current one (F5, F6)."""
        return sorted(
            (tp, epoch)
            for tp, one in self.irregular.items()
            for epoch in one.epochs.keys() | one.gone.keys()
            if epoch != self.topics[tp.topic].leader_epochs[tp.partition]
        )

    def starts_to_ask(self) -> dict[int, list[TopicPartition]]:
        """Return where groups without a commit may start, by how far back (ms): ``start_at`` has the answers (F2)."""
        return by_key((one.start.back_ms, tp) for tp, one in sorted(self.irregular.items()) if one.start is not None)

    def floor(self, tp: TopicPartition, log_start: Maybe[int], high_watermark: Maybe[int]) -> Maybe[Floor]:
        """Return the partition's floor. ``high_watermark`` must have been read after the commits (F5)."""
        topic, partition = tp
        scope, here, irregular = self.topics[topic], self.columns[topic], self.irregular.get(tp, _REGULAR)
        low, low_by, high = here.low[partition], here.low_by[partition], here.high[partition]
        sound = irregular is _REGULAR and not (self.failed or self.failed_topics or scope.require)
        if (
            sound
            and type(high_watermark) is int
            and type(log_start) is int
            and log_start <= low <= high <= high_watermark
        ):
            return Floor(low, floor_by(low_by))  # as nearly always: what follows has the same result
        standing = Standing(
            leader_epoch=scope.leader_epochs[partition],
            low=low,
            low_by=low_by,
            high=high,
            high_by=here.high_by[partition],
            bare=bool(here.bare[partition]),
            failed=self.failed,
            failed_topic=self.failed_topics.get(topic, ()),
            absent=[group for group in scope.require if partition not in self.present[group, topic]],
            irregular=irregular,
        )
        return floor_of(standing, log_start, high_watermark)

    def _fold(self, group: str, topic: str, rows: Sequence[Commit], skipped: Collection[int]) -> int:
        """Fold in a group's rows of one topic; return on how many of its partitions the group has a commit."""
        low, low_by, high, high_by, bare = self.columns[topic]
        epochs = self.topics[topic].leader_epochs
        count, known = len(low), len(rows)
        if skipped:
            rows = [row for row in rows if row[0] not in skipped]
        for partition, offset, epoch in rows:
            if partition >= count:  # created since the metadata was read: not managed yet
                known -= 1
                continue
            least, most = low[partition], high[partition]
            if offset <= least and (offset < least or group < low_by[partition]):
                low[partition], low_by[partition] = offset, group
            if offset >= most and (offset > most or group < high_by[partition]):
                high[partition], high_by[partition] = offset, group
            if epoch is None:
                bare[partition] = 1
            elif epoch != epochs[partition]:
                self.at(topic, partition).commits(epoch, offset, group)
        if self.seen is not None or self.rows is not None:
            self._note(group, topic, rows)
        return known

    def _note(self, group: str, topic: str, rows: Sequence[Commit]) -> None:
        """Keep commits as they came (``seen``), as long as there is room for everyone's, and as ``rows``."""
        if self.seen is not None and self._room >= 0:
            self.seen.append(Seen(group, topic, "commit", rows))
            self._room -= len(rows)
            if self._room < 0:
                self.seen[:] = [one for one in self.seen if one.kind != "commit"]
        if self.rows is not None:
            count = self.counts[topic]
            self.rows += (CommitRow(group, topic, row[0], "commit", *row[1:]) for row in rows if row[0] < count)

    def _mark_missing(self, group: str, topic: str, there: Collection[int], text: str, *, live: bool = False) -> None:
        count = self.counts[topic]
        if group in self.starts:
            for partition in (one for one in range(count) if one not in there):
                if live:
                    self._lacks(group, topic, partition, started_text(group, topic))
                else:
                    self._start(group, topic, partition, text)
            return
        text = younger_text(group) if group in self.latest else text
        waived = self.ages.covered(group, topic, count) if group in self.latest else 0  # of the first partitions
        for partition in range(waived, count):
            if partition not in there:
                self._lacks(group, topic, partition, text)

    def _start(self, group: str, topic: str, partition: int, text: str) -> None:
        """Note how far back a group starts that has no commit here; ``text`` is what to do if that is unknown (F2)."""
        if (back_ms := self.starts[group]) is None:
            self._lacks(group, topic, partition, text)
        else:
            self.at(topic, partition).starts(Start(back_ms, group))

    def _lacks(self, group: str, topic: str, partition: int, text: str) -> None:
        self.at(topic, partition).lacks(group, text)
        if self.seen is not None:
            self.seen.append(Seen(group, topic, "missing", [(partition, -1, None)]))
        self._row(group, topic, partition, "missing", code=Code.F2, text=text)

    def _row(self, group: str, topic: str | None, partition: int | None, kind: Kind, *more: Any, **named: Any) -> None:
        if self.rows is not None:
            self.rows.append(CommitRow(group, topic, partition, kind, *more, **named))

    def all_seen(self) -> list[Seen]:
        """Return what groups have, for evidence.

        Where that was too much, it has of each partition the lowest and the highest commit, without their epochs, and
        the highest one of each other leader epoch: a floor follows from no more.
        """
        found = list(self.seen or ())
        if self._room < 0:
            for topic, (low, low_by, high, high_by, _) in self.columns.items():
                for offsets, groups in ((low, low_by), (high, high_by)):
                    there = [n for n, most in enumerate(high) if most != NO_HIGHEST]
                    found += [Seen(groups[n], topic, "commit", [(n, offsets[n], None)]) for n in there]
            for tp, one in self.irregular.items():
                found += [
                    Seen(group, tp.topic, "commit", [(tp.partition, offset, epoch)])
                    for epoch, (offset, group) in one.epochs.items()
                ]
        return found

    def at(self, topic: str, partition: int) -> Irregular:
        """Return what is out of the ordinary on a partition, to add to: such as where a leader epoch ends."""
        return self.irregular[TopicPartition(topic, partition)]


_REGULAR: Final = Irregular()
