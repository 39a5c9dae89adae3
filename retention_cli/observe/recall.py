"""Compare what is remembered with what is read, use it, and add to it: of partitions (M1 to M4), of groups (F5, F6).

A log that loses its tail gives its offsets to other records. A leader epoch and an offset identify a record, and a log
that has it has all records before it unchanged (KIP-101). So before a fact of an earlier pass is used, the leader is
asked where the epoch ends under which it was last true.

The same goes for records: the client that reads them finds leaders by itself. After an unclean election it may ask a
deposed leader that does not know it yet, and read records of another log: nothing is trimmed because of these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, Leaders, NotFound
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import PARTITIONS_AT_ONCE, Message, OnRecord, Range, note_epoch
from retention_cli.core.consumers import group_id, is_share
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Code, Maybe, PartitionFacts, Reason, Sample, TopicPartition, Unknown
from retention_cli.core.progress import Progress
from retention_cli.core.units import format_time
from retention_cli.memory.group import RecalledGroup
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.partition import PartitionMemory, pending
from retention_cli.memory.positions import Commits, LogNow, Logs
from retention_cli.observe.floors.fold import FloorFold
from retention_cli.policy.model import matches
from retention_cli.policy.settings import GroupRules, Settings

EpochEnds = Mapping[tuple[TopicPartition, int], Answer]
"""Where leader epochs end, according to partitions' leaders; ``NotFound`` if a leader does not know the epoch."""


class Cut(NamedTuple):
    """Where a log was cut since the last pass, and which leader epoch ended there, None if unknown.

    A commit that was seen to count under a leader epoch above ``until`` was seen after the cut; None if that is known
    of none.
    """

    offset: int
    epoch: int | None = None
    until: int | None = None


def ask_epochs(reader: ClusterReader, wanted: Iterable[tuple[TopicPartition, int]], leaders: Leaders) -> EpochEnds:
    """Return where leader epochs end. Partitions without a leader are left out."""
    asked = sorted({(tp, epoch) for tp, epoch in wanted if tp in leaders})
    return reader.epoch_ends(asked, leaders) if asked else {}


def by_partition(ends: EpochEnds) -> dict[TopicPartition, dict[int, Answer]]:
    """Return where each partition's leader epochs end."""
    answers = by_key((tp, (epoch, answer)) for (tp, epoch), answer in ends.items())
    return {tp: dict(some) for tp, some in answers.items()}


def prove(
    memory: PartitionMemory,
    leader_epoch: int,
    log_start: int,
    high_watermark: int,
    ends: Mapping[int, Answer],
    now_ms: int,
) -> Maybe[Cut | None]:
    """Check a partition's memory against its log, and keep only what is proven to be of that log.

    Args:
        memory: the memory; it is changed.
        leader_epoch: the partition's current one.
        log_start: S.
        high_watermark: H.
        ends: where this partition's earlier epochs end, if they were asked about.
        now_ms: our wall clock (Unix ms).

    Returns:
        Where the log was cut since, None if it was not. Unknown if that could not be asked: then the memory is
        unchanged, and must not be used to trim anything (M4).
    """
    if not memory.earlier:
        return _prove(memory, leader_epoch, log_start, high_watermark, ends, now_ms)
    for one in pending(memory.earlier):
        if isinstance(answer := ends.get(one.proving_epoch, _NOT_ASKED), RequestFailedError):
            return _end_unknown(one.proving_epoch, answer)
    before = _cut_before(memory, high_watermark, ends)  # before _prove settles them
    cut = _prove(memory, leader_epoch, log_start, high_watermark, ends, now_ms)
    if before is None or isinstance(cut, Unknown):
        return cut
    return before if cut is None else Cut(min(before.offset, cut.offset), cut.epoch)


def _cut_before(memory: PartitionMemory, high_watermark: int, ends: Mapping[int, Answer]) -> Cut | None:
    """Return where the log was cut after an earlier memory that this one replaced, None if it was not.

    This memory's own facts are kept: they were read from the log as it is.
    """
    found = []
    for one in pending(memory.earlier):
        answer = ends.get(one.proving_epoch)
        end = min(high_watermark, answer.offset) if isinstance(answer, Found) else 0
        if end < one.reach:
            found.append(Cut(end, one.proving_epoch, one.leader_epoch))
    return min(found)._replace(until=max(one.until or 0 for one in found)) if found else None


def _prove(
    memory: PartitionMemory,
    leader_epoch: int,
    log_start: int,
    high_watermark: int,
    ends: Mapping[int, Answer],
    now_ms: int,
) -> Maybe[Cut | None]:
    known, reach = memory.proving_epoch, memory.reach
    stands = (memory.leader_epoch, memory.log_start, reach) == (leader_epoch, log_start, high_watermark)
    if stands and memory.last_epoch is not None and not memory.earlier:  # else go on, to settle the earlier ones
        return None
    last = _last_epoch(memory, leader_epoch, high_watermark, reach, ends)
    if memory.leader_epoch is None or known is None:
        if not memory.is_blank:  # an older version wrote it
            memory.begin_anew(leader_epoch, log_start)
        memory.continue_at(leader_epoch, log_start, now_ms, last_epoch=last)
        return None
    same = memory.leader_epoch == leader_epoch
    answer = None if same or memory.is_blank else ends.get(known, _NOT_ASKED)
    if isinstance(answer, RequestFailedError):
        return _end_unknown(known, answer)
    if memory.leader_epoch > leader_epoch or isinstance(answer, NotFound):  # where the two logs diverge is unknown
        memory.begin_anew(leader_epoch, log_start)
        memory.last_epoch = last
        return Cut(0, None if same else known)
    end = min(high_watermark, answer.offset) if isinstance(answer, Found) else high_watermark
    cut = end if end < reach else None
    lost = cut is not None and cut < memory.high_watermark
    memory.continue_at(leader_epoch, log_start, now_ms, cut, last)
    return Cut(cut, None if same else known) if cut is not None and lost else None


def _end_unknown(epoch: int, why: RequestFailedError) -> Unknown:
    return Unknown.because(Code.M4, f"kretain could not ask where leader epoch {epoch} ends: {why}")


def _last_epoch(
    memory: PartitionMemory, leader_epoch: int, high_watermark: int, reach: int, ends: Mapping[int, Answer]
) -> int:
    """Return the leader epoch whose end later proves what is below H: the last record's, or a later one.

    An epoch without records leaves no trace in a log, so it proves nothing once another leader is elected. Then an
    earlier epoch is returned, if one is known to end at H or beyond.
    """
    if memory.leader_epoch == leader_epoch:
        known = leader_epoch if memory.proving_epoch is None else memory.proving_epoch
        answer = ends.get(known)
        reaches = high_watermark <= reach or (isinstance(answer, Found) and answer.offset >= high_watermark)
        return known if reaches else leader_epoch
    reaching = [
        epoch
        for epoch, answer in ends.items()
        if epoch < leader_epoch and isinstance(answer, Found) and answer.offset >= high_watermark
    ]
    return max(reaching, default=leader_epoch)


def other_log(
    reader: ClusterReader, marks: Mapping[TopicPartition, Collection[tuple[int, int]]], leaders: Leaders
) -> dict[TopicPartition, str]:
    """Return the partitions whose log may not be the one that was read, and why.

    Args:
        reader: the cluster.
        marks: offsets and leader epochs of the records that were read, by partition.
        leaders: the brokers to ask.
    """
    every = [(tp, offset, epoch) for tp, some in marks.items() for offset, epoch in some]
    answers = ask_epochs(reader, ((tp, epoch) for tp, _offset, epoch in every), leaders)
    found: dict[TopicPartition, str] = {}
    for tp, offset, epoch in every:
        match answers.get((tp, epoch)):
            case Found(end) if end > offset:
                continue
            case Found(end):
                found[tp] = (
                    f"the log was cut back: leader epoch {epoch} ends at {end:,} by now, and offset {offset:,} of it "
                    f"was read (an unclean election, or a broker that lost what it had not synced)"
                )
            case RequestFailedError() as error:
                found[tp] = f"kretain could not ask where leader epoch {epoch} ends ({error}); run again"
            case _:
                found[tp] = f"the leader does not know leader epoch {epoch}, in which offset {offset:,} was read"
    return found


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading records takes.

    Args:
        reader: the cluster.
        leaders: each partition's leader.
        settings: each topic's settings.
        memory: each partition's memory; updated.
        now_ms: now, for all cutoffs (Unix ms).
        deadline: when to stop reading records, by the reader's clock; None: read all of them.
        progress: called with what is being read.
    """

    reader: ClusterReader
    leaders: Leaders
    settings: Mapping[str, Settings]
    memory: Mapping[TopicPartition, PartitionMemory]
    now_ms: int
    deadline: float | None
    progress: Progress

    def read_proven(
        self, ranges: Mapping[TopicPartition, Range], on_record: OnRecord
    ) -> dict[TopicPartition, RequestFailedError | None]:
        """Read a few records of each range; records of another log are an error, too (M1).

        In that case, discard the partition's records that ``on_record`` was called with.
        """
        epochs: dict[TopicPartition, dict[int, int]] = {tp: {} for tp in ranges}

        def noting(tp: TopicPartition, message: Message) -> bool | None:
            note_epoch(epochs[tp], message)
            return on_record(tp, message)

        ended = self.reader.read_ranges(ranges, soon(self.reader, self.deadline, len(ranges)), noting)
        others = of_another_log(self.reader, epochs, self.leaders)
        return ended | {tp: RequestFailedError(why, retriable=True) for tp, why in others.items()}


def of_another_log(
    reader: ClusterReader, read: Mapping[TopicPartition, Mapping[int, int]], leaders: Leaders
) -> dict[TopicPartition, str]:
    """Return the partitions of which a record that was read is not in the leader's log, each with the reason.

    Each leader epoch is checked by itself: a read may begin at a deposed leader and end at the current one, whose
    records say nothing about those before them. A record of the current epoch is in the log: only its leader has
    written it, and has cut nothing since.

    Args:
        reader: the cluster.
        read: the last offset that was read in each leader epoch.
        leaders: the brokers to ask.
    """
    old = {
        tp: marks
        for tp, epochs in read.items()
        if tp in leaders
        and (marks := [(offset, epoch) for epoch, offset in epochs.items() if epoch != leaders[tp].leader_epoch])
    }
    return other_log(reader, old, leaders) if old else {}


def soon(reader: ClusterReader, deadline: float | None, partitions: int) -> float:
    """Return the deadline for reading a few records of each partition, by the reader's clock.

    Without a given one: one time-out from now, and another per :data:`PARTITIONS_AT_ONCE` partitions.
    """
    if deadline is not None:
        return deadline
    return reader.clock.monotonic() + reader.timeout_s * (1 + partitions // PARTITIONS_AT_ONCE)


_NOT_ASKED: Final = RequestFailedError("it was not asked", retriable=True)


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
    why that could not be asked: those memories are ``set_aside`` as they are, and nothing is trimmed by them (M4).
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

    def epochs_to_check(self, read: Mapping[TopicPartition, PartitionFacts]) -> list[tuple[TopicPartition, int]]:
        """Return the leader epochs to ask about before anything remembered is used, and to prove it the next time.

        H must have been read. If a partition's leader epoch has changed since the last pass, they are the one that
        proves its memory (M2) and, if H has moved beyond the memory's, the one before the current. If it has not
        changed and an earlier epoch proves the memory, newer records may be of that epoch: a pass that failed did not
        remember them.
        """
        wanted = []
        for tp, one in self.partitions.items():
            now, end = self.leaders[tp].leader_epoch, read[tp].high_watermark
            wanted += [(tp, earlier.proving_epoch) for earlier in pending(one.earlier)]
            more = not isinstance(end, Unknown) and (one.is_blank or end > one.high_watermark)
            if one.leader_epoch == now:
                if more and one.last_epoch not in (None, now):
                    wanted.append((tp, one.last_epoch))
                continue
            if one.proving_epoch is not None and not one.is_blank:
                wanted.append((tp, one.proving_epoch))
            if now > 0 and more:
                wanted.append((tp, now - 1))
        return wanted

    def prove(self, ends: EpochEnds, read: Mapping[TopicPartition, PartitionFacts]) -> None:
        """Keep what is proven to be of these logs (M2); S and H must have been read."""
        answers = by_partition(ends)
        for tp, memory in self.partitions.items():
            start, end = read[tp].log_start, read[tp].high_watermark
            if isinstance(start, Unknown) or isinstance(end, Unknown):
                continue
            now = self.leaders[tp].leader_epoch
            cut = prove(memory, now, start, end, answers.get(tp, {}), self.ends_read_ms)
            if isinstance(cut, Unknown):
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
            logs = {tp: self._log_now(tp, read[tp].high_watermark, answers) for tp in self.cuts}
            cuts = Logs((tp, log) for tp, log in logs.items() if log is not None)
            self.memory.judge(lambda: cuts, {tp.topic for tp in logs}, list(logs))

    def recall(self, facts: dict[TopicPartition, PartitionFacts], *, all_samples: bool = False) -> None:
        """Fill in the samples of each partition whose policy needs them (G3), or of all; the last one is of now."""
        for tp, one in facts.items():
            wanted = all_samples or self.settings[tp.topic].min_wallclock_ms is not None
            if wanted and not isinstance(one.high_watermark, Unknown):
                samples = (*self.partitions[tp].samples, Sample(self.ends_read_ms, one.high_watermark))
                facts[tp] = one._replace(samples=self.memory.lost or self.doubts.get(tp) or samples)

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
            # CreateTime can only hold, so it is remembered whatever else is unknown.
            if kind == "CreateTime" or (kind == "LogAppendTime" and not isinstance(end, Unknown)):
                known = self.set_aside.get(tp, memory)
                known.saw_stamps(0 if isinstance(end, Unknown) else end, append_time=kind == "LogAppendTime")
        answers = by_partition(commit_epochs)

        def logs() -> Logs:
            read = ((tp, self._log_now(tp, one.high_watermark, answers)) for tp, one in facts.items())
            return Logs((tp, log) for tp, log in read if log is not None)

        cuts = [tp for tp in self.cuts if not isinstance(facts[tp].high_watermark, Unknown)]
        self.memory.judge(logs, {tp.topic for tp in self.partitions}, cuts)

    def _log_now(
        self,
        tp: TopicPartition,
        high_watermark: Maybe[int],
        answered: Mapping[TopicPartition, Mapping[int, Answer]],
    ) -> LogNow | None:
        if isinstance(high_watermark, Unknown):
            return None
        epoch, last = self.leaders[tp].leader_epoch, self.partitions[tp].last_epoch
        if tp in self.doubts:
            return LogNow(high_watermark, epoch, in_doubt=True)
        answers = sorted(answered.get(tp, {}).items())
        unknown = frozenset(one for one, answer in answers if isinstance(answer, NotFound))
        unasked = frozenset(one for one, answer in answers if isinstance(answer, RequestFailedError))
        ended = ((one, answer.offset) for one, answer in answers if isinstance(answer, Found))
        beyond = tuple((one, end) for one, end in ended if end < high_watermark)
        offset, _epoch, until = self.cuts.get(tp) or (None, None, None)
        return LogNow(high_watermark, epoch, unknown, unasked, offset, last, until, ended=beyond)


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

        On ``unread`` topics and partitions its commits could not be read: the memory of them does not change.
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
            if (group := group_id(name)) is None or (is_share(name) and self.rules.share == "ignore"):
                continue
            if not matches(self.rules.ignore, group):
                fold.add_gone(name, rows, format_time(seen_ms // 1000 * 1000))
