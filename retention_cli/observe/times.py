"""Read the times that decisions need: event times first (R2), then look-ups, then who stamped records (G3).

A look-up, ``offset_at(T)``, is a broker's answer, whose −1 is never trusted by itself (docs/rules.md, Look-ups).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, Leaders, NotFound, Spec
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import LOG_APPEND_TIME, Message, Range, Reached, Search
from retention_cli.brokers.wire.work import Pending
from retention_cli.core.grouping import in_batches
from retention_cli.core.model import ANCIENT_MS, Code, LookUp, Maybe, PartitionFacts, Reason, TopicPartition, Unknown
from retention_cli.decide.topic_rules import Wanted, by_topic
from retention_cli.memory.partition import Front
from retention_cli.observe.lineage import Reading, of_another_log, soon
from retention_cli.policy.settings import DEFAULT_SCAN_RECORDS

Facts = Mapping[TopicPartition, PartitionFacts]
KnownData = Callable[[TopicPartition], Container[int]]
"""Returns the offsets of a partition that are known to have a data record."""

_Call = Sequence[Mapping[TopicPartition, Spec]]
"""Look-ups that are asked about at the same time."""

_PARTITIONS_A_CALL: Final = 2_500
_CALLS_UNDER_WAY: Final = 6
"""Brokers work on the next calls while one call's answers are handled, and while answers and requests are on their way:
with a round trip of 50 ms, a plan takes a twentieth less with six than with three."""


_NO_ANSWER: Final = NotFound()
_ENDS_UNKNOWN: Final = Unknown.because("lookup", "the log's ends are unknown")


class Answered(NamedTuple):
    """A partition, the time looked up (Unix ms), and the answer. ``data``: it counts data records alone (R2, R3)."""

    tp: TopicPartition
    time_ms: int
    answer: Maybe[LookUp]
    data: bool = False


def look_up(
    reader: ClusterReader,
    facts: Facts,
    requests: Iterable[tuple[TopicPartition, Wanted]],
    leaders: Leaders,
    scan_records: Mapping[str, int],
    deadline: float,
    known_data: KnownData = lambda _tp: (),
    maxima: Mapping[TopicPartition, Answer] = MappingProxyType({}),
) -> Iterator[Answered]:
    """Yield, for each partition and time (Unix ms), the offset before which every record is older.

    H must have been read before. If the broker says that no record is as young, MAX_TIMESTAMP, asked after H
    (``maxima`` has the answers that are known already), must confirm it; otherwise records are read, at most
    ``scan_records`` of the topic. They are also read where a part of the topic is not on brokers' disks, unless the
    answer is S: a broker passes over remote segments. For 2000-01-01 the first record at or after S is read, unless the
    answer is S: its own timestamp decides. If the answer must be a data record, and may be a transaction marker,
    records are read from there on. Times before 1970 are not asked about: to a broker −1 is the end of the log, and no
    record is as old.

    ``requests`` is read on while brokers work on the first of it; it names a partition once.
    """
    wanted: dict[TopicPartition, Wanted] = {}
    ancient: list[Answered] = []

    def calls_to_make() -> Iterator[_Call]:
        for part in map(dict, in_batches(requests, _PARTITIONS_A_CALL)):
            wanted.update(part)
            for tp, times in part.items():
                for time_ms in [one for one in _in_order(times) if one < 0]:  # no broker is asked about it
                    start = facts[tp].log_start
                    ancient.extend(
                        _both(times, Answered(tp, time_ms, start if isinstance(start, Unknown) else LookUp(start)))
                    )
            yield _rounds(part)

    open_ones = _Open(facts, wanted, known_data)
    urgent = deque[_Call]()
    for call in _answered(reader, leaders, calls_to_make(), urgent):
        before = set(open_ones.silent)
        yield from open_ones.take(call)
        silent = [one for one in open_ones.silent if one not in before]
        yield from open_ones.take((tp, "max-timestamp", maxima[tp]) for tp in silent if tp in maxima)
        unanswered: dict[TopicPartition, Spec] = {tp: "max-timestamp" for tp in silent if tp not in maxima}
        if unanswered:
            urgent.append([unanswered])
    yield from ancient
    yield from _search(reader, facts, open_ones.marked, leaders, scan_records, deadline)
    for searches, limits in ((open_ones.fronts, None), (open_ones.unsettled, scan_records)):
        for one in _search(reader, facts, searches, leaders, limits, deadline):
            yield from _both(wanted[one.tp], one._replace(data=False))


_Searches = dict[TopicPartition, list[tuple[int, int]]]
"""What must be settled by reading records: times (Unix ms), each with the offset to read from."""


@dataclass(slots=True)
class _Open:
    """What brokers' answers leave open.

    ``silent`` are times for which a broker has no record, until MAX_TIMESTAMP is known; ``fronts`` those that the first
    record decides (G9), ``marked`` those whose answer may be a transaction marker, ``unsettled`` the ambiguous ones.
    """

    facts: Facts
    wanted: Mapping[TopicPartition, Wanted]
    known_data: KnownData
    silent: dict[TopicPartition, list[int]] = field(default_factory=dict)
    fronts: _Searches = field(default_factory=dict)
    marked: _Searches = field(default_factory=dict)
    unsettled: _Searches = field(default_factory=dict)

    def take(self, answers: Iterable[tuple[TopicPartition, Spec, Answer]]) -> Iterator[Answered]:
        """Yield what answers settle, and keep what they leave open."""
        for tp, spec, answer in answers:
            start, times = self.facts[tp].log_start, self.wanted[tp]
            front = spec == ANCIENT_MS and times.front  # G9: the first record's own timestamp decides
            if not isinstance(spec, int):
                yield from self._by_newest(tp, answer)
            elif front and isinstance(answer, (Found, NotFound)) and isinstance(start, int):
                if isinstance(answer, Found) and answer.offset == start:
                    yield from _both(times, Answered(tp, spec, LookUp(start, None, answer.timestamp)))
                else:
                    self.fronts[tp] = [(spec, start)]
            elif isinstance(answer, NotFound):
                self.silent.setdefault(tp, []).append(spec)
            elif not isinstance(answer, Found):
                text = f"the offset at a time could not be looked up: {answer}"
                yield from _both(times, Answered(tp, spec, Unknown.because("lookup", text)))
            elif isinstance(start, int) and not self._is_conclusive(tp, spec, answer, start):
                self.unsettled.setdefault(tp, []).append((spec, start))
            else:
                found = LookUp(answer.offset, None, answer.timestamp)
                if spec in times.times:
                    yield Answered(tp, spec, found)
                if spec in times.data:
                    if answer.offset in self.known_data(tp):
                        yield Answered(tp, spec, found, data=True)
                    else:
                        self.marked.setdefault(tp, []).append((spec, answer.offset))

    def _is_conclusive(self, tp: TopicPartition, time_ms: int, answer: Found, start: int) -> bool:
        """Return whether every record before the answer is older, for certain."""
        on_disks = self.facts[tp].topic.on_disks
        return answer.offset <= start or (on_disks and answer.timestamp is not None and answer.timestamp >= time_ms)

    def _by_newest(self, tp: TopicPartition, newest: Answer) -> Iterator[Answered]:
        """Settle look-ups that returned −1 by MAX_TIMESTAMP; the others must be settled by reading."""
        start, end = self.facts[tp].log_start, self.facts[tp].high_watermark
        newest = newest if self.facts[tp].topic.on_disks else _NO_ANSWER  # which names none of the remote records
        for time_ms in self.silent.pop(tp):
            if isinstance(newest, Found) and newest.timestamp is not None and newest.timestamp < time_ms:
                found: Maybe[LookUp] = end if isinstance(end, Unknown) else LookUp(end)
            elif isinstance(start, Unknown):
                found = _ENDS_UNKNOWN
            else:
                self.unsettled.setdefault(tp, []).append((time_ms, start))
                continue
            yield from _both(self.wanted[tp], Answered(tp, time_ms, found))


def _both(wanted: Wanted, one: Answered) -> Iterator[Answered]:
    """Yield an answer that is the same for data records and for all records, for each of these that was wanted."""
    if one.time_ms in wanted.times:
        yield one
    if one.time_ms in wanted.data:
        yield one._replace(data=True)


def _answered(
    reader: ClusterReader, leaders: Leaders, calls: Iterator[_Call], urgent: deque[_Call]
) -> Iterator[Iterator[tuple[TopicPartition, Spec, Answer]]]:
    """Make calls of a few thousand partitions: while one call's answers are handled, brokers work on the next ones.

    Yield each call's answers, as (partition, what was asked, answer). ``urgent`` calls come before others.
    """
    under_way: deque[tuple[_Call, Pending[list[dict[TopicPartition, Answer]]]]] = deque()
    while True:
        while len(under_way) < _CALLS_UNDER_WAY:
            if (call := urgent.popleft() if urgent else next(calls, None)) is None:
                break
            under_way.append((call, reader.list_offsets_soon(call, leaders)))
        if not under_way:
            return
        call, pending = under_way.popleft()
        yield (
            (tp, specs[tp], answer)
            for specs, answers in zip(call, pending.result(), strict=True)
            for tp, answer in answers.items()
        )


@lru_cache
def _in_order(wanted: Wanted) -> tuple[int, ...]:
    """Return the times: all partitions of a topic mostly need the same."""
    return tuple(sorted(wanted.times | wanted.data))


def _rounds(requests: Mapping[TopicPartition, Wanted]) -> list[dict[TopicPartition, int]]:
    """Split several times per partition into mappings with one each: a request may name a partition only once."""
    rounds: list[dict[TopicPartition, int]] = []
    for tp, wanted in requests.items():
        for number, time_ms in enumerate([one for one in _in_order(wanted) if one >= 0]):
            if number == len(rounds):
                rounds.append({})
            rounds[number][tp] = time_ms
    return rounds


def _search(
    reader: ClusterReader,
    facts: Facts,
    wanted: Mapping[TopicPartition, Sequence[tuple[int, int]]],
    leaders: Leaders,
    scan_records: Mapping[str, int] | None,
    deadline: float,
) -> Iterator[Answered]:
    """Search records for times, each from an offset on: at most ``scan_records`` of the topic, or one (None)."""
    for number in range(max((len(searches) for searches in wanted.values()), default=0)):
        current = {tp: one[number] for tp, one in wanted.items() if number < len(one)}
        searches = {}
        for tp, (time_ms, start) in current.items():
            end, stable = facts[tp].high_watermark, facts[tp].last_stable_offset
            if isinstance(end, Unknown) or isinstance(stable, Unknown):
                yield Answered(tp, time_ms, _ENDS_UNKNOWN, data=True)
            elif stable <= start:  # from there on an open transaction: nothing can be read, and nothing trimmed (G1)
                yield Answered(tp, time_ms, LookUp(start), data=True)
            else:
                searches[tp] = Search(start, end, time_ms, 1 if scan_records is None else scan_records[tp.topic])
        answers = reader.search_records(searches, max(1.0, deadline - reader.clock.monotonic()))
        others = of_another_log(
            reader, {tp: one.epochs for tp, one in answers.items() if isinstance(one, Reached)}, leaders
        )
        for tp, reached in answers.items():
            time_ms, start = current[tp]
            failed = others.get(tp) or (_ended_early(reached, facts[tp]) if isinstance(reached, Reached) else None)
            if isinstance(reached, RequestFailedError) or failed is not None:
                text = f"an ambiguous look-up could not be resolved by reading: {failed or reached}"
                yield Answered(tp, time_ms, Unknown.because("lookup", text), data=True)
            else:
                yield Answered(tp, time_ms, _outcome(reached, start, one_record=scan_records is None), data=True)


def _outcome(reached: Reached, start: int, *, one_record: bool) -> LookUp:
    """Return what a search from ``start`` on found; ``one_record``: it looked for one record only."""
    if one_record and reached.record is None:  # there is no record whose stamp could be old
        return LookUp(start)
    text = (
        f"a look-up was resolved by reading, which stopped at {reached.offset:,}; the next run continues from there "
        f"(lookup.scan.records)"
    )
    note = Reason("lookup", text) if reached.stopped and not one_record else None
    return LookUp(reached.offset, note, reached.timestamp, reached.record)


def _ended_early(reached: Reached, facts: PartitionFacts) -> str | None:
    """Return that a search ended before the log's end, None if it did not: if so, another log answered it (M1)."""
    end, stable = facts.high_watermark, facts.last_stable_offset
    if reached.stopped or reached.record is not None or isinstance(end, Unknown) or isinstance(stable, Unknown):
        return None
    there = min(end, stable)
    return f"the log ended at {reached.offset:,}, before {there:,}" if reached.offset < there else None


def with_lookups(
    reader: ClusterReader,
    facts: Mapping[TopicPartition, PartitionFacts],
    times: Collection[int],
    leaders: Leaders,
    deadline: float,
) -> dict[TopicPartition, PartitionFacts]:
    """Return the facts with look-ups of these times (Unix ms), regardless of rules; H must have been read before.

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
    limits = dict.fromkeys((tp.topic for tp in wanted), DEFAULT_SCAN_RECORDS)
    for one in look_up(reader, facts, wanted.items(), leaders, limits, deadline):
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
    maxima = _add_event_times(reading, facts, without)
    plain: dict[TopicPartition, dict[int, Maybe[LookUp]]] = {}
    data: dict[TopicPartition, dict[int, Maybe[LookUp]]] = {}

    def needed() -> Iterator[tuple[TopicPartition, Wanted]]:
        for one, rules in by_topic(facts.values(), settings, reading.now_ms):
            wanted = rules.wanted(one)
            if wanted.times or wanted.data:
                tp = one.tp
                if not plain:
                    reading.progress("time look-ups")
                plain[tp], data[tp] = {}, {}
                yield tp, wanted

    limits = {name: one.scan_records for name, one in settings.items()}
    last = None if reading.deadline is None else max(reading.deadline, reader.clock.monotonic() + 1)
    until = soon(reader, last, len(facts))
    for one in look_up(reader, facts, needed(), leaders, limits, until, lambda tp: reading.memory[tp].data_at, maxima):
        (data if one.data else plain)[one.tp][one.time_ms] = one.answer
        if isinstance(one.answer, LookUp) and one.answer.record is not None:
            reading.memory[one.tp].add_data(one.answer.record)
    facts.update((tp, facts[tp]._replace(lookups=answers, data_lookups=data[tp])) for tp, answers in plain.items())
    stamped = [
        tp
        for tp in plain
        if settings[tp.topic].min_wallclock_ms is not None and facts[tp].topic.timestamp_type == "LogAppendTime"  # G3
    ]
    below: Mapping[TopicPartition, Maybe[int]] = (
        _stamped_below(replace(reading, deadline=until), facts, stamped)
        if lost is None
        else dict.fromkeys(stamped, lost)  # whether the topic was ever CreateTime is not known either (G3)
    )
    facts.update((tp, facts[tp]._replace(stamped_below=one)) for tp, one in below.items())


def _add_event_times(
    reading: Reading, facts: dict[TopicPartition, PartitionFacts], without: Collection[TopicPartition]
) -> Mapping[TopicPartition, Answer]:
    """Fill in what R2 needs, where it is on; return the answers for the largest timestamps that this took."""
    settings = reading.settings
    on = [one for tp, one in facts.items() if settings[tp.topic].event_time_ms is not None and tp not in without]
    timed = {one.tp: one for one, rules in by_topic(on, settings, reading.now_ms) if not rules.settles(one)}
    if not timed:
        return {}
    from retention_cli.observe.event_times import read_event_times

    events = read_event_times(reading, timed)
    for tp, newest in events.newest.items():
        facts[tp] = facts[tp]._replace(newest=newest, event_prefix=events.prefix.get(tp, facts[tp].event_prefix))
    return events.stamps


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
    fronts: dict[TopicPartition, bool] = {}

    def on_record(tp: TopicPartition, message: Message) -> bool:
        fronts[tp] = message.timestamp()[0] == LOG_APPEND_TIME
        return True

    for tp, error in reading.read_proven(ranges, on_record).items():
        if error is not None:
            found[tp] = Unknown.because(
                Code.G3,
                f"who stamped the record at {ranges[tp].start:,}, its producer or the broker, could not be read: "
                f"{error}",
            )
        elif tp in fronts:
            reading.memory[tp].note(front=Front(ranges[tp].start, fronts[tp]))
            found[tp] = 0 if fronts[tp] else facts[tp].high_watermark
        else:  # there is no record to trim
            found[tp] = 0
    return found
