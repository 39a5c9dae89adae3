"""Find the offset below which a LogAppendTime topic's timestamps may be its producers': it was CreateTime once (G3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from retention_cli.brokers.records import LOG_APPEND_TIME, Message, Range
from retention_cli.core.codes import Code
from retention_cli.core.model import Maybe, PartitionFacts, TopicPartition, Unknown
from retention_cli.memory.partition import Front
from retention_cli.observe.proven_reads import Reading


def stamped_below(
    reading: Reading, facts: Mapping[TopicPartition, PartitionFacts], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Maybe[int]]:
    """Return, per partition, the offset below which timestamps may be producers'; 0 if brokers set them all.

    It is the H at which the ledger first saw the topic as LogAppendTime after CreateTime: records written in between
    may be either. If the ledger never saw that, the first record at or after S decides: the offset is H if a producer
    stamped it. Who stamped that record is remembered as long as S stays there.

    Args:
        reading: the cluster, and each partition's memory; updated.
        facts: S, H and L of each partition.
        partitions: those that G3 guards by timestamps.
    """
    found: dict[TopicPartition, Maybe[int]] = {}
    ranges: dict[TopicPartition, Range] = {}
    for tp in partitions:
        start, stable, known = facts[tp].log_start, facts[tp].last_stable_offset, reading.memory[tp]
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

    for tp, error in reading.read_proven(ranges, on_record).items():
        if error is not None:
            what = f"who stamped the record at {ranges[tp].start:,}, its producer or the broker"
            found[tp] = Unknown.because(Code.G3, f"{what}, could not be read: {error}")
        elif tp in fronts:
            reading.memory[tp].set_front(Front(ranges[tp].start, fronts[tp]))
            found[tp] = _below(facts[tp], append_time=fronts[tp])
        else:  # there is no record to trim
            found[tp] = 0
    return found


def _below(facts: PartitionFacts, *, append_time: bool) -> Maybe[int]:
    return 0 if append_time else facts.high_watermark
