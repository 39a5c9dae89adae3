"""Of which log is it? Offsets are names, and a log that loses its tail gives them to other records (RULES.md M1 to M4).

A leader epoch and an offset name a record: a log that has it has all before it as they were (KIP-101). So each fact
that outlives a pass is asked about before it is used: where does the epoch end under which it was last true?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, Leaders, NotFound
from retention_cli.brokers.reader import ClusterReader
from retention_cli.memory import PartitionMemory
from retention_cli.model import Maybe, TopicPartition, Unknown

EpochEnds = Mapping[tuple[TopicPartition, int], Answer]
"""Where leader epochs end, as their partitions' leaders say; ``NotFound`` where one does not know the epoch."""


def ask_epochs(reader: ClusterReader, wanted: Iterable[tuple[TopicPartition, int]], leaders: Leaders) -> EpochEnds:
    """Ask where leader epochs end; partitions that nobody leads are left out."""
    asked = sorted({(tp, epoch) for tp, epoch in wanted if tp in leaders})
    return reader.epoch_ends(asked, leaders) if asked else {}


def prove(
    memory: PartitionMemory,
    leader_epoch: int,
    log_start: int,
    high_watermark: int,
    answer: Answer | None,
    now_ms: int,
) -> Maybe[int | None]:
    """Hold what is remembered of a partition against its log, and keep of it what is proven to be of that.

    Args:
        memory: what is remembered; it is changed.
        leader_epoch: the partition's.
        log_start: S.
        high_watermark: H.
        answer: where the epoch ends that the memory was last proven under; None where that is the current one.
        now_ms: our wall clock.

    Returns:
        Where the log was cut since, None where it was not. Unknown where that could not be asked: then the memory is
        as it was, and must not be used for what lets anything go (RULES.md M4).
    """
    known = memory.leader_epoch
    if known is None:
        if not memory.is_blank:  # an older version wrote it
            memory.begin_anew(leader_epoch, log_start)
        memory.lay_at(leader_epoch, log_start, now_ms)
        return None
    if isinstance(answer, RequestFailedError):
        return Unknown.because("M4", f"where leader epoch {known} ends could not be asked: {answer}")
    elsewhere = isinstance(answer, NotFound) or (isinstance(answer, Found) and answer.epoch is not None)
    if known > leader_epoch or elsewhere:  # where this log parts from what was seen is unknown
        memory.begin_anew(leader_epoch, log_start)
        return 0
    end = min(high_watermark, answer.offset) if isinstance(answer, Found) else high_watermark
    cut = end if end < memory.reach else None
    before = memory.high_watermark
    memory.lay_at(leader_epoch, log_start, now_ms, cut)
    return cut if cut is not None and cut < before else None


def other_log(
    reader: ClusterReader, last: Mapping[TopicPartition, tuple[int, int]], leaders: Leaders
) -> dict[TopicPartition, str]:
    """Return, for the partitions whose log may be another than what was read, why that is.

    Args:
        reader: the cluster.
        last: of each partition the last record's offset and leader epoch, as they were read.
        leaders: where to ask.
    """
    answers = ask_epochs(reader, ((tp, epoch) for tp, (_offset, epoch) in last.items()), leaders)
    found: dict[TopicPartition, str] = {}
    for tp, (offset, epoch) in last.items():
        match answers.get((tp, epoch)):
            case Found(end, _, None) if end > offset:
                continue
            case Found(end, _, None):
                found[tp] = (
                    f"the log was cut back: leader epoch {epoch} ends at {end:,} by now, and offset {offset:,} of it "
                    f"was read (an unclean election, or a broker that lost what it had not synced)"
                )
            case RequestFailedError() as error:
                found[tp] = f"where leader epoch {epoch} ends could not be asked ({error}); run again"
            case _:
                found[tp] = f"the leader does not know leader epoch {epoch}, in which offset {offset:,} was read"
    return found


def epochs_of(memories: Mapping[TopicPartition, PartitionMemory], leaders: Leaders) -> list[tuple[TopicPartition, int]]:
    """Return the leader epochs to ask about before these memories are used: those that are not the current ones."""
    return [
        (tp, one.leader_epoch)
        for tp, one in memories.items()
        if one.leader_epoch is not None and one.leader_epoch != leaders[tp].leader_epoch and not one.is_blank
    ]
