"""Find the offset below which a LogAppendTime topic's timestamps may be its producers': it was CreateTime once (G3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from retention_cli.brokers.log_offsets import Leaders
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import LOG_APPEND_TIME, Message, Range
from retention_cli.core.model import Maybe, PartitionFacts, TopicPartition, Unknown
from retention_cli.memory.partition import Front, PartitionMemory
from retention_cli.observe.proven_reads import read_proven
from retention_cli.policy.settings import Settings


def guarded_by_stamps(facts: PartitionFacts, settings: Settings) -> bool:
    """Return whether G3 uses the records' timestamps: the policy sets W, and the topic is LogAppendTime."""
    return settings.min_wallclock_ms is not None and facts.topic.timestamp_type == "LogAppendTime"


def stamped_below(
    reader: ClusterReader,
    facts: Mapping[TopicPartition, PartitionFacts],
    partitions: Iterable[TopicPartition],
    memory: Mapping[TopicPartition, PartitionMemory],
    leaders: Leaders,
    deadline: float,
) -> dict[TopicPartition, Maybe[int]]:
    """Return, per partition, the offset below which timestamps may be producers'; 0 if brokers set them all.

    It is the H at which the ledger first saw the topic as LogAppendTime after CreateTime: records written in between
    may be either. If the ledger never saw that, the first record at or after S decides: the offset is H if a producer
    stamped it. Who stamped that record is remembered as long as S stays there.

    Args:
        reader: the cluster.
        facts: S, H and L of each partition.
        partitions: those that G3 guards by timestamps.
        memory: each partition's memory; updated.
        leaders: each partition's leader.
        deadline: when to stop reading records, by the reader's clock.
    """
    found: dict[TopicPartition, Maybe[int]] = {}
    ranges: dict[TopicPartition, Range] = {}
    for tp in partitions:
        start, stable, known = facts[tp].log_start, facts[tp].last_stable_offset, memory[tp]
        if isinstance(start, Unknown) or isinstance(stable, Unknown):
            found[tp] = start if isinstance(start, Unknown) else stable
        elif known.created:
            found[tp] = facts[tp].high_watermark
        elif known.created_below > start:
            found[tp] = known.created_below
        elif known.front is not None and known.front.offset == start:
            found[tp] = _below(facts[tp], append_time=known.front.append_time)
        else:
            ranges[tp] = Range(start, stable)
    if not ranges:
        return found
    fronts: dict[TopicPartition, bool] = {}

    def on_record(tp: TopicPartition, message: Message) -> bool:
        fronts[tp] = message.timestamp()[0] == LOG_APPEND_TIME
        return True

    for tp, error in read_proven(reader, ranges, deadline, on_record, leaders).items():
        if error is not None:
            what = f"who stamped the record at {ranges[tp].start:,}, its producer or the broker"
            found[tp] = Unknown.because("G3", f"{what}, could not be read: {error}")
        elif tp in fronts:
            memory[tp].set_front(Front(ranges[tp].start, fronts[tp]))
            found[tp] = _below(facts[tp], append_time=fronts[tp])
        else:  # there is no record to trim
            found[tp] = 0
    return found


def _below(facts: PartitionFacts, *, append_time: bool) -> Maybe[int]:
    return 0 if append_time else facts.high_watermark
