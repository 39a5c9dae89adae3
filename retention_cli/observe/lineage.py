"""Check which log a remembered fact is of: a log that loses its tail gives its offsets to other records (M1 to M4).

A leader epoch and an offset identify a record, and a log that has it has all records before it unchanged (KIP-101). So
before a fact of an earlier pass is used, the leader is asked where the epoch ends under which it was last true.

The same goes for records: the client that reads them finds leaders by itself. After an unclean election it may ask a
deposed leader that does not know it yet, and read records of another log: nothing is trimmed because of these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, Leaders, NotFound
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import PARTITIONS_AT_ONCE, Message, OnRecord, Range, note_epoch
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Code, Maybe, TopicPartition, Unknown
from retention_cli.core.progress import Progress
from retention_cli.memory.partition import PartitionMemory, pending
from retention_cli.policy.settings import Settings

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
    requests = sorted({(tp, epoch) for tp, epoch in wanted if tp in leaders})
    return reader.epoch_ends(requests, leaders) if requests else {}


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
        if isinstance(answer := ends.get(one.proving_epoch, _NOT_SENT), RequestFailedError):
            return _end_unknown(one.proving_epoch, answer)
    before = _cut_before(memory, high_watermark, ends)  # before _prove settles them
    cut = _prove(memory, leader_epoch, log_start, high_watermark, ends, now_ms)
    if before is None or isinstance(cut, Unknown):
        return cut
    return before if cut is None else Cut(min(before.offset, cut.offset), cut.epoch)


def _cut_before(memory: PartitionMemory, high_watermark: int, ends: Mapping[int, Answer]) -> Cut | None:
    """Return where the log was cut after an earlier memory that this one replaced, None if it was not.

    This memory's own facts are kept: they were read from the current log.
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
            memory.start_over(leader_epoch, log_start)
        memory.continue_at(leader_epoch, log_start, now_ms, last_epoch=last)
        return None
    same = memory.leader_epoch == leader_epoch
    answer = None if same or memory.is_blank else ends.get(known, _NOT_SENT)
    if isinstance(answer, RequestFailedError):
        return _end_unknown(known, answer)
    if memory.leader_epoch > leader_epoch or isinstance(answer, NotFound):  # where the two logs diverge is unknown
        memory.start_over(leader_epoch, log_start)
        memory.last_epoch = last
        return Cut(0, None if same else known)
    end = min(high_watermark, answer.offset) if isinstance(answer, Found) else high_watermark
    cut = end if end < reach else None
    lost = Cut(cut, None if same else known) if cut is not None and cut < memory.high_watermark else None
    memory.continue_at(leader_epoch, log_start, now_ms, cut, last)
    return lost


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
                    f"the log was cut back: leader epoch {epoch} now ends at {end:,}, but kretain had read its offset "
                    f"{offset:,} (an unclean election, or a broker that lost what it had not synced)"
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


_NOT_SENT: Final = RequestFailedError("it was not asked", retriable=True)
