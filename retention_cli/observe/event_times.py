"""Find each partition's maxEventTime, from data records alone and from what is remembered (R2, G4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, NotFound
from retention_cli.brokers.records import Message, Range
from retention_cli.core.codes import Code
from retention_cli.core.model import EventMax, PartitionFacts, TopicPartition, Unknown
from retention_cli.decide.triggers.event_time import TIMESTAMP, source_of
from retention_cli.observe.event_records import (
    EventTimes,
    read_under,
    scan_records,
    stamp_of,
    without_event_time,
)
from retention_cli.observe.lineage import Reading
from retention_cli.policy.settings import EventSource

_WINDOWS: Final = (128, 2_048, 32_768)
"""How many offsets before L are read for "the last 100 data records": more if the first ones hold only markers."""


def read_event_times(reading: Reading, facts: Mapping[TopicPartition, PartitionFacts]) -> EventTimes:
    """Return the event times of the partitions that have a source for them (R2); others are left out.

    Their ends must have been read before.
    """
    stamped: dict[TopicPartition, PartitionFacts] = {}
    scanned: dict[TopicPartition, EventSource] = {}
    for tp, one in facts.items():
        source = source_of(one, reading.settings[tp.topic])
        if source == TIMESTAMP:
            stamped[tp] = one
        elif isinstance(source, EventSource):
            scanned[tp] = source
    found = EventTimes()
    if stamped:
        _from_stamps(reading, stamped, found)
        for tp in stamped:  # a time in the future is passed over if the policy says so (G4)
            newest, settings = found.newest[tp], reading.settings[tp.topic]
            latest_ms = reading.now_ms + settings.max_ahead_ms
            if settings.ignore_future and isinstance(newest, EventMax) and newest.time_ms > latest_ms:
                scanned[tp] = TIMESTAMP
    if scanned:
        scan_records(reading, {tp: facts[tp] for tp in scanned}, scanned, found)
    return found


def _from_stamps(reading: Reading, facts: Mapping[TopicPartition, PartitionFacts], found: EventTimes) -> None:
    """Use MAX_TIMESTAMP if it is a data record's, otherwise the largest time known for certain."""
    reading.progress("largest event times")
    answers = reading.reader.list_offsets([dict.fromkeys(facts, "max-timestamp")], reading.leaders)[0]
    silent = [tp for tp, answer in answers.items() if isinstance(answer, NotFound)]
    if silent:  # brokers were seen to answer so right after a commit
        answers |= reading.reader.list_offsets([dict.fromkeys(silent, "max-timestamp")], reading.leaders)[0]
    found.stamps.update(answers)
    unsure: dict[TopicPartition, Found] = {}
    windows: list[TopicPartition] = []
    for tp, answer in answers.items():
        known = _known(reading, tp, facts[tp])
        if isinstance(answer, RequestFailedError) and answer.retriable:
            found.newest[tp] = Unknown.because(Code.R2, f"the largest timestamp could not be read: {answer}")
        elif not isinstance(answer, Found) or answer.timestamp is None:
            windows.append(tp)
        elif known is not None and known.time_ms >= answer.timestamp:
            found.newest[tp] = known  # nothing in the log is younger than what is remembered
        elif (log := _stable(facts[tp])) is not None and log.start <= answer.offset < log.end:
            unsure[tp] = answer
        else:
            windows.append(tp)
    windows += _check(reading, unsure, facts, found)
    _from_windows(reading, windows, facts, answers, found)


def _known(reading: Reading, tp: TopicPartition, facts: PartitionFacts) -> EventMax | None:
    """Return the largest time that is remembered, if it was read under the settings of now (M0)."""
    under = read_under(facts, reading.settings[tp.topic])
    return None if under is None else reading.memory[tp].newest_of(under)


def _remember(reading: Reading, tp: TopicPartition, facts: PartitionFacts, newest: EventMax) -> None:
    if (under := read_under(facts, reading.settings[tp.topic])) is not None:
        reading.memory[tp].add_newest(newest, under)


def _check(
    reading: Reading,
    unsure: Mapping[TopicPartition, Found],
    facts: Mapping[TopicPartition, PartitionFacts],
    found: EventTimes,
) -> list[TopicPartition]:
    """Fetch the records at the maxima; return the partitions where there is no data record."""
    data: set[TopicPartition] = set()

    def on_record(tp: TopicPartition, message: Message) -> bool:
        told = stamp_of(message, reading.settings[tp.topic])
        if message.offset() == unsure[tp].offset and told == unsure[tp].timestamp:
            data.add(tp)
        return True

    ranges = {tp: Range(one.offset, one.offset + 1) for tp, one in unsure.items()}
    for tp, error in reading.read_proven(ranges, on_record).items():
        if error is not None:
            text = f"the record with the largest timestamp could not be read: {error}"
            found.newest[tp] = Unknown.because(Code.R2, text)
        elif tp in data:
            found.newest[tp] = newest = EventMax(unsure[tp].timestamp or 0, unsure[tp].offset)
            _remember(reading, tp, facts[tp], newest)
            reading.memory[tp].add_data(unsure[tp].offset)
    return [tp for tp in unsure if tp not in found.newest]


def _from_windows(
    reading: Reading,
    partitions: Collection[TopicPartition],
    facts: Mapping[TopicPartition, PartitionFacts],
    answers: Mapping[TopicPartition, Answer],
    found: EventTimes,
) -> None:
    """Use the largest time of the last data records before L and of what is remembered: "at least"."""
    best: dict[TopicPartition, EventMax] = {}
    first: dict[TopicPartition, int] = {}

    def on_record(tp: TopicPartition, message: Message) -> None:
        stamp = stamp_of(message, reading.settings[tp.topic])
        first[tp] = min(message.offset(), first.get(tp, message.offset()))
        if stamp >= 0 and (tp not in best or stamp > best[tp].time_ms):
            best[tp] = EventMax(stamp, message.offset())

    logs = {tp: log for tp in partitions if (log := _stable(facts[tp])) is not None}
    waiting = list(logs)
    for size in _WINDOWS:
        ranges = {tp: Range(max(logs[tp].start, logs[tp].end - size), logs[tp].end) for tp in waiting}
        if not ranges:
            break
        for tp, error in reading.read_proven(ranges, on_record).items():
            if error is not None:
                best.pop(tp, None)
                found.newest[tp] = Unknown.because(Code.R2, f"the newest records could not be read: {error}")
        settled = best.keys() | found.newest.keys()
        waiting = [tp for tp, part in ranges.items() if tp not in settled and part.start > logs[tp].start]
    for tp in partitions:
        if tp in found.newest:
            continue
        if tp in best:
            _remember(reading, tp, facts[tp], best[tp])
        known = (_known(reading, tp, facts[tp]), best.get(tp))
        newest = max((one for one in known if one is not None), key=lambda one: one.rank, default=None)
        if newest is None and isinstance(answers[tp], RequestFailedError):
            found.newest[tp] = Unknown.because(Code.R2, f"the largest timestamp could not be read: {answers[tp]}")
        elif newest is None and tp in first:
            found.newest[tp] = without_event_time(str(TIMESTAMP), first[tp])
        else:  # exact if every record in the log was read
            every = tp not in logs or logs[tp].end - logs[tp].start <= _WINDOWS[0]
            found.newest[tp] = None if newest is None else newest._replace(exact=every)


def _stable(facts: PartitionFacts) -> Range | None:
    """Return the stable part of the log, from S to L; None if it is unknown or empty."""
    start, stable = facts.log_start, facts.last_stable_offset
    if isinstance(start, Unknown) or isinstance(stable, Unknown) or start >= stable:
        return None
    return Range(start, stable)
