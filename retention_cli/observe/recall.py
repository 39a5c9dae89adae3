"""Compare what is remembered with what is read, use it, and add to it: of partitions (M1 to M4), of groups (F5, F6)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, Leaders, NotFound
from retention_cli.core.consumers import forget_hint, group_id, is_share, who
from retention_cli.core.model import Code, Maybe, PartitionFacts, Reason, Sample, TopicPartition, Unknown
from retention_cli.core.units import format_time
from retention_cli.memory.group import RecalledGroup
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.partition import PartitionMemory, pending
from retention_cli.memory.positions import Commits, LogNow, Logs, Rows
from retention_cli.observe.floors.fold import FloorFold
from retention_cli.observe.lineage import Cut, EpochEnds, by_partition, prove
from retention_cli.policy.model import matches
from retention_cli.policy.settings import GroupRules, Settings


@dataclass(slots=True)
class Remembered:
    """The memory of one pass over a cluster.

    Args:
        memory: what is remembered of the cluster.
        settings: each topic's settings.
        leaders: each partition's leader and leader epoch.
        ends_read_ms: our wall clock right after H was read (Unix ms): no record below H was written later.
        now_ms: now, for all cutoffs (Unix ms).

    ``partitions`` has the memories that may be used. ``cuts`` has where logs were cut since the last pass, ``doubts``
    why that could not be asked: those memories are ``set_aside`` unchanged, and nothing is trimmed by them (M4).
    """

    memory: Ledger
    settings: Mapping[str, Settings]
    leaders: Leaders
    ends_read_ms: int = 0
    now_ms: int = 0
    partitions: dict[TopicPartition, PartitionMemory] = field(default_factory=dict)
    cuts: dict[TopicPartition, Cut] = field(default_factory=dict)
    doubts: dict[TopicPartition, Unknown] = field(default_factory=dict)
    set_aside: dict[TopicPartition, PartitionMemory] = field(default_factory=dict)

    def open(self, topic_ids: Mapping[str, Maybe[str]]) -> None:
        """Load the memory of each partition in ``leaders``; it is empty if the topic has no id."""
        self.partitions = {
            tp: PartitionMemory()
            if isinstance(topic_id := topic_ids[tp.topic], Unknown)
            else self.memory.partition(tp.topic, topic_id, tp.partition)
            for tp in self.leaders
        }

    def epochs_to_check(self, read: Mapping[TopicPartition, PartitionFacts]) -> Iterator[tuple[TopicPartition, int]]:
        """Yield the leader epochs to ask about before anything remembered is used, and to prove it the next time.

        H must have been read. If a partition's leader epoch has changed since the last pass, they are the one that
        proves its memory (M2) and, if H has moved beyond the memory's, the one before the current. If it has not
        changed and an earlier epoch proves the memory, newer records may be of that epoch: a pass that failed did not
        remember them.
        """
        for tp, one in self.partitions.items():
            now, end = self.leaders[tp].leader_epoch, read[tp].high_watermark
            yield from ((tp, earlier.proving_epoch) for earlier in pending(one.earlier))
            more = not isinstance(end, Unknown) and (one.is_blank or end > one.high_watermark)
            if one.leader_epoch == now:
                if more and one.last_epoch not in (None, now):
                    yield tp, one.last_epoch
                continue
            if one.proving_epoch is not None and not one.is_blank:
                yield tp, one.proving_epoch
            if now > 0 and more:
                yield tp, now - 1

    def prove(self, ends: EpochEnds, read: Mapping[TopicPartition, PartitionFacts]) -> None:
        """Keep what is proven to be of these logs (M2); S and H must have been read."""
        answers = by_partition(ends)
        for tp, memory in self.partitions.items():
            start, end = read[tp].log_start, read[tp].high_watermark
            if isinstance(start, Unknown) or isinstance(end, Unknown):
                continue
            now = self.leaders[tp].leader_epoch
            if isinstance(cut := prove(memory, now, start, end, answers.get(tp, {}), self.ends_read_ms), Unknown):
                self.doubts[tp], self.set_aside[tp] = cut, memory
                self.partitions[tp] = PartitionMemory(
                    leader_epoch=now,
                    log_start=start,
                    created=memory.created,  # facts that can only hold are kept
                    created_below=memory.created_below,
                )
            elif cut is not None:
                self.cuts[tp] = cut
        if self.cuts:  # at once, so that the memory knows of the cut however this pass ends
            cuts = self._logs_now({tp: read[tp] for tp in self.cuts}, answers)
            self.memory.judge(lambda: cuts, {tp.topic for tp in self.cuts}, list(self.cuts))

    def recall(self, facts: dict[TopicPartition, PartitionFacts], *, all_samples: bool = False) -> None:
        """Fill in the samples of each partition whose policy needs them (G3), or of all; the last one is of now."""
        for tp, one in facts.items():
            wanted = all_samples or self.settings[tp.topic].min_wallclock_ms is not None
            if wanted and not isinstance(one.high_watermark, Unknown):
                facts[tp] = one._replace(
                    samples=self.memory.lost
                    or self.doubts.get(tp)
                    or (*self.partitions[tp].samples, Sample(self.ends_read_ms, one.high_watermark))
                )

    def add(self, facts: Mapping[TopicPartition, PartitionFacts], commit_epochs: EpochEnds) -> None:
        """Remember this pass: each high watermark, when it was read, and which commits count.

        Args:
            facts: as they were read; unknown if the log changed meanwhile.
            commit_epochs: where the leader epochs of commits end.
        """
        for tp, memory in self.partitions.items():
            end, kind = facts[tp].high_watermark, facts[tp].topic.timestamp_type
            if not isinstance(end, Unknown) and tp not in self.doubts:
                memory.add_sample(Sample(self.ends_read_ms, end))
            # CreateTime can only hold, so it is remembered even if other facts are unknown.
            if kind == "CreateTime" or (kind == "LogAppendTime" and not isinstance(end, Unknown)):
                self.set_aside.get(tp, memory).saw_stamps(
                    0 if isinstance(end, Unknown) else end, append_time=kind == "LogAppendTime"
                )
        answers = by_partition(commit_epochs)
        cuts = [tp for tp in self.cuts if not isinstance(facts[tp].high_watermark, Unknown)]
        self.memory.judge(lambda: self._logs_now(facts, answers), {tp.topic for tp in self.partitions}, cuts)

    def _logs_now(
        self, read: Mapping[TopicPartition, PartitionFacts], answers: Mapping[TopicPartition, Mapping[int, Answer]]
    ) -> Logs:
        """Return what judges the commits on these partitions, but for those of which H is unknown."""
        return Logs(
            (tp, self._log_now(tp, one.high_watermark, answers.get(tp, {})))
            for tp, one in read.items()
            if not isinstance(one.high_watermark, Unknown)
        )

    def _log_now(self, tp: TopicPartition, high_watermark: int, ends: Mapping[int, Answer]) -> LogNow:
        epoch, last = self.leaders[tp].leader_epoch, self.partitions[tp].last_epoch
        if tp in self.doubts:
            return LogNow(high_watermark, epoch, in_doubt=True)
        answers = sorted(ends.items())
        unknown = frozenset(one for one, answer in answers if isinstance(answer, NotFound))
        unasked = frozenset(one for one, answer in answers if isinstance(answer, RequestFailedError))
        ended = tuple(
            (one, answer.offset)
            for one, answer in answers
            if isinstance(answer, Found) and answer.offset < high_watermark
        )
        offset, _epoch, until = self.cuts.get(tp) or (None, None, None)
        return LogNow(high_watermark, epoch, unknown, unasked, offset, last, until, ended=ended)


@dataclass(frozen=True, slots=True)
class Recall:
    """Compares what is remembered of groups with what was read (F5, F6).

    ``now_ms`` is from before they were listed; ``clock_ms`` returns the time once they were read (Unix ms).
    """

    memory: Ledger
    rules: GroupRules
    now_ms: int
    clock_ms: Callable[[], int]
    clock_is_right: bool = True

    @property
    def since_ms(self) -> int:
        """A group that is gone still counts if it was seen since then (F6). Unix ms."""
        return self.now_ms - self.rules.remember_ms

    def saw(self, name: str, commits: Commits, unread: Collection[str | tuple[str, int]] = ()) -> RecalledGroup:
        """Remember a group's commits; return which of them do not count (F5), and which are gone (F6).

        On ``unread`` topics and partitions its commits could not be read: the memory of them does not change.
        """
        if unread:
            as_before: dict[str, list[tuple[int, int, int | None]]] = {}
            for (topic, partition), commit in self.memory.group(name).live.commits().items():
                if topic in unread or (topic, partition) in unread:
                    rows = () if topic in unread else commits.get(topic, ())
                    as_before.setdefault(topic, [*rows]).append((partition, *commit))
            commits = {**commits, **as_before}
        # Not at now_ms: a run that was suspended before it read them would be older than another run's look (F6).
        return self.memory.saw_group(name, commits, self.clock_ms(), self.since_ms, partly=bool(unread))

    def saw_all(self) -> None:
        """Remember that every group that counts was listed and read (F10)."""
        if self.clock_is_right:
            self.memory.saw_all(*self.rules.watched, self.now_ms, self.clock_ms())

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
            if (group := group_id(name)) is None or (is_share(name) and self.rules.share == "ignore"):
                continue
            if not matches(self.rules.ignore, group):
                self.fold_gone(fold, name, seen_ms, rows)

    def fold_gone(self, fold: FloorFold, name: str, seen_ms: int, rows: Rows) -> None:
        """Fold in a remembered consumer that is gone. If its last commits are unknown, every floor is."""
        seen = format_time(seen_ms // 1000 * 1000)
        if self.memory.lacks_commits_of(name):
            text = f"only another machine saw the last commits of {who(name)}, {seen}: they did not fit into a message"
            fold.fail_all(Reason(Code.F6, f"{text}; {forget_hint(name)}"), group=name)
        fold.add_gone(name, rows, seen)
