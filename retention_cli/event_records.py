"""Event times read out of records: what is new, and where R2's prefix ends (RULES.md R2, G4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import PARTITIONS_AT_ONCE, Range
from retention_cli.event_scan import EventScan, read_time
from retention_cli.memory import PartitionMemory
from retention_cli.model import EventMax, LookUp, Maybe, PartitionFacts, Reason, TopicPartition, Unknown
from retention_cli.policy.settings import EventSource, Settings
from retention_cli.progress import Progress
from retention_cli.triggers.event_time import TIMESTAMP
from retention_cli.units import format_duration

_CREATE_TIME: Final = 1
"""confluent-kafka's TIMESTAMP_CREATE_TIME."""


@dataclass(slots=True)
class EventTimes:
    """What was found: maxEventTime, and for scanned topics the bound of R2.

    ``stamps`` are the brokers' answers to MAX_TIMESTAMP, which look-ups may need too.
    """

    newest: dict[TopicPartition, Maybe[EventMax | None]] = field(default_factory=dict)
    prefix: dict[TopicPartition, Maybe[LookUp]] = field(default_factory=dict)
    stamps: dict[TopicPartition, Answer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordScanner:
    """Reads the event times of records, each record once: how far it came is remembered.

    Args:
        reader: the cluster.
        settings: by topic.
        memory: what is remembered of each partition, and is added to.
        now_ms: the clock of G4.
        deadline: until when records may be read (of the reader's clock); None: until all of them are.
        progress: is told how many records are read.
    """

    reader: ClusterReader
    settings: Mapping[str, Settings]
    memory: Mapping[TopicPartition, PartitionMemory]
    now_ms: int
    deadline: float | None
    progress: Progress

    def scan(
        self,
        facts: Mapping[TopicPartition, PartitionFacts],
        sources: Mapping[TopicPartition, EventSource],
        found: EventTimes,
    ) -> None:
        """Read what is new of each partition, then find where R2's prefix ends."""
        scans: dict[TopicPartition, EventScan] = {}
        ends: dict[TopicPartition, int] = {}
        for tp, one in facts.items():
            stable = one.last_stable_offset
            if isinstance(stable, Unknown) or isinstance(one.log_start, Unknown):
                found.newest[tp] = stable if isinstance(stable, Unknown) else Unknown.because("R2", "no log start")
                continue
            said = self._said_source(tp, sources[tp])
            scans[tp] = EventScan.from_bytes(self.memory[tp].scan, said, one.log_start)
            if scans[tp].end > max(stable, one.log_start):  # the log was cut: what was read of it may be gone
                scans[tp] = EventScan(said, one.log_start, restarts=scans[tp].restarts + 1)
            ends[tp] = stable
        if not scans:
            return
        stopped = self._read_new(scans, ends, sources)
        for tp, scan in scans.items():
            newest = scan.newest
            if (error := stopped.get(tp)) is not None and newest is not None:
                newest = newest._replace(exact=False)
            found.newest[tp] = newest
            if error is not None and newest is None:
                found.newest[tp] = Unknown.because("R2", f"its event times could not be read: {error}")
        prefixes = {tp: scan for tp, scan in scans.items() if sources[tp] != TIMESTAMP}
        self._find_prefixes(prefixes, facts, sources, stopped, found)

    def _said_source(self, tp: TopicPartition, source: EventSource) -> str:
        """Return the name by which a scan is remembered: one that took times of the future in is another (G4)."""
        settings = self.settings[tp.topic]
        if not settings.ignore_future:
            return str(source)
        return f"{source}, at most {format_duration(settings.max_ahead_ms)} ahead"

    def _read_new(
        self,
        scans: Mapping[TopicPartition, EventScan],
        ends: Mapping[TopicPartition, int],
        sources: Mapping[TopicPartition, EventSource],
    ) -> dict[TopicPartition, RequestFailedError]:
        ranges = {tp: Range(scan.end, ends[tp]) for tp, scan in scans.items() if scan.end < ends[tp]}
        total = sum(one.end - one.start for one in ranges.values())
        left = sum(1 for _ in ranges)
        read = 0
        ceilings = {
            tp: self.now_ms + self.settings[tp.topic].max_ahead_ms if self.settings[tp.topic].ignore_future else None
            for tp in ranges
        }
        adders = {tp: (scans[tp].add, sources[tp], ceilings[tp]) for tp in ranges}

        def on_record(tp: TopicPartition, message: Any) -> None:
            nonlocal read
            add, source, ceiling = adders[tp]
            kind = source.kind
            add(
                message.offset(),
                read_time(
                    source,
                    stamp_of(message, self.settings[tp.topic]) if kind == "timestamp" else 0,
                    message.headers() if kind == "header" else None,
                    message.value() if kind == "json" else None,
                ),
                ceiling,
            )
            read += 1
            if not read & 4095:
                self.progress("event times in records", read, total)

        if left:
            self.progress("event times in records", 0, total)
        stopped: dict[TopicPartition, RequestFailedError] = {}
        try:
            for tp, error in self.reader.read_ranges(ranges, self.deadline, on_record, scan=True).items():
                if error is None:
                    scans[tp].reached(ends[tp])
                else:
                    stopped[tp] = error
        finally:  # also after a Ctrl-C: the next run goes on from here
            for tp in ranges:
                self.memory[tp].set_scan(scans[tp].as_bytes())
        return stopped

    def _find_prefixes(
        self,
        scans: Mapping[TopicPartition, EventScan],
        facts: Mapping[TopicPartition, PartitionFacts],
        sources: Mapping[TopicPartition, EventSource],
        stopped: Mapping[TopicPartition, RequestFailedError],
        found: EventTimes,
    ) -> None:
        """Find the longest prefix in which every record is older than maxEventTime − E."""
        searches = {}
        for tp, scan in scans.items():
            newest, keep_ms = scan.newest, self.settings[tp.topic].event_time_ms
            start = facts[tp].log_start
            if newest is None or keep_ms is None or isinstance(start, Unknown):
                found.prefix[tp] = LookUp(0)
                unreadable = next((one.unreadable for one in scan.blocks if one.unreadable is not None), None)
                if unreadable is not None:
                    found.prefix[tp] = LookUp(0, _unreadable(unreadable, sources[tp]))
                continue
            searches[tp] = _PrefixSearch(scan, start, newest.time_ms - keep_ms, self.settings[tp.topic].skip_unreadable)
        while gaps := {tp: gap for tp, one in searches.items() if (gap := one.gap()) is not None}:

            def on_record(tp: TopicPartition, message: Any) -> bool:
                source = sources[tp]
                time_ms = read_time(source, message.timestamp()[1], message.headers(), message.value())
                return searches[tp].take(message.offset(), time_ms)

            for tp, error in self.reader.read_ranges(
                gaps, soon(self.reader, self.deadline, len(gaps)), on_record
            ).items():
                searches[tp].gap_read(error)
        for tp, one in searches.items():
            note = None if one.unreadable is None else _unreadable(one.unreadable, sources[tp])
            if note is None and one.offset >= scans[tp].end and tp in stopped:
                note = Reason("R2", f"event times are read up to {one.offset:,}; the next run goes on from there")
            found.prefix[tp] = one.failed or LookUp(one.offset, note, one.ended_by)


@dataclass(slots=True)
class _PrefixSearch:
    """Walks over a scan's blocks, and through those in which the prefix may end."""

    scan: EventScan
    offset: int
    cutoff_ms: int
    skip: bool
    unreadable: int | None = None
    ended_by: int | None = None
    failed: Unknown | None = None
    done: bool = False
    _gap_end: int = 0

    def gap(self) -> Range | None:
        """Return the offsets that must be read to go on, None where the prefix is found."""
        if self.done:
            return None
        there = self.scan.prefix(self.offset, self.cutoff_ms, skip=self.skip)
        if isinstance(there, int):
            self.offset, self.done = there, True
            return None
        self.offset, self._gap_end = there.start, there.end
        return Range(there.start, there.end)

    def take(self, offset: int, time_ms: int | None) -> bool:
        """Take a record of the gap; True where it ends the prefix."""
        if time_ms is None and not self.skip:
            self.unreadable = self.offset = offset
        elif time_ms is not None and time_ms >= self.cutoff_ms:
            self.offset, self.ended_by = offset, time_ms
        else:
            return False
        self.done = True
        return True

    def gap_read(self, error: RequestFailedError | None) -> None:
        """Go on behind the gap, where it was read and did not end the prefix."""
        if self.done:
            return
        if error is not None:
            self.failed = Unknown.because("R2", f"its event times could not be read again: {error}")
            self.done = True
        self.offset = self._gap_end


def _unreadable(offset: int, source: EventSource) -> Reason:
    return Reason(
        "R2",
        f"the record at offset {offset:,} has no event time that can be read ({source}): nothing from there on goes "
        f"by it; where such records may be passed over, set on.unreadable: skip",
    )


def stamp_of(message: Any, settings: Settings) -> int:
    """Return a record's timestamp in Unix ms, −1 where a broker has overwritten it: the topic was LogAppendTime once.

    Where the policy says that event times are the timestamps, they are taken as they are.
    """
    kind, stamp = message.timestamp()
    return int(stamp) if kind == _CREATE_TIME or settings.event_source is not None else -1


def soon(reader: ClusterReader, deadline: float | None, partitions: int) -> float:
    """Return until when a few records of each partition may be read, where there is no deadline.

    A request's time-out for every so many partitions that are read together.
    """
    if deadline is not None:
        return deadline
    return reader.clock.monotonic() + reader.timeout_s * (1 + partitions // PARTITIONS_AT_ONCE)
