"""Find each partition's maxEventTime, and where R2's prefix ends (R2, G4): from data records alone.

The sources: brokers' timestamps, records where these are no event times, and what is remembered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from retention_cli.brokers.errors import RequestFailedError, SchemaError
from retention_cli.brokers.log_offsets import Answer, Found, NotFound
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import (
    CREATE_TIME,
    Message,
    Range,
    UnreadableHeadersError,
    headers_of,
    note_epoch,
)
from retention_cli.core.model import (
    ANCIENT_MS,
    Code,
    EventMax,
    EventPrefix,
    Maybe,
    PartitionFacts,
    Reason,
    TopicPartition,
    Unknown,
)
from retention_cli.core.units import format_duration
from retention_cli.decide.triggers.event_time import TIMESTAMP, source_of
from retention_cli.memory.event_scan import Block, EventScan
from retention_cli.observe.lineage import Reading, of_another_log
from retention_cli.observe.record_times import read_time
from retention_cli.policy.settings import EventSource, Settings

_WINDOWS: Final = (128, 2_048, 32_768)
"""How many offsets before L are read for "the last 100 data records": more if the first ones hold only markers."""


@dataclass(slots=True)
class EventTimes:
    """Each partition's maxEventTime and, for scanned topics, the bound of R2.

    ``stamps`` are the brokers' answers to MAX_TIMESTAMP, which look-ups may need, too.
    """

    newest: dict[TopicPartition, Maybe[EventMax | None]] = field(default_factory=dict)
    prefix: dict[TopicPartition, Maybe[EventPrefix]] = field(default_factory=dict)
    stamps: dict[TopicPartition, Answer] = field(default_factory=dict)


def read_event_times(reading: Reading, facts: Mapping[TopicPartition, PartitionFacts]) -> EventTimes:
    """Return the event times of the partitions that have a source for them (R2); others are left out.

    Their ends must have been read before.
    """
    sources = {tp: source_of(one, reading.settings[tp.topic]) for tp, one in facts.items()}
    stamped = {tp: facts[tp] for tp, source in sources.items() if source == TIMESTAMP}
    scanned = {tp: one for tp, one in sources.items() if isinstance(one, EventSource) and one != TIMESTAMP}
    found = EventTimes()
    if stamped:
        _from_stamps(reading, stamped, found)
        for tp in stamped:  # a time in the future is passed over if the policy says so (G4)
            newest, settings = found.newest[tp], reading.settings[tp.topic]
            latest_ms = reading.now_ms + settings.max_ahead_ms
            if settings.ignore_future and isinstance(newest, EventMax) and newest.time_ms > latest_ms:
                scanned[tp] = TIMESTAMP
    _scan_records(reading, {tp: facts[tp] for tp in scanned}, scanned, found)
    return found


def _from_stamps(reading: Reading, facts: Mapping[TopicPartition, PartitionFacts], found: EventTimes) -> None:
    """Use MAX_TIMESTAMP if it is a data record's, otherwise the largest time known for certain."""
    reading.progress("newest event times")
    answers = reading.reader.list_offsets([dict.fromkeys(facts, "max-timestamp")], reading.leaders)[0]
    # Brokers were seen to answer so right after a commit.
    if silent := [tp for tp, answer in answers.items() if isinstance(answer, NotFound)]:
        answers |= reading.reader.list_offsets([dict.fromkeys(silent, "max-timestamp")], reading.leaders)[0]
    found.stamps.update(answers)
    unsure: dict[TopicPartition, Found] = {}
    for tp, answer in answers.items():
        if isinstance(answer, RequestFailedError) and answer.retriable:
            found.newest[tp] = Unknown.because(Code.R2, f"the largest timestamp could not be read: {answer}")
        elif isinstance(answer, Found) and answer.timestamp is not None:
            known, log = _known(reading, tp, facts[tp]), _stable(facts[tp])
            if known is not None and known.time_ms >= answer.timestamp:
                found.newest[tp] = known  # nothing in the log is younger than what is remembered
            elif log is not None and log.start <= answer.offset < log.end:
                unsure[tp] = answer
    _check(reading, unsure, facts, found)
    _from_windows(reading, [tp for tp in answers if tp not in found.newest], facts, answers, found)


def _known(reading: Reading, tp: TopicPartition, facts: PartitionFacts) -> EventMax | None:
    """Return the largest time that is remembered, if it was read under the settings of now (M0)."""
    under = _read_under(facts, reading.settings[tp.topic])
    return None if under is None else reading.memory[tp].newest_of(under)


def _remember(reading: Reading, tp: TopicPartition, facts: PartitionFacts, newest: EventMax) -> None:
    if (under := _read_under(facts, reading.settings[tp.topic])) is not None:
        reading.memory[tp].add_newest(newest, under)


def _check(
    reading: Reading,
    unsure: Mapping[TopicPartition, Found],
    facts: Mapping[TopicPartition, PartitionFacts],
    found: EventTimes,
) -> None:
    """Fetch the records at the maxima, and use those that are data records."""
    data: set[TopicPartition] = set()

    def on_record(tp: TopicPartition, message: Message) -> bool:
        stamp = _stamp_of(message, reading.settings[tp.topic])
        if message.offset() == unsure[tp].offset and stamp == unsure[tp].timestamp:
            data.add(tp)
        return True

    ranges = {tp: Range(one.offset, one.offset + 1) for tp, one in unsure.items()}
    for tp, error in reading.read_proven(ranges, on_record).items():
        if error is not None:
            found.newest[tp] = Unknown.because(
                Code.R2, f"the record with the largest timestamp could not be read: {error}"
            )
        elif tp in data:
            found.newest[tp] = newest = EventMax(unsure[tp].timestamp or 0, unsure[tp].offset)
            _remember(reading, tp, facts[tp], newest)
            reading.memory[tp].add_data(unsure[tp].offset)


def _from_windows(
    reading: Reading,
    partitions: Collection[TopicPartition],
    facts: Mapping[TopicPartition, PartitionFacts],
    answers: Mapping[TopicPartition, Answer],
    found: EventTimes,
) -> None:
    """Use the largest time of the last data records before L and of what is remembered: "at least"."""
    logs = {tp: log for tp in partitions if (log := _stable(facts[tp])) is not None}
    best, first = _read_windows(reading, logs, found)
    for tp in [one for one in partitions if one not in found.newest]:
        if tp in best:
            _remember(reading, tp, facts[tp], best[tp])
        known = [one for one in (_known(reading, tp, facts[tp]), best.get(tp)) if one is not None]
        # Exact if every record in the log was read.
        if (newest := max(known, key=lambda one: one.rank, default=None)) is not None:
            found.newest[tp] = newest._replace(exact=tp not in logs or logs[tp].end - logs[tp].start <= _WINDOWS[0])
        elif isinstance(answers[tp], RequestFailedError):
            found.newest[tp] = Unknown.because(Code.R2, f"the largest timestamp could not be read: {answers[tp]}")
        else:
            found.newest[tp] = _without_event_time(str(TIMESTAMP), first[tp]) if tp in first else None


def _read_windows(
    reading: Reading, logs: Mapping[TopicPartition, Range], found: EventTimes
) -> tuple[dict[TopicPartition, EventMax], dict[TopicPartition, int]]:
    """Read the last records before L, more of them where none has a time.

    Returns:
        The largest time, and the first offset read, by partition; where reading failed, ``found`` has that.
    """
    best: dict[TopicPartition, EventMax] = {}
    first: dict[TopicPartition, int] = {}

    def on_record(tp: TopicPartition, message: Message) -> None:
        stamp = _stamp_of(message, reading.settings[tp.topic])
        first[tp] = min(message.offset(), first.get(tp, message.offset()))
        if stamp >= 0 and (tp not in best or stamp > best[tp].time_ms):
            best[tp] = EventMax(stamp, message.offset())

    waiting = list(logs)
    for size in _WINDOWS:
        ranges = {tp: Range(max(logs[tp].start, logs[tp].end - size), logs[tp].end) for tp in waiting}
        for tp, error in reading.read_proven(ranges, on_record).items():
            if error is not None:
                best.pop(tp, None)
                found.newest[tp] = Unknown.because(Code.R2, f"the newest records could not be read: {error}")
        settled = best.keys() | found.newest.keys()
        waiting = [tp for tp, part in ranges.items() if tp not in settled and part.start > logs[tp].start]
    return best, first


def _stable(facts: PartitionFacts) -> Range | None:
    start, stable = facts.log_start, facts.last_stable_offset
    return (
        None if isinstance(start, Unknown) or isinstance(stable, Unknown) or start >= stable else Range(start, stable)
    )


def _scan_records(
    reading: Reading,
    facts: Mapping[TopicPartition, PartitionFacts],
    sources: Mapping[TopicPartition, EventSource],
    found: EventTimes,
) -> None:
    scans: dict[TopicPartition, EventScan] = {}
    logs: dict[TopicPartition, Range] = {}
    for tp, one in facts.items():
        start, stable = one.log_start, one.last_stable_offset
        if isinstance(stable, Unknown) or isinstance(start, Unknown):
            found.newest[tp] = stable if isinstance(stable, Unknown) else Unknown.because(Code.R2, "no log start")
            continue
        logs[tp] = Range(start, stable)
        name = _scan_name(reading, tp, sources[tp], one)
        scans[tp] = EventScan.from_bytes(reading.memory[tp].scan, name, start)
        if scans[tp].end > max(stable, start):  # what was read is no longer stable
            scans[tp] = EventScan(name, start, start, restarts=scans[tp].restarts + 1)
    stopped = _read_new(reading, scans, logs, sources)
    found.newest.update((tp, _newest_of(scan, stopped.get(tp), sources[tp])) for tp, scan in scans.items())
    _find_prefixes(
        reading, {tp: scan for tp, scan in scans.items() if sources[tp] != TIMESTAMP}, logs, sources, stopped, found
    )


def _newest_of(scan: EventScan, error: RequestFailedError | None, source: EventSource) -> Maybe[EventMax | None]:
    """Return the largest event time that a scan knows: at least that, if it was stopped by an error."""
    newest = scan.newest
    if error is not None and (newest is None or isinstance(error, SchemaError)):
        return Unknown.because(Code.R2, f"its event times could not be read: {error}")
    if scan.blocks and all(one.newest_ms is None for one in scan.blocks):
        first = scan.blocks[0]
        return _without_event_time(str(source), first.start if first.unreadable is None else first.unreadable)
    return newest if error is None or newest is None else newest._replace(exact=False)


def _scan_name(reading: Reading, tp: TopicPartition, source: EventSource, facts: PartitionFacts) -> str:
    """Return the name under which a scan is remembered (M0). One that ignores future times has its own (G4)."""
    settings = reading.settings[tp.topic]
    match source.kind:
        case "timestamp":
            name = f"{source} ({_read_under(facts, settings)})"
        case "avro" | "protobuf":
            name = f"{source} ({reading.reader.schemas.settings.url})"
        case "json":
            name = f"{source} (framed or not)"
        case "header":
            name = str(source)
    return f"{name}, at most {format_duration(settings.max_ahead_ms)} ahead" if settings.ignore_future else name


def _read_new(
    reading: Reading,
    scans: dict[TopicPartition, EventScan],
    logs: Mapping[TopicPartition, Range],
    sources: Mapping[TopicPartition, EventSource],
) -> dict[TopicPartition, RequestFailedError]:
    ranges = {tp: Range(scan.end, logs[tp].end) for tp, scan in scans.items() if scan.end < logs[tp].end}
    total = sum(one.end - one.start for one in ranges.values())
    read = 0
    adders = {}
    for tp in ranges:
        settings = reading.settings[tp.topic]
        ceiling_ms = reading.now_ms + settings.max_ahead_ms if settings.ignore_future else None
        adders[tp] = (scans[tp].add, sources[tp], settings, ceiling_ms)
    epochs: dict[TopicPartition, dict[int, int]] = {tp: {} for tp in ranges}
    stopped: dict[TopicPartition, RequestFailedError] = {}

    def on_record(tp: TopicPartition, message: Message) -> bool:
        nonlocal read
        add, source, settings, ceiling_ms = adders[tp]
        note_epoch(epochs[tp], message)
        add(message.offset(), _time_of(message, source, settings, reading.reader), ceiling_ms)
        read += 1
        if not read & 4095:
            reading.progress("event times in records", read, total)
        return False

    if ranges:
        reading.progress("event times in records", 0, total)
    try:
        for tp, error in reading.reader.read_ranges(ranges, reading.deadline, on_record, scan=True).items():
            if error is not None:
                stopped[tp] = error
            else:
                scans[tp].end = max(scans[tp].end, logs[tp].end)  # no data record is left: it ends with a marker
    finally:  # also after Ctrl-C: the next run continues from here
        for tp, why in of_another_log(reading.reader, epochs, reading.leaders).items():
            stopped[tp] = RequestFailedError(why, retriable=True)
            # back to the remembered scan
            scans[tp] = EventScan.from_bytes(reading.memory[tp].scan, scans[tp].source, logs[tp].start)
        for tp in ranges:
            reading.memory[tp].note(scan=scans[tp].as_bytes())
    return stopped


def _find_prefixes(
    reading: Reading,
    scans: Mapping[TopicPartition, EventScan],
    logs: Mapping[TopicPartition, Range],
    sources: Mapping[TopicPartition, EventSource],
    stopped: Mapping[TopicPartition, RequestFailedError],
    found: EventTimes,
) -> None:
    searches = {}
    for tp, scan in scans.items():
        settings = reading.settings[tp.topic]
        newest, keep_ms = scan.newest, settings.event_time_ms
        if newest is None or keep_ms is None:
            first = next((one.unreadable for one in scan.blocks if one.unreadable is not None), None)
            found.prefix[tp] = EventPrefix(0, None if first is None else _unreadable(first, sources[tp]))
            continue
        searches[tp] = _PrefixSearch(
            scan,
            logs[tp].start,
            newest.time_ms - keep_ms,
            skip=settings.skip_unreadable,
            no_ancient=not settings.allow_ancient,
            by_schema=sources[tp].kind in ("avro", "protobuf"),
        )
    while gaps := {tp: gap for tp, one in searches.items() if (gap := one.gap()) is not None}:

        def on_record(tp: TopicPartition, message: Message) -> bool:
            return searches[tp].take(
                message.offset(), _time_of(message, sources[tp], reading.settings[tp.topic], reading.reader)
            )

        for tp, error in reading.read_proven(gaps, on_record).items():
            searches[tp].gap_read(error)
    for tp, one in searches.items():
        note = None if one.unreadable is None else _unreadable(one.unreadable, sources[tp])
        if note is None and one.offset >= scans[tp].end and tp in stopped:
            note = Reason(Code.R2, f"event times are read up to {one.offset:,}; the next run continues from there")
        found.prefix[tp] = one.failed or EventPrefix(one.offset, note, one.ended_by, *one.first_ancient())


@dataclass(slots=True)
class _PrefixSearch:
    """Walks over a scan's blocks, and over the records of those in which the prefix may end.

    ``by_schema``: a record may have another time than when it was scanned, or none, if the registry gives another
    schema under its id by now. kretain cannot tell which time is right.
    """

    scan: EventScan
    offset: int
    cutoff_ms: int
    skip: bool
    no_ancient: bool
    by_schema: bool
    unreadable: int | None = None
    ended_by: int | None = None
    failed: Unknown | None = None
    done: bool = False
    _block: Block | None = None
    _ancient: tuple[int, int] | None = None

    def first_ancient(self) -> tuple[int | None, int | None]:
        """Return the offset of the prefix's first record from before 2000, and its time if it was read again."""
        known = self.scan.ancient_before(self.offset)
        if self._ancient is not None and (known is None or self._ancient[0] <= known):
            return self._ancient
        return known, None

    def gap(self) -> Range | None:
        """Return the offsets to read next, None once the prefix is found."""
        if self.done:
            return None
        there = self.scan.prefix(self.offset, self.cutoff_ms, skip=self.skip, ancient=self.no_ancient)
        if isinstance(there, int):
            self.offset, self.done = there, True
            return None
        self.offset = there.start
        self._block = next(one for one in self.scan.blocks if one.end == there.end)
        return Range(there.start, there.end)

    def take(self, offset: int, time_ms: int | None) -> bool:
        """Add a record of the gap; return whether it ends the prefix."""
        if time_ms is None and not self.skip:
            self.unreadable = self.offset = offset
        elif time_ms is None and self._had_a_time(offset):
            self._changed(f"the record at offset {offset:,} has none now")
        elif time_ms is not None and time_ms >= self.cutoff_ms:
            self.offset, self.ended_by = offset, time_ms
        else:
            if time_ms is not None and time_ms < ANCIENT_MS and self._ancient is None:
                self._ancient = (offset, time_ms)
            return False
        self.done = True
        return True

    def gap_read(self, error: RequestFailedError | None) -> None:
        """Continue after the gap, unless the prefix ended in it. An error ends the search."""
        if error is not None:
            self.failed = Unknown.because(Code.R2, f"its event times could not be read again: {error}")
            self.done = True
        elif not self.done and self._block is not None:
            self.offset = self._block.end
            newest_ms = self._block.newest_ms
            if self.by_schema and newest_ms is not None and newest_ms >= self.cutoff_ms:
                self._changed(f"those before offset {self._block.end:,} are all older now")

    def _had_a_time(self, offset: int) -> bool:
        """Return whether a record had an event time for certain when it was scanned."""
        block = self._block
        return self.by_schema and block is not None and (block.unreadable is None or offset < block.unreadable)

    def _changed(self, how: str) -> None:
        text = f"its event times are not those that were read before: {how}; does the registry return other schemas?"
        self.failed, self.done = Unknown.because(Code.R2, text), True


def _unreadable(offset: int, source: EventSource) -> Reason:
    return Reason(
        Code.R2,
        f"the record at offset {offset:,} has no event time that can be read ({source}): kretain trims "
        f"nothing from there on by event time; to skip such records, set on.unreadable: skip",
    )


def _without_event_time(source: str, offset: int) -> Unknown:
    """Return why R2 is unknown where none of the records that were read has an event time: the first one's offset."""
    return Unknown.because(
        Code.R2,
        f"none of its records that were read has an event time at {source}, the first of them at offset {offset:,}: "
        f"correct retention.eventtime.source, or what the producer writes",
    )


def _read_under(facts: PartitionFacts, settings: Settings) -> str | None:
    """Return under which settings timestamps are event times (M0), None if these are unknown: nothing is remembered.

    The topic's timestamp type says whose stamps they are; an explicit source uses a broker's stamps as event times.
    """
    if isinstance(kind := facts.topic.timestamp_type, Unknown):
        return None
    return kind if settings.event_source is None else f"{settings.event_source}, {kind}"


def _time_of(message: Message, source: EventSource, settings: Settings, reader: ClusterReader) -> int | None:
    """Return a record's event time in Unix ms, None if it has no readable one.

    Raises:
        SchemaError: its schema can't be fetched or used; the text has the record's offset.
    """
    schemas = reader.schemas if source.kind in ("avro", "protobuf") else None
    try:
        headers = headers_of(message) if source.kind == "header" else None
        return read_time(source, _stamp_of(message, settings), headers, message.value(), schemas)
    except UnreadableHeadersError:
        return None
    except SchemaError as error:
        raise error.of_record(message.offset()) from None


def _stamp_of(message: Message, settings: Settings) -> int:
    """Return a record's timestamp in Unix ms, −1 if a broker has overwritten it: the topic was LogAppendTime once.

    If the policy says that event times are the timestamps, it is returned unchanged.
    """
    kind, stamp = message.timestamp()
    return int(stamp) if kind == CREATE_TIME or settings.event_source is not None else -1
