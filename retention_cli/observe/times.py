"""Read the times that decisions need: event times first (R2), then look-ups, in as few rounds as possible."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from retention_cli.brokers.log_offsets import Answer, Leaders
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import LookUp, Maybe, PartitionFacts, TopicPartition, Unknown
from retention_cli.core.progress import Progress
from retention_cli.decide.lookups import Lookups, Wanted, settled
from retention_cli.memory.partition import PartitionMemory
from retention_cli.observe import lookups
from retention_cli.observe.append_times import guarded_by_stamps, stamped_below
from retention_cli.observe.proven_reads import soon
from retention_cli.policy.settings import DEFAULT_SCAN_RECORDS, Settings


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
    reader: ClusterReader,
    facts: dict[TopicPartition, PartitionFacts],
    settings: Mapping[str, Settings],
    leaders: Leaders,
    memory: Mapping[TopicPartition, PartitionMemory],
    *,
    lost: Unknown | None,
    now_ms: int,
    without: Collection[TopicPartition],
    deadline: float,
    scan_all: bool,
    progress: Progress,
) -> None:
    """Fill event times and look-ups into the facts; H must have been read before.

    Args:
        reader: the cluster.
        facts: each partition's facts; updated.
        settings: each topic's settings.
        leaders: each partition's leader.
        memory: each partition's memory; updated.
        lost: why nothing can be recalled, None if it can.
        now_ms: now, for all cutoffs (Unix ms).
        without: partitions that could not be read; their event times are not read either.
        deadline: for settling look-ups by reading records, by the reader's clock.
        scan_all: whether to read event times from records for as long as it takes, not until the deadline.
        progress: called with what is being read.
    """
    timed = {
        tp: one
        for tp, one in facts.items()
        if settings[tp.topic].event_time_ms is not None and tp not in without and not settled(one, settings[tp.topic])
    }
    maxima: Mapping[TopicPartition, Answer] = {}
    if timed:
        from retention_cli.observe.event_times import EventTimeReader, with_event_times

        until = None if scan_all else deadline
        events = EventTimeReader(reader, leaders, settings, memory, now_ms, until, progress).read(timed)
        facts.update(with_event_times(timed, events))
        maxima = events.stamps
    found: dict[TopicPartition, _Awaited] = {}

    def asked() -> Iterator[tuple[TopicPartition, Wanted]]:
        of_topic: dict[str, Lookups] = {}
        for tp, facts_of in facts.items():
            if (needs := of_topic.get(tp.topic)) is None:
                needs = of_topic[tp.topic] = Lookups(facts_of.topic, settings[tp.topic], now_ms)
            wanted = needs.of(facts_of)
            if count := len(wanted.times) + len(wanted.data):
                if not found:
                    progress("time look-ups")
                found[tp] = _Awaited(count, {}, {})
                yield tp, wanted

    limits = {name: one.scan_records for name, one in settings.items()}
    until = soon(reader, None if scan_all else max(deadline, reader.clock.monotonic() + 1), len(facts))
    stamped: list[TopicPartition] = []
    for one in lookups.look_up(reader, facts, asked(), leaders, limits, until, lambda tp: memory[tp].data_at, maxima):
        tp = one.tp
        count, plain, data = found[tp]
        (data if one.data else plain)[one.time_ms] = one.answer
        if one.record is not None:
            memory[tp].add_data(one.record)
        if len(plain) + len(data) < count:
            continue
        facts[tp] = facts[tp]._replace(lookups=plain, data_lookups=data)
        if guarded_by_stamps(facts[tp], settings[tp.topic]):
            stamped.append(tp)
    if lost is not None:  # whether the topic was ever CreateTime is not known either (G3)
        facts.update({tp: facts[tp]._replace(stamped_below=lost) for tp in stamped})
        return
    for tp, below in stamped_below(reader, facts, stamped, memory, leaders, until).items():
        facts[tp] = facts[tp]._replace(stamped_below=below)
