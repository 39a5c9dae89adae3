"""Times of records: when an answer to a look-up counts, and event times in blocks instead of records (R2)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, NotFound, Spec
from retention_cli.brokers.records import OnRecord, Range, Reached
from retention_cli.brokers.schemas import SchemaRegistry
from retention_cli.brokers.security.settings import RegistrySettings
from retention_cli.core.model import ANCIENT_MS, EventMax, EventPrefix, LookUp, Maybe, TopicPartition
from retention_cli.memory import event_scan
from retention_cli.memory.event_scan import Block, EventScan
from retention_cli.memory.partition import PartitionMemory
from retention_cli.observe.event_times import read_event_times
from retention_cli.observe.lineage import Reading
from retention_cli.observe.record_times import read_time
from retention_cli.observe.times import with_lookups
from retention_cli.policy.settings import EventSource, Settings, event_source
from tests.support import facts
from tests.support.facts import HOUR, NOW, Log, known, topic, why
from tests.support.http_server import Registry, avro_long, framed

HEADER, JSON, STAMP = EventSource("header", "et"), EventSource("json", "/meta/at"), EventSource("timestamp")

Records = list[tuple[int, int | None]]


@st.composite
def partitions(draw: st.DrawFn) -> Records:
    """Records with gaps between their offsets (markers, aborted ones), some without a readable time."""
    times = draw(st.lists(st.none() | st.integers(0, 50), max_size=60))
    offset, found = draw(st.integers(0, 5)), []
    for time_ms in times:
        found.append((offset, time_ms))
        offset += draw(st.integers(1, 3))
    return found


def scanned(
    records: Iterable[tuple[int, int | None]],
    ceiling: int | None = None,
    block_records: int = event_scan.FIRST_BLOCK_RECORDS,
) -> EventScan:
    scan = EventScan("header:et", 0, 0, block_records=block_records)
    for offset, time_ms in records:
        scan.add(offset, time_ms, ceiling)
    return scan


def ends_prefix(time_ms: int | None, cutoff: int, *, skip: bool) -> bool:
    return not skip if time_ms is None else time_ms >= cutoff


def brute(records: Records, log_start: int, cutoff: int, end: int, *, skip: bool) -> int:
    """The longest prefix in which every record is older than the cutoff."""
    ending = (offset for offset, time_ms in records if offset >= log_start and ends_prefix(time_ms, cutoff, skip=skip))
    return next(ending, max(end, log_start))


def newest_ms(scan: EventScan) -> int | None:
    return None if scan.newest is None else scan.newest.time_ms


def found_by(scan: EventScan, records: Records, log_start: int, cutoff: int, *, skip: bool) -> tuple[int, int]:
    """Walk over the blocks as the reader does; return the bound, and how many records were read again."""
    position, read = log_start, 0
    while isinstance(there := scan.prefix(position, cutoff, skip=skip), Block):
        for offset, time_ms in records:
            if there.start <= offset < there.end:
                read += 1
                if ends_prefix(time_ms, cutoff, skip=skip):
                    return offset, read
        position = there.end
    return there, read


@given(partitions(), st.integers(0, 60), st.integers(0, 55), st.booleans(), st.integers(0, 60), st.integers(1, 4))
def test_event_time_prefix_equals_that_of_reading_every_record(
    records: Records, start_at: int, cutoff: int, skip: bool, stop_at: int, block_records: int
) -> None:
    """Also where the scan stopped in between and was saved, and where the log start has moved on."""
    first = records[0][0] if records else 0
    scan = EventScan("header:et", first, first, block_records=block_records)
    for number, (offset, time_ms) in enumerate(records):
        if number == stop_at:
            scan = EventScan.from_bytes(scan.as_bytes(), "header:et", first)
        scan.add(offset, time_ms)
    log_start = records[min(start_at, len(records) - 1)][0] if records else 0
    scan = EventScan.from_bytes(scan.as_bytes(), "header:et", log_start)
    bound, _read = found_by(scan, records, log_start, cutoff, skip=skip)
    assert (bound, newest_ms(scan)) == (
        brute(records, log_start, cutoff, scan.end, skip=skip),
        max((time_ms for _offset, time_ms in records if time_ms is not None), default=None),
    )


def test_blocks_stay_few_and_a_prefix_reads_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_scan, "BLOCKS_AT_MOST", 16)
    records: Records = [(offset, offset) for offset in range(100_000)]
    scan = scanned(records, block_records=10)
    assert len(scan.blocks) <= 16
    bound, read = found_by(scan, records, 0, 70_001, skip=False)
    assert bound == 70_001
    assert read <= 100_000 / 7


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(0, 100))
def test_time_beyond_the_ceiling_ends_a_prefix(times: list[int], ceiling: int) -> None:
    """G4, retention.eventtime.ignore.future."""
    records: Records = list(enumerate(times))
    scan = scanned(records, ceiling)
    assert newest_ms(scan) == max((time_ms for time_ms in times if time_ms <= ceiling), default=None)
    for cutoff in (0, 50, 100):
        assert found_by(scan, records, 0, cutoff, skip=False)[0] == brute(records, 0, cutoff, len(times), skip=False)


def test_another_source_or_broken_memory_restarts_the_scan() -> None:
    scan = scanned([(0, 5)])
    assert EventScan.from_bytes(scan.as_bytes(), "header:et", 0) == scan
    for raw, source in ((scan.as_bytes(), "header:other"), (b"nonsense", "header:et"), (None, "header:et")):
        assert EventScan.from_bytes(raw, source, 7) == EventScan(source, 7, 7)


def test_blocks_of_deleted_records_are_forgotten_but_the_largest_time_stays() -> None:
    later = EventScan.from_bytes(scanned(enumerate([90, 1, 2, 3, 4, 5]), block_records=2).as_bytes(), "header:et", 3)
    assert (
        [block.start for block in later.blocks],
        newest_ms(later),
        [later.prefix(3, cutoff, skip=False) for cutoff in (6, 4)],
    ) == ([2, 4], 90, [6, Block(4, 6)])


def test_log_start_that_moved_back_restarts_the_scan() -> None:
    """M3: what lies before its start was never read, or is another's by now."""
    scan = EventScan("header:et", 5, 5)
    scan.add(5, 90)
    anew = EventScan.from_bytes(scan.as_bytes(), "header:et", 4)
    assert (anew.start, anew.end, anew.blocks, anew.newest, anew.restarts) == (4, 4, [], scan.newest, 1)
    assert (
        EventScan.from_bytes(EventScan.from_bytes(scan.as_bytes(), "header:et", 6).as_bytes(), "header:et", 5).blocks
        == []
    )


def test_largest_time_beyond_a_truncation_is_forgotten_by_a_scan_that_ends_before_it() -> None:
    """M2: it had started over as S moved back (M3), and was not read up to that record again."""
    scan = EventScan.from_bytes(scanned(enumerate([1, 2, 3, 90]), block_records=2).as_bytes(), "header:et", 2)
    memory = PartitionMemory(scan=EventScan.from_bytes(scan.as_bytes(), "header:et", 0).as_bytes(), leader_epoch=1)
    memory.continue_at(2, 0, NOW, cut=4)
    assert newest_ms(EventScan.from_bytes(memory.scan, "header:et", 0)) == 90
    memory.continue_at(3, 0, NOW, cut=3)
    assert EventScan.from_bytes(memory.scan, "header:et", 0).newest is None


@given(partitions(), st.integers(0, 200), st.integers(1, 4))
def test_scan_forgets_what_lies_beyond_a_truncation(records: Records, cut: int, block_records: int) -> None:
    """M2: it is as if it had never been read."""
    scan = scanned(records, block_records=block_records)
    left = scan.cut(cut)
    assert max([left.end, *(block.end for block in left.blocks)]) <= cut
    assert left.newest is None or (left.newest.offset or 0) < cut or cut >= scan.end
    below = [(offset, time_ms) for offset, time_ms in records if offset < left.end]
    for cutoff in (0, 25, 51):
        assert found_by(left, records, 0, cutoff, skip=False)[0] == brute(below, 0, cutoff, left.end, skip=False)


@given(st.lists(st.none() | st.sampled_from([0, 5, ANCIENT_MS - 1, ANCIENT_MS, ANCIENT_MS + 9])), st.integers(0, 60))
def test_first_time_before_2000_is_named(times: list[int | None], log_start: int) -> None:
    """G9: also where the block of it is no longer whole."""
    scan = scanned(enumerate(times), block_records=3)
    log_start = min(log_start, scan.end)
    scan = EventScan.from_bytes(scan.as_bytes(), "header:et", log_start)
    left = [n for n, time_ms in enumerate(times) if n >= log_start and time_ms is not None and time_ms < ANCIENT_MS]
    found, at, again = scan.ancient_before(scan.end), log_start, []
    while isinstance(block := scan.prefix(at, ANCIENT_MS * 2, skip=True, ancient=True), Block):
        again += [n for n in left if block.start <= n < block.end]
        at = block.end
    assert min([*again, *([] if found is None else [found])], default=None) == min(left, default=None)


@pytest.mark.parametrize(
    ("source", "stamp", "headers", "value", "time_ms"),
    [
        (STAMP, 5, None, None, 5),
        (STAMP, -1, None, None, None),
        (HEADER, 5, None, b"x", None),
        (HEADER, 5, [("other", b"1")], b"x", None),
        (HEADER, 5, [("et", b"1357034400000")], None, 1357034400000),
        (HEADER, 5, [("et", b"1"), ("et", b"2")], None, 2),
        (HEADER, 5, [("et", b"2013-01-01T10:00:00Z")], None, 1357034400000),
        (HEADER, 5, [("et", b"2013-01-01T05:00:00-05:00")], None, 1357034400000),
        (HEADER, 5, [("et", b"2013-01-01T10:00:00")], None, None),
        (HEADER, 5, [("et", b"")], None, None),
        (HEADER, 5, [("et", None)], None, None),
        (HEADER, 5, [("et", b"-5")], None, None),
        (HEADER, 5, [("et", b"1e3")], None, None),
        (HEADER, 5, [("et", b"\xff")], None, None),
        (HEADER, 5, [("et", b"9" * 30)], None, None),
        (HEADER, 5, [("et", "٣".encode())], None, None),
        (JSON, 5, None, None, None),
        (JSON, 5, None, b"", None),
        (JSON, 5, None, b"{", None),
        (JSON, 5, None, b"[1]", None),
        (JSON, 5, None, json.dumps({"meta": {"at": 7}}).encode(), 7),
        (JSON, 5, None, json.dumps({"meta": {"at": "7"}}).encode(), 7),
        (JSON, 5, None, json.dumps({"meta": {"at": "1970-01-01T00:00:01Z"}}).encode(), 1000),
        (JSON, 5, None, json.dumps({"meta": {"at": 7.0}}).encode(), 7),
        (JSON, 5, None, json.dumps({"meta": {"at": 7.5}}).encode(), None),
        (JSON, 5, None, json.dumps({"meta": {"at": True}}).encode(), None),
        (JSON, 5, None, json.dumps({"meta": {"at": None}}).encode(), None),
        (JSON, 5, None, b'{"meta": {"at": NaN}}', None),
        (JSON, 5, None, b'{"meta": {"at": Infinity}}', None),
        (JSON, 5, None, b'{"meta": {"at": -1}}', None),
        (JSON, 5, None, b"[" * 100_000, None),
        (HEADER, 5, [("et", b"9" * 5_000)], None, None),
        (JSON, 5, None, b'{"meta": {"at": ' + b"9" * 5_000 + b"}}", None),
        (JSON, 5, None, b'{"meta": {"at": "' + b"9" * 5_000 + b'"}}', None),
        (JSON, 5, None, b"\0\0\0\0\7" + json.dumps({"meta": {"at": 7}}).encode(), 7),  # JSON Schema's frame
        (JSON, 5, None, b"\0\1\0\0\7" + json.dumps({"meta": {"at": 7}}).encode(), 7),
        (JSON, 5, None, json.dumps({"meta": {"at": 7}}).encode("utf-16-be"), 7),
        (JSON, 5, None, b"\1\0\0\0\7" + json.dumps({"meta": {"at": 7}}).encode(), None),
        (JSON, 5, None, b"\0\0\0\0\7", None),
        (EventSource("json", ""), 5, None, b"12", 12),
        (EventSource("json", "/a~1b/0/c~0d"), 5, None, b'{"a/b": [{"c~d": 3}]}', 3),
    ],
)
def test_event_time_is_read_from_its_source_or_absent(
    source: EventSource, stamp: int, headers: object, value: bytes | None, time_ms: int | None
) -> None:
    assert read_time(source, stamp, headers, value, None) == time_ms


# -- r2: what a scan remembers, and records that give other event times when they are read again --


TP = TopicPartition("orders", 0)
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def message(at: int, raw: bytes | None) -> Any:
    """A record as the client gives it, without a timestamp."""
    return SimpleNamespace(timestamp=lambda: (0, -1), offset=lambda: at, leader_epoch=lambda: None, value=lambda: raw)


class Partition:
    """A partition of Avro records, with what kretain remembers of it."""

    def __init__(self, registry: Registry, values: list[bytes | None], source: str) -> None:
        self.registry, self.records = registry, dict(enumerate(values))
        self.settings = Settings(event_time_ms=24 * HOUR, event_source=event_source(source), skip_unreadable=True)
        self.memory = PartitionMemory()

    def read(self, start: int = 0) -> tuple[Maybe[EventMax | None], Maybe[EventPrefix]]:
        reader: Any = SimpleNamespace(
            schemas=SchemaRegistry(RegistrySettings(self.registry.url), 5),
            read_ranges=self._read_ranges,
            timeout_s=1,
            clock=SimpleNamespace(monotonic=lambda: 0.0),
        )
        reading = Reading(reader, {}, {"orders": self.settings}, {TP: self.memory}, NOW, None, lambda *_: None)
        one = Log(start, [0] * (max(self.records) + 1 - start)).facts(
            self.settings, facts.topic(timestamp_type="LogAppendTime"), {}
        )
        found = read_event_times(reading, {TP: one})
        return found.newest[TP], found.prefix[TP]

    def _read_ranges(
        self, ranges: Mapping[TopicPartition, Range], _deadline: object, on_record: OnRecord, **_: object
    ) -> dict[TopicPartition, RequestFailedError | None]:
        ended: dict[TopicPartition, RequestFailedError | None] = dict.fromkeys(ranges)
        for tp, part in ranges.items():
            try:
                for at in (at for at in range(part.start, part.end) if at in self.records):
                    if on_record(tp, message(at, self.records[at])):
                        break
            except RequestFailedError as error:
                ended[tp] = error
        return ended


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as one:
        yield one


def aged(*hours: int) -> list[bytes | None]:
    return [framed(7, avro_long(NOW - one * HOUR)) for one in hours]


def order(*hours: int) -> list[bytes | None]:
    """Return records of two times, the second so old: both are longs, so that they decode in any order."""
    return [framed(7, avro_long(NOW - (one + 100) * HOUR) + avro_long(NOW - one * HOUR)) for one in hours]


def of_longs(*names: str) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": one, "type": MILLIS} for one in names]}


@pytest.mark.parametrize(("schema", "kind"), [("{}", "JSON"), ("boolean", "AVRO"), ("string", "AVRO")])
@pytest.mark.parametrize("start", [0, 1])
def test_records_that_had_event_times_and_have_none_now_hold(
    registry: Registry, schema: str, kind: str, start: int
) -> None:
    """A registry that was replaced under its URL: young records would count as records without an event time."""
    registry.add(7, MILLIS)
    one = Partition(registry, [*aged(72, 60), None, *aged(1, 0)], "avro:")
    newest, prefix = one.read()
    assert known(prefix).offset == 3
    registry.add(7, schema if kind == "JSON" else json.dumps(schema), kind)
    one.records |= dict(enumerate(aged(0, 0), len(one.records)))
    again, prefix = one.read(start)
    assert again == newest
    assert re.search(r"the record at offset \d has none now; does the registry return other", why(prefix))


@pytest.mark.parametrize("start", [0, 1, 4])
def test_records_that_are_all_older_than_they_were_hold(registry: Registry, start: int) -> None:
    """Another field stands where the event time stood."""
    registry.add(7, of_longs("written", "at"))
    one = Partition(registry, [None, *order(72, 60), None, *order(1, 0)], "avro:/at")
    assert known(one.read()[1]).offset == 4
    registry.add(7, of_longs("at", "written"))
    assert "those before offset 6 are all older now; does the registry" in why(one.read(start)[1])


def test_record_that_is_gone_ends_no_prefix_of_what_cannot_change(registry: Registry) -> None:
    """Compaction takes the young record of a block; JSON says what it always said."""
    values: list[bytes | None] = [str(NOW - one * HOUR).encode() for one in (72, 1)]
    one = Partition(registry, [*values, None], "json:")
    assert known(one.read()[1]).offset == 1
    del one.records[1]
    assert known(one.read()[1]).offset == 3


# -- when a broker's answer to a look-up is taken, and when records are read instead (docs/rules.md, Look-ups) --


T = 1_700_000_000_000


class Leader:
    """A cluster with one partition: what its leader answers to a time, and to MAX_TIMESTAMP."""

    clock = SimpleNamespace(monotonic=lambda: 0.0)

    def __init__(self, at_time: Answer, newest: Answer) -> None:
        self.answers: dict[Spec, Answer] = {T: at_time, "max-timestamp": newest}

    def list_offsets_soon(self, wanted: Sequence[Mapping[TopicPartition, Spec]], _leaders: object) -> Any:
        found = [{tp: self.answers[spec] for tp, spec in one.items()} for one in wanted]
        return SimpleNamespace(result=lambda: found)

    def search_records(self, searches: Mapping[TopicPartition, Any], _timeout_s: float) -> dict[TopicPartition, Any]:
        assert searches[TP].start == 10, "all from S on are looked at"
        return {TP: Reached(14, stopped=False, timestamp=T, record=14)}


@pytest.mark.parametrize("about", [{"tiered": True}, {"diskless": True}, {}])
@pytest.mark.parametrize(
    ("at_time", "newest", "conclusive"),
    [
        (Found(10, T), NotFound(), True),
        (Found(20, T + 1), NotFound(), None),
        (NotFound(), Found(15, T - 1), None),
        (Found(20, T - 1), NotFound(), False),
        (Found(20), NotFound(), False),
        (NotFound(), NotFound(), False),
    ],
)
def test_answer_counts_if_every_record_before_it_is_older_for_certain(
    at_time: Answer, newest: Answer, conclusive: bool | None, about: dict[str, Any]
) -> None:
    """A broker passes over remote segments, and MAX_TIMESTAMP knows only those on its disks (KIP-405)."""
    facts = Log(10, [T] * 20).facts(Settings())._replace(topic=replace(topic(), **about))
    leader: Any = Leader(at_time, newest)
    found = with_lookups(leader, {TP: facts}, [T], {}, 10.0)[TP].lookups[T]
    assert isinstance(found, LookUp)
    as_answered = at_time.offset if isinstance(at_time, Found) else 30
    assert found.offset == (as_answered if (not about if conclusive is None else conclusive) else 14)
