"""``offset_at(T)``: a broker's look-up, whose −1 is never trusted by itself (docs/rules.md, Look-ups)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, Leaders, NotFound, Spec
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Reached, Search
from retention_cli.brokers.wire.connections import Pending
from retention_cli.core.model import ANCIENT_MS, LookUp, Maybe, PartitionFacts, Reason, TopicPartition, Unknown
from retention_cli.decide.decision import Wanted
from retention_cli.observe.proven_reads import of_another_log

Facts = Mapping[TopicPartition, PartitionFacts]
KnownData = Callable[[TopicPartition], Container[int]]
"""Returns the offsets of a partition that are known to have a data record."""

V = TypeVar("V")
S = TypeVar("S", bound=Spec)

_PARTITIONS_A_CALL: Final = 5_000
"""Brokers work on the next call while one call's answers are handled."""


class Answered(NamedTuple):
    """A partition, the time looked up (Unix ms), and the answer. ``data``: it counts data records alone (R2, R3)."""

    tp: TopicPartition
    time_ms: int
    answer: Maybe[LookUp]
    data: bool = False
    record: int | None = None


def look_up(
    reader: ClusterReader,
    facts: Facts,
    wanted: Mapping[TopicPartition, Wanted],
    leaders: Leaders,
    scan_records: Mapping[str, int],
    deadline: float,
    known_data: KnownData = lambda _tp: (),
    maxima: Mapping[TopicPartition, Answer] = MappingProxyType({}),
) -> Iterator[Answered]:
    """Yield, for each partition and time (Unix ms), the offset before which every record is older.

    H must have been read before. If the broker says that no record is as young, MAX_TIMESTAMP, asked after H
    (``maxima`` has the answers that are known already), must confirm it; otherwise records are read, at most
    ``scan_records`` of the topic. For 2000-01-01 the first record at or after S is read, unless the answer is S: its
    own timestamp decides. If the answer must be a data record, and may be a transaction marker, records are read from
    there on. Times before 1970 are not asked about: to a broker −1 is the end of the log, and no record is as old.
    """
    for tp, times in wanted.items():
        start = facts[tp].log_start
        for time_ms in (one for one in times.times | times.data if one < 0):
            yield from _both(times, Answered(tp, time_ms, start if isinstance(start, Unknown) else LookUp(start)))
    times_of = {tp: [t for t in one.times | one.data if t >= 0] for tp, one in wanted.items()}
    silent: dict[TopicPartition, list[int]] = {}
    fronts: dict[TopicPartition, list[tuple[int, int]]] = {}
    marked: dict[TopicPartition, list[tuple[int, int]]] = {}
    for asked, answers in _ahead(reader, (_rounds(part) for part in _parts(times_of)), leaders):
        for tp, answer in answers.items():
            time_ms, times = asked[tp], wanted[tp]
            start = facts[tp].log_start
            if _is_front(time_ms, times) and isinstance(answer, (Found, NotFound)) and isinstance(start, int):
                if isinstance(answer, Found) and answer.offset == start:
                    yield from _both(times, Answered(tp, time_ms, LookUp(start, None, answer.timestamp)))
                else:
                    fronts[tp] = [(time_ms, start)]
            elif isinstance(answer, Found):
                found = LookUp(answer.offset, None, answer.timestamp)
                if time_ms in times.times:
                    yield Answered(tp, time_ms, found)
                if time_ms in times.data:
                    if answer.offset in known_data(tp):
                        yield Answered(tp, time_ms, found, data=True)
                    else:
                        marked.setdefault(tp, []).append((time_ms, answer.offset))
            elif isinstance(answer, NotFound):
                silent.setdefault(tp, []).append(time_ms)
            else:
                text = f"the offset at a time could not be looked up: {answer}"
                yield from _both(wanted[tp], Answered(tp, time_ms, Unknown.because("lookup", text)))
    for one in _search(reader, facts, fronts, leaders, None, deadline):
        yield from _both(wanted[one.tp], one._replace(data=False))
    if marked:
        yield from _search(reader, facts, marked, leaders, scan_records, deadline)
    if silent:
        for one in _settle(reader, facts, silent, leaders, scan_records, deadline, maxima):
            yield from _both(wanted[one.tp], one)


def _is_front(time_ms: int, wanted: Wanted) -> bool:
    """Return whether the look-up asks if the first record is older (G9): that record's own timestamp decides."""
    return time_ms == ANCIENT_MS and wanted.front


def _both(wanted: Wanted, one: Answered) -> Iterator[Answered]:
    """Yield an answer that is the same for data records and for all records, for each of these that was wanted."""
    if one.time_ms in wanted.times:
        yield one
    if one.time_ms in wanted.data:
        yield one._replace(data=True)


def _ahead(
    reader: ClusterReader, calls: Iterable[Sequence[Mapping[TopicPartition, S]]], leaders: Leaders
) -> Iterator[tuple[Mapping[TopicPartition, S], dict[TopicPartition, Answer]]]:
    """Yield what was asked, with the answers, while the brokers work on the next call."""
    before: Sequence[Mapping[TopicPartition, S]] = ()
    under_way: Pending[list[dict[TopicPartition, Answer]]] | None = None
    for asked in calls:
        answers = [] if under_way is None else under_way.result()
        under_way = reader.list_offsets_soon(asked, leaders)
        yield from zip(before, answers, strict=True)
        before = asked
    if under_way is not None:
        yield from zip(before, under_way.result(), strict=True)


def _parts(wanted: Mapping[TopicPartition, V]) -> Iterator[dict[TopicPartition, V]]:
    waiting = iter(wanted.items())
    while part := dict(islice(waiting, _PARTITIONS_A_CALL)):
        yield part


def _rounds(wanted: Mapping[TopicPartition, Collection[int]]) -> list[dict[TopicPartition, int]]:
    """Split several times per partition into mappings with one each: a request may name a partition only once."""
    rounds: list[dict[TopicPartition, int]] = []
    for tp, times in wanted.items():
        for number, time_ms in enumerate(sorted(times)):
            if number == len(rounds):
                rounds.append({})
            rounds[number][tp] = time_ms
    return rounds


def _settle(
    reader: ClusterReader,
    facts: Facts,
    silent: Mapping[TopicPartition, Collection[int]],
    leaders: Leaders,
    scan_records: Mapping[str, int],
    deadline: float,
    maxima: Mapping[TopicPartition, Answer],
) -> Iterator[Answered]:
    """Settle look-ups that returned −1: by MAX_TIMESTAMP if that is enough, otherwise by reading records."""
    unsettled: dict[TopicPartition, list[tuple[int, int]]] = {}
    asked: dict[TopicPartition, Spec] = {tp: "max-timestamp" for tp in silent if tp not in maxima}
    known = {tp: maxima[tp] for tp in silent if tp in maxima}
    answered = (answers for _, answers in _ahead(reader, ([part] for part in _parts(asked)), leaders))
    for newest in chain([known], answered):
        for tp, latest in newest.items():
            start, end = facts[tp].log_start, facts[tp].high_watermark
            for time_ms in silent[tp]:
                if isinstance(latest, Found) and latest.timestamp is not None and latest.timestamp < time_ms:
                    yield Answered(tp, time_ms, end if isinstance(end, Unknown) else LookUp(end))
                elif isinstance(start, Unknown):
                    yield Answered(tp, time_ms, Unknown.because("lookup", "the log's ends are unknown"))
                else:
                    unsettled.setdefault(tp, []).append((time_ms, start))
    for one in _search(reader, facts, unsettled, leaders, scan_records, deadline):
        yield one._replace(data=False)


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
        asked = {tp: one[number] for tp, one in wanted.items() if number < len(one)}
        searches = {}
        for tp, (time_ms, start) in asked.items():
            end, stable = facts[tp].high_watermark, facts[tp].last_stable_offset
            if isinstance(end, Unknown) or isinstance(stable, Unknown):
                yield Answered(tp, time_ms, Unknown.because("lookup", "the log's ends are unknown"), data=True)
            elif stable <= start:  # from there on an open transaction: nothing can be read, and nothing trimmed (G1)
                yield Answered(tp, time_ms, LookUp(start), data=True)
            else:
                searches[tp] = Search(start, end, time_ms, 1 if scan_records is None else scan_records[tp.topic])
        answers = reader.search_records(searches, max(1.0, deadline - reader.clock.monotonic()))
        read = {tp: one.epochs for tp, one in answers.items() if isinstance(one, Reached)}
        for tp, why in of_another_log(reader, read, leaders).items():
            answers[tp] = RequestFailedError(why, retriable=True)
        for tp, one in answers.items():
            if isinstance(one, Reached) and (there := _ended_early(one, facts[tp])) is not None:
                answers[tp] = RequestFailedError(f"the log ended at {one.offset:,}, before {there:,}", retriable=True)
        for tp, reached in answers.items():
            time_ms = asked[tp][0]
            if isinstance(reached, RequestFailedError):
                text = f"an ambiguous look-up could not be settled by reading: {reached}"
                yield Answered(tp, time_ms, Unknown.because("lookup", text), data=True)
            else:
                note = _stopped(reached.offset) if reached.stopped and scan_records is not None else None
                found = LookUp(reached.offset, note, reached.timestamp, reached.record)
                if scan_records is None and reached.record is None:  # there is no record whose stamp could be old
                    found = LookUp(asked[tp][1])
                yield Answered(tp, time_ms, found, data=True, record=reached.record)


def _ended_early(reached: Reached, facts: PartitionFacts) -> int | None:
    """Return the offset that a search should have reached, None if it did: if not, another log answered it (M1)."""
    end, stable = facts.high_watermark, facts.last_stable_offset
    if reached.stopped or reached.record is not None or isinstance(end, Unknown) or isinstance(stable, Unknown):
        return None
    there = min(end, stable)
    return there if reached.offset < there else None


def _stopped(offset: int) -> Reason:
    return Reason(
        "lookup",
        f"a look-up was settled by reading, which stopped at {offset:,}; the next run goes on from there "
        f"(lookup.scan.records)",
    )
