"""Every group's commits, folded to one floor per partition as they arrive (RULES.md F1–F5). Pure.

Memory grows with partitions, not with commits: a group's rows are forgotten once they are folded in. The
order in which groups arrive changes nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from retention_cli.model import Floor, Maybe, Reason, TopicPartition, Unknown

Commit = tuple[int, int, int | None]
"""Partition, committed offset, and leader epoch where the commit carries one."""

_NAMED_AT_MOST: Final = 3
"""How many groups a reason names before it counts the rest."""


@dataclass(frozen=True, slots=True)
class TopicScope:
    """A topic whose floors are wanted: its leader epochs by partition, and the groups it requires (F4)."""

    leader_epochs: Sequence[int]
    require: tuple[str, ...] = ()


@dataclass(slots=True)
class _Best:
    """The lowest and highest commit of a partition so far, and whose they are."""

    low: int
    low_by: str
    high: int
    high_by: str


@dataclass(slots=True)
class _Missing:
    """Groups that read a topic and have no commit on one partition of it (F2)."""

    count: int = 0
    first: list[tuple[str, str]] = field(default_factory=list)

    def add(self, group: str, text: str) -> None:
        self.count += 1
        self.first.append((group, text))
        if len(self.first) > _NAMED_AT_MOST:
            self.first.sort()
            self.first.pop()


class FloorFold:
    """Takes groups one by one; then answers each partition's floor.

    Args:
        topics: the managed topics.
        latest: names of groups that start at the end where they have no commit.
    """

    def __init__(self, topics: Mapping[str, TopicScope], latest: Iterable[str] = ()) -> None:
        self._topics = topics
        self._latest = frozenset(latest)
        self._best: dict[str, list[_Best | None]] = {
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
                    partition, offset, _epoch = max(rows)
                    text = (
                        f"group {group} reads {topic} but has no commit on this partition (its commit on "
                        f"{topic}-{partition} is {offset:,}). If it reads no more: kafka-consumer-groups.sh "
                        f"--delete-offsets --group {shlex.quote(group)} --topic {topic}, or list it under "
                        f"groups.ignore; if it starts at the end, under groups.latest"
                    )
                    self._mark_missing(group, topic, rows, text)
        for topic in reads:
            if topic in self._topics and not commits.get(topic):
                text = (
                    f"group {group} has a live member that reads {topic}, and has committed nothing there yet. Let it "
                    f"commit, or list it under groups.ignore; if it starts at the end, under groups.latest"
                )
                self._mark_missing(group, topic, (), text)

    def recall(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Note which of a group's commits are remembered ones (F6), for what is said of them; ``add`` folds them."""
        for topic, rows in gone.items():
            for row in rows:
                self._recalled[group, topic, row[0]] = seen

    def leftover(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Note a commit that was seen beyond the log's end, or on a topic that is gone, and has not changed (F5)."""
        text = (
            f"group {group} committed {offset:,} to an older topic of this name or before the log was lost, and has "
            f"not committed since: reset it, or delete its offsets"
        )
        self._diverged.setdefault(TopicPartition(topic, partition), set()).add(Reason("F5", text))

    def fail(self, group: str, text: str, topics: Iterable[str] | None) -> None:
        """Note a group that could not be read (F3): it may stand anywhere in ``topics`` (None: in all of them)."""
        reason = Reason("F3", f"group {group} could not be read: {text}")
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
            text = (
                f"group {group} committed {offset:,} in leader epoch {epoch}, which ended at {end:,}: those records "
                f"were lost in an election and others stand there now; let it commit again"
            )
            self._diverged.setdefault(tp, set()).add(Reason("F5", text))

    def floor(self, tp: TopicPartition, log_start: Maybe[int], high_watermark: Maybe[int]) -> Maybe[Floor]:
        """Return the partition's floor. ``high_watermark`` must have been read after the commits (F5)."""
        if isinstance(high_watermark, Unknown):
            return high_watermark
        best = self._best[tp.topic][tp.partition]
        reasons = [
            *_some(self._failed),
            *_some(self._failed_topics.get(tp.topic, ())),
            *_some(self._diverged.get(tp, ())),
            *self._missing_reasons(tp),
            *(
                Reason("F4", f"group {group} is required (groups.require) and has no commit here")
                for group in self._topics[tp.topic].require
                if tp.partition not in self._present[group, tp.topic]
            ),
        ]
        if best is not None and best.high > high_watermark:
            text = (
                f"group {best.high_by} committed {best.high:,}, beyond the log's end {high_watermark:,}: a leftover of "
                f"an older topic of this name? Reset it, or delete its offsets"
            )
            reasons.append(Reason("F5", text))
        if best is None and not reasons:
            reasons.append(Reason("F4", "no consumer group has committed here: nothing says what was read"))
        if reasons or best is None:
            return Unknown(tuple(dict.fromkeys(reasons)))
        notes: tuple[Reason, ...] = ()
        if not isinstance(log_start, Unknown) and best.low < log_start:
            lost = f"{log_start - best.low:,} records were gone before it read them"
            notes = (Reason("F5", f"group {best.low_by} stands at {best.low:,}: {lost}"),)
        if (seen := self._recalled.get((best.low_by, tp.topic, tp.partition))) is not None:
            text = (
                f"group {best.low_by} is gone since it committed {best.low:,} here (seen {seen}) and still counts; "
                f"if it won't come back: kretain groups forget {shlex.quote(best.low_by)}"
            )
            notes = (*notes, Reason("F6", text))
        return Floor(best.low, f"group:{best.low_by}", notes)

    def _fold(self, group: str, topic: str, rows: Sequence[Commit]) -> int:
        """Fold a group's rows of one topic in; return on how many of its partitions it has a commit."""
        best_of = self._best[topic]
        epochs = self._topics[topic].leader_epochs
        count, known = len(best_of), 0
        for partition, offset, epoch in rows:
            if partition >= count:  # it has come since the metadata was read: it is not managed yet
                continue
            known += 1
            best = best_of[partition]
            if best is None:
                best_of[partition] = _Best(offset, group, offset, group)
            else:
                if offset < best.low or (offset == best.low and group < best.low_by):
                    best.low, best.low_by = offset, group
                if offset > best.high or (offset == best.high and group < best.high_by):
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

    def _missing_reasons(self, tp: TopicPartition) -> list[Reason]:
        missing = self._missing.get(tp)
        if missing is None:
            return []
        reasons = [Reason("F2", text) for _group, text in sorted(missing.first)]
        if missing.count > len(reasons):
            reasons.append(Reason("F2", f"and {missing.count - len(reasons):,} more groups without a commit here"))
        return reasons


def _some(reasons: Iterable[Reason]) -> list[Reason]:
    """Return the first few reasons in order, and how many more there are."""
    ordered = sorted(reasons)
    if len(ordered) <= _NAMED_AT_MOST:
        return ordered
    more = Reason(ordered[0].code, f"and {len(ordered) - _NAMED_AT_MOST:,} more like these")
    return [*ordered[:_NAMED_AT_MOST], more]
