"""Of which log is it? Offsets are names, and a log that loses its tail gives them to other records (M1 to M4).

A leader epoch and an offset name a record: a log that has it has all before it as they were (KIP-101). So each fact
that outlives a pass is asked about before it is used: where does the epoch end under which it was last true?
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, Leaders, NotFound
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Maybe, TopicPartition, Unknown
from retention_cli.memory.earlier import pending
from retention_cli.memory.partition import PartitionMemory

EpochEnds = Mapping[tuple[TopicPartition, int], Answer]
"""Where leader epochs end, as their partitions' leaders say; ``NotFound`` where one does not know the epoch."""


class Cut(NamedTuple):
    """Where a log was cut since the last pass, and which leader epoch ended there, where that is known.

    ``until``: a commit that was seen to count under a later leader epoch than this was seen in the log as it was cut;
    None, where that is not known of any.
    """

    offset: int
    epoch: int | None = None
    until: int | None = None


class Ends(Protocol):
    """A partition whose ends were read."""

    @property
    def log_start(self) -> Maybe[int]:
        """S."""
        ...

    @property
    def high_watermark(self) -> Maybe[int]:
        """H."""
        ...


def ask_epochs(reader: ClusterReader, wanted: Iterable[tuple[TopicPartition, int]], leaders: Leaders) -> EpochEnds:
    """Ask where leader epochs end; partitions that nobody leads are left out."""
    asked = sorted({(tp, epoch) for tp, epoch in wanted if tp in leaders})
    return reader.epoch_ends(asked, leaders) if asked else {}


def prove(
    memory: PartitionMemory,
    leader_epoch: int,
    log_start: int,
    high_watermark: int,
    ends: Mapping[int, Answer],
    now_ms: int,
) -> Maybe[Cut | None]:
    """Hold what is remembered of a partition against its log, and keep of it what is proven to be of that.

    Args:
        memory: what is remembered; it is changed.
        leader_epoch: the partition's.
        log_start: S.
        high_watermark: H.
        ends: where this partition's earlier epochs end, as far as they were asked about.
        now_ms: our wall clock.

    Returns:
        Where the log was cut since, None where it was not. Unknown where that could not be asked: then the memory is
        as it was, and must not be used for what lets anything go (M4).
    """
    if not memory.earlier:
        return _prove(memory, leader_epoch, log_start, high_watermark, ends, now_ms)
    for one in pending(memory.earlier):
        if isinstance(answer := ends.get(one.asked, _NOT_ASKED), RequestFailedError):
            return _untold(one.asked, answer)
    before = _cut_before(memory, high_watermark, ends)  # what follows makes them settled
    cut = _prove(memory, leader_epoch, log_start, high_watermark, ends, now_ms)
    if before is None or isinstance(cut, Unknown):
        return cut
    return before if cut is None else Cut(min(before.offset, cut.offset), cut.epoch)


def _cut_before(memory: PartitionMemory, high_watermark: int, ends: Mapping[int, Answer]) -> Cut | None:
    """Return where the log was cut after an earlier memory was made, that this one took the place of.

    What this one says of the log stays: it was read of the log as it is.
    """
    found = []
    for one in pending(memory.earlier):
        answer = ends.get(one.asked)
        end = min(high_watermark, answer.offset) if isinstance(answer, Found) else 0
        if end < one.reach:
            found.append(Cut(end, one.asked, one.leader_epoch))
    return min(found)._replace(until=max(one.until or 0 for one in found)) if found else None


def _prove(
    memory: PartitionMemory,
    leader_epoch: int,
    log_start: int,
    high_watermark: int,
    ends: Mapping[int, Answer],
    now_ms: int,
) -> Maybe[Cut | None]:
    known, reach = memory.asked_epoch, memory.reach
    stands = (memory.leader_epoch, memory.log_start, reach) == (leader_epoch, log_start, high_watermark)
    if stands and memory.last_epoch is not None and not memory.earlier:  # else those are settled by now
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
        return _untold(known, answer)
    if memory.leader_epoch > leader_epoch or isinstance(answer, NotFound):  # where this log parts from it is unknown
        memory.begin_anew(leader_epoch, log_start)
        memory.last_epoch = last
        return Cut(0, None if same else known)
    end = min(high_watermark, answer.offset) if isinstance(answer, Found) else high_watermark
    cut = end if end < reach else None
    lost = cut is not None and cut < memory.high_watermark
    memory.continue_at(leader_epoch, log_start, now_ms, cut, last)
    return Cut(cut, None if same else known) if cut is not None and lost else None


def _untold(epoch: int, why: RequestFailedError) -> Unknown:
    return Unknown.because("M4", f"where leader epoch {epoch} ends could not be asked: {why}")


def _last_epoch(
    memory: PartitionMemory, leader_epoch: int, high_watermark: int, reach: int, ends: Mapping[int, Answer]
) -> int:
    """Return the leader epoch that proves, later, what stands below H: that of the last record there, or a later one.

    An epoch without a record leaves no trace in a log, so a leader that has written nothing proves nothing, once it
    leads no more. Then it is an earlier one, where one is known to end at H or beyond.
    """
    if memory.leader_epoch == leader_epoch:
        known = leader_epoch if memory.asked_epoch is None else memory.asked_epoch
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
    """Return, for the partitions whose log may be another than what was read, why that is.

    Args:
        reader: the cluster.
        marks: of each partition offsets and leader epochs of records, as they were read.
        leaders: where to ask.
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
                found[tp] = f"where leader epoch {epoch} ends could not be asked ({error}); run again"
            case _:
                found[tp] = f"the leader does not know leader epoch {epoch}, in which offset {offset:,} was read"
    return found


def epochs_of(
    memories: Mapping[TopicPartition, PartitionMemory], leaders: Leaders, read: Mapping[TopicPartition, Ends]
) -> list[tuple[TopicPartition, int]]:
    """Return the leader epochs to ask about before these memories are used, and to prove them by the next time.

    Asked is where partitions have another leader epoch than when they were last looked at: for the epoch that proves
    what is remembered (M2), and, where there are records that it does not reach to, for the one before the current.
    Where the epoch is the same and an earlier one proves it, such records may be that one's: a pass that ended in an
    error has not remembered them.
    """
    wanted = []
    for tp, one in memories.items():
        now, end = leaders[tp].leader_epoch, read[tp].high_watermark
        if one.leader_epoch == now and one.last_epoch in (None, now) and not one.earlier:
            continue
        if one.earlier:
            wanted += [(tp, earlier.asked) for earlier in pending(one.earlier)]
        more = not isinstance(end, Unknown) and (one.is_blank or end > one.high_watermark)
        if one.leader_epoch == now:
            if more and one.last_epoch not in (None, now):
                wanted.append((tp, one.last_epoch))
            continue
        if one.asked_epoch is not None and not one.is_blank:
            wanted.append((tp, one.asked_epoch))
        if now > 0 and more:
            wanted.append((tp, now - 1))
    return wanted


_NOT_ASKED: Final = RequestFailedError("it was not asked", retriable=True)
