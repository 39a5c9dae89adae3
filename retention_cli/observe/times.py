"""Read the times that decisions need: event times first (R2), then look-ups, then who stamped records (G3)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from retention_cli.brokers.log_offsets import Answer, Leaders
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import LOG_APPEND_TIME, Message, Range
from retention_cli.core.codes import Code
from retention_cli.core.model import LookUp, Maybe, PartitionFacts, TopicPartition, Unknown
from retention_cli.decide.lookups import Lookups, Wanted, settled
from retention_cli.memory.partition import Front
from retention_cli.observe import lookups
from retention_cli.observe.lineage import Reading, soon
from retention_cli.policy.settings import DEFAULT_SCAN_RECORDS


class _Awaited(NamedTuple):
    """A partition's look-ups: how many it needs, and those that are there, by time (Unix ms)."""

    needs: int
    plain: dict[int, Maybe[LookUp]]
    data: dict[int, Maybe[LookUp]]


def with_lookups(
    reader: ClusterReader,
    facts: Mapping[TopicPartition, PartitionFacts],
    times: Collection[int],
    leaders: Leaders,
    deadline: float,
) -> dict[TopicPartition, PartitionFacts]:
    """Return the facts with look-ups of these times (Unix ms), whatever rules need; H must have been read before.

    ``deadline``, by the reader's clock, is for settling them by reading records.
    """
    wanted = {
        tp: Wanted(frozenset(times))
        for tp, one in facts.items()
        if times
        and not one.empty
        and not isinstance(one.log_start, Unknown)
        and not isinstance(one.high_watermark, Unknown)
    }
    found: dict[TopicPartition, dict[int, Maybe[LookUp]]] = {tp: {} for tp in wanted}
    if wanted:
        limits = dict.fromkeys((tp.topic for tp in wanted), DEFAULT_SCAN_RECORDS)
        for one in lookups.look_up(reader, facts, wanted.items(), leaders, limits, deadline):
            found[one.tp][one.time_ms] = one.answer
    return {**facts, **{tp: facts[tp]._replace(lookups=answers) for tp, answers in found.items()}}


def read_times(
    reading: Reading,
    facts: dict[TopicPartition, PartitionFacts],
    *,
    lost: Unknown | None,
    without: Collection[TopicPartition],
) -> None:
    """Fill event times and look-ups into the facts; H must have been read before.

    Args:
        reading: the cluster, settings and memories. Its deadline is also for settling look-ups by reading records.
        facts: each partition's facts; updated.
        lost: why nothing can be recalled, None if it can.
        without: partitions that could not be read; their event times are not read either.
    """
    reader, leaders, settings = reading.reader, reading.leaders, reading.settings
    timed = {
        tp: one
        for tp, one in facts.items()
        if settings[tp.topic].event_time_ms is not None and tp not in without and not settled(one, settings[tp.topic])
    }
    maxima: Mapping[TopicPartition, Answer] = {}
    if timed:
        from retention_cli.observe.event_times import read_event_times

        events = read_event_times(reading, timed)
        for tp, newest in events.newest.items():
            facts[tp] = facts[tp]._replace(newest=newest, event_prefix=events.prefix.get(tp, facts[tp].event_prefix))
        maxima = events.stamps
    found: dict[TopicPartition, _Awaited] = {}

    def asked() -> Iterator[tuple[TopicPartition, Wanted]]:
        of_topic: dict[str, Lookups] = {}
        for tp, facts_of in facts.items():
            if (needs := of_topic.get(tp.topic)) is None:
                needs = of_topic[tp.topic] = Lookups(facts_of.topic, settings[tp.topic], reading.now_ms)
            wanted = needs.of(facts_of)
            if count := len(wanted.times) + len(wanted.data):
                if not found:
                    reading.progress("time look-ups")
                found[tp] = _Awaited(count, {}, {})
                yield tp, wanted

    limits = {name: one.scan_records for name, one in settings.items()}
    last = None if reading.deadline is None else max(reading.deadline, reader.clock.monotonic() + 1)
    until = soon(reader, last, len(facts))
    stamped: list[TopicPartition] = []
    for one in lookups.look_up(
        reader, facts, asked(), leaders, limits, until, lambda tp: reading.memory[tp].data_at, maxima
    ):
        tp = one.tp
        count, plain, data = found[tp]
        (data if one.data else plain)[one.time_ms] = one.answer
        if one.record is not None:
            reading.memory[tp].add_data(one.record)
        if len(plain) + len(data) < count:
            continue
        facts[tp] = known = facts[tp]._replace(lookups=plain, data_lookups=data)
        if settings[tp.topic].min_wallclock_ms is not None and known.topic.timestamp_type == "LogAppendTime":  # G3
            stamped.append(tp)
    if lost is not None:  # whether the topic was ever CreateTime is not known either (G3)
        facts.update({tp: facts[tp]._replace(stamped_below=lost) for tp in stamped})
        return
    for tp, below in _stamped_below(replace(reading, deadline=until), facts, stamped).items():
        facts[tp] = facts[tp]._replace(stamped_below=below)


def _stamped_below(
    reading: Reading, facts: Mapping[TopicPartition, PartitionFacts], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Maybe[int]]:
    """Return, per partition, below which offset a LogAppendTime topic's stamps may be its producers' (G3); 0: nowhere.

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
            found[tp] = 0 if known.front.append_time else facts[tp].high_watermark
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
            found[tp] = 0 if fronts[tp] else facts[tp].high_watermark
        else:  # there is no record to trim
            found[tp] = 0
    return found
