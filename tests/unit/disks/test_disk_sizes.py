"""How far a replica's size can be trusted, and what of a disk is leaving (R5, R6)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import LogDirState, Replica
from retention_cli.core.model import Maybe, PartitionFacts, Reason, Tail, TopicPartition, Unknown
from retention_cli.decide.decision import decide
from retention_cli.disks.devices import all_disks, disks_of, lowest, stays_bytes
from retention_cli.disks.disk import Disk, Leaving, Room
from retention_cli.disks.estimate import estimated_tail
from retention_cli.disks.inventory.format import InventoryFile, ScannedReplica
from retention_cli.disks.inventory.log_dirs import LogDir
from retention_cli.disks.inventory_view import exact_tails, exact_topic_tails
from retention_cli.disks.pending_deletes import (
    SAYS_FOR_MS,
    Scanned,
    doubted_bytes,
    indexes_gone,
    leaving,
    stays,
    stays_by_scan,
)
from retention_cli.disks.replica_sizes import Sizes, smaller_replicas
from retention_cli.memory.disk import DiskMemory, DiskSample
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.partition import PartitionMemory
from retention_cli.policy.settings import DiskRules, Settings
from tests.support.disks import Row, log_dir, replica, segments_of
from tests.support.facts import HOUR, NOW, Log, why

ORDERS = TopicPartition("orders", 0)
DISK = Disk(1, ("/a",), Room(9_000, 5_000, 1_000), {ORDERS: 1_000})
FAILED = RequestFailedError("not allowed", retriable=False)
MINUTE = 60_000


TOPIC = {"segment.bytes": "100", "file.delete.delay.ms": "60000"}
PLAIN = {"cleanup.policy": "delete", "remote.storage.enable": "false"}


CHECKS = {"log.retention.check.interval.ms": "300000"}


def settings_of(topic: Any = TOPIC, broker: Any = CHECKS) -> Any:
    """Return a reader whose topics and brokers have these settings."""
    return SimpleNamespace(
        broker_values=lambda brokers, _keys: dict.fromkeys(brokers, broker),
        topic_values=lambda topics, _keys: dict.fromkeys(topics, topic),
    )


def looked(
    memory: PartitionMemory,
    minute: int,
    start: int,
    size: int,
    reader: Any = None,
    *,
    future: bool = False,
    path: str = "/a",
) -> Sizes:
    """One look: 100 offsets in all, a replica of this size on broker 1."""
    facts = Log(start, [0] * (100 - start)).facts(Settings())
    copies = [Replica(ORDERS, size, future=False), *([Replica(ORDERS, 1, future=True)] if future else ())]
    sizes = Sizes()
    dirs: dict[int, Any] = {1: [LogDirState(path, 9_000, 4_000, copies)], 2: FAILED}
    sizes.add(reader or settings_of(), dirs, {ORDERS: facts}, {ORDERS: memory}, minute * MINUTE)
    return sizes


def doubt(sizes: Sizes) -> str:
    return why(sizes.doubt(DISK, ORDERS, "R6"))


def test_replica_seen_for_the_first_time_is_doubted_for_two_checks() -> None:
    memory = PartitionMemory()
    first = looked(memory, 0, 50, 1_000)
    assert "watched it for 11 m" in doubt(first)
    assert "--inventory" in doubt(first)
    assert (first.dead_bytes(DISK, ORDERS), first.doubtful_bytes(DISK, ORDERS)) == (0, 500)
    assert [bool(doubt(looked(memory, minute, 50, 1_000))) for minute in (10, 11)] == [True, False]
    assert memory.changed


def test_replica_is_doubted_after_a_log_start_move_until_its_size_falls() -> None:
    memory = PartitionMemory()
    assert not doubt(looked(memory, 0, 0, 1_000))
    moved = looked(memory, 60, 40, 1_000)
    assert "has moved since its size on broker 1 last fell" in doubt(moved)
    assert (moved.dead_bytes(DISK, ORDERS), moved.doubtful_bytes(DISK, ORDERS)) == (400, 0)
    assert doubt(looked(memory, 600, 40, 1_000))
    fallen = looked(memory, 601, 40, 600)
    assert (doubt(fallen), fallen.leaving_bytes(DISK)) == ("", 400)
    assert looked(memory, 603, 40, 600).leaving_bytes(DISK) == 0


def test_segments_of_a_larger_segment_bytes_count_until_the_log_start_has_passed_them() -> None:
    """R5: the segment that contains S may have been begun before segment.bytes was lowered, and be mostly dead."""
    memory, before = PartitionMemory(), settings_of({**TOPIC, "segment.bytes": "400"})
    looked(memory, 0, 0, 1_000, before)
    looked(memory, 60, 40, 1_000, before)
    for minute, start, size, held, live in ((120, 40, 700, 700, 300), (180, 100, 100, 150, 50)):
        sizes = looked(memory, minute, start, size)
        found = sizes.live_bytes(replace(DISK, replicas={ORDERS: held}), ORDERS, start)
        assert (doubt(sizes), found) == ("", live)


def test_replica_moving_to_another_dir_is_doubted_and_restarts_there() -> None:
    memory = PartitionMemory()
    looked(memory, 0, 50, 1_000)
    assert "being moved" in doubt(looked(memory, 60, 50, 1_000, future=True))
    whole = looked(PartitionMemory(), 60, 0, 1_000, future=True).live_bytes(DISK, ORDERS, 0)
    assert "being moved" in why(whole), "R5: the copy beside it may be on the same disk, and be counted with it"
    assert looked(memory, 61, 50, 1_000, path="/b").doubt(replace(DISK, dirs=("/b",)), ORDERS, "R6") is not None


@pytest.mark.parametrize(
    ("topic", "broker"),
    [(TOPIC, FAILED), (FAILED, CHECKS), (TOPIC, {}), ({}, CHECKS)],
    ids=["no broker's", "no topic's", "not of the broker", "not of the topic"],
)
def test_unreadable_sweep_settings_leave_the_replica_doubted(topic: Any, broker: Any) -> None:
    memory, brokers = PartitionMemory(), settings_of(topic, broker)
    looked(memory, 0, 50, 1_000, brokers)
    sizes = looked(memory, 6_000, 50, 1_000, brokers)
    assert "could not be read" in doubt(sizes)
    assert sizes.longest([1], ["orders"]) != (300_000, 60_000)
    assert sizes.segment_bytes == ({"orders": 100} if topic == TOPIC else {})


@pytest.mark.parametrize(
    ("setting", "bytes_"),
    [({}, 0), ({"cleanup.policy": "compact,delete"}, 1_200), ({"remote.storage.enable": "true"}, 1_200)],
    ids=["plain", "compacted", "tiered"],
)
def test_segments_deleted_without_a_move_of_the_log_start_may_be_leaving(setting: dict[str, str], bytes_: int) -> None:
    """A cleaner, or a local retention, deletes them; growth hides it. All that the replica had may be leaving."""
    memory, brokers = PartitionMemory(), settings_of({**TOPIC, **PLAIN, **setting})
    assert [
        looked(memory, minute, 0, size, brokers).may_leave_bytes(DISK, since)
        for minute, size, since in ((0, 1_200, None), (60, 1_000, 0), (120, 1_000, 60 * MINUTE))
    ] == [None, 200 + bytes_, 1_000 if bytes_ else 0]


def test_replica_that_was_away_at_the_last_look_at_its_disk_counts_as_come() -> None:
    memory, brokers = PartitionMemory(), settings_of({**TOPIC, **PLAIN})
    looked(memory, 0, 0, 1_000, brokers)
    assert (
        looked(memory, 60, 0, 1_000, brokers).may_leave_bytes(DISK, 30 * MINUTE),
        looked(memory, 120, 0, 1_000, brokers).may_leave_bytes(DISK, 60 * MINUTE),
    ) == (None, 0)


def test_replica_that_was_never_seen_is_doubted() -> None:
    assert "could not be compared" in why(
        looked(PartitionMemory(), 0, 0, 1_000).doubt(replace(DISK, broker=3), ORDERS, "R6")
    )


FIRST, SECOND = TopicPartition("a", 0), TopicPartition("b", 0)
LAGGING = [
    Disk(1, ("/d",), Room(10_000, 5_000, 5_000), {FIRST: 1_000, SECOND: 900}),
    Disk(2, ("/d",), Room(10_000, 5_000, 5_000), {FIRST: 799, SECOND: 700}),
]


@pytest.mark.parametrize(
    ("partitions", "segment_bytes", "lagging"),
    [
        pytest.param({FIRST, SECOND}, {"a": 100, "b": 100}, {(1, FIRST)}, id="more than two segments"),
        pytest.param({SECOND}, {"a": 100, "b": 100}, set(), id="two segments"),
        pytest.param({FIRST, SECOND}, {}, {(1, FIRST), (1, SECOND)}, id="how large segments are is not known"),
    ],
)
def test_replica_smaller_by_more_than_two_segments_counts_as_lagging(
    partitions: set[TopicPartition], segment_bytes: dict[str, int], lagging: set[tuple[int, TopicPartition]]
) -> None:
    found = smaller_replicas(LAGGING, partitions, segment_bytes)
    assert found.keys() == lagging
    if lagging:
        [reason] = found[1, FIRST].reasons
        assert reason.code == "R6"
        assert reason.text.startswith(
            "its replica on broker 2 takes 799 B, another 1000 B: it lags or is still filling"
        )


# -- r5, and rounding to whole segments: the smallest offset whose tail fits (R5, granularity) --


NOT_SWEPT = Unknown.because("R5", "its size has dead bytes in it")
BYTES = Settings(max_bytes=100, unconsumed="trim")
LOG = Log(10, [NOW - HOUR] * 10)


@given(st.integers(0, 10**9), st.integers(1, 10**9), st.integers(1, 10**12), st.integers(0, 10**12))
def test_estimated_tail_is_the_first_offset_that_fits(start: int, records: int, size: int, most: int) -> None:
    end = start + records
    found = estimated_tail(start, end, size, most)
    assert start <= found <= end
    assert size * (end - found) <= most * records
    assert found == start or size * (end - found + 1) > most * records


logs = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20), st.integers(0, 5)), max_size=6), st.integers(0, 15)
    ),
    min_size=1,
    max_size=4,
)


def built(drawn: list[tuple[list[tuple[int, int, int]], int]]) -> tuple[list[Row], list[int]]:
    """Each partition's segments: (records, bytes, time); the last is active. And where each log starts."""
    rows, starts = [], []
    for partition, (segments, start) in enumerate(drawn):
        base = 0
        for number, (records, size, time) in enumerate(segments):
            rows.append(Row(0, partition, base, base + records, size, time, number == len(segments) - 1))
            base += records
        starts.append(min(start, base))
    return rows, starts


def live(rows: list[Row], partition: int, start: int) -> list[Row]:
    return [row for row in rows if row.partition == partition and (row.next > start or row.active)]


@given(logs, st.lists(st.integers(-1, 60), min_size=4, max_size=4))
def test_exact_tail_starts_at_a_segment_base(drawn: list, most: list[int]) -> None:
    rows, starts = built(drawn)
    found = exact_tails(segments_of(rows), np.array(starts), np.array(most[: len(starts)]))
    for partition, (start, limit) in enumerate(zip(starts, most, strict=False)):
        own = live(rows, partition, start)
        fitting = [row.base for n, row in enumerate(own) if row.active or sum(one.size for one in own[n:]) <= limit]
        assert found[partition] == (start if limit < 0 or not own else max(start, min(fitting)))


@given(logs, st.integers(-1, 120))
def test_topic_size_limit_trims_the_oldest_segments_until_it_fits(drawn: list, most: int) -> None:
    rows, starts = built(drawn)
    of_topic = [partition % 2 for partition in range(len(starts))]
    found = exact_topic_tails(segments_of(rows), np.array(starts), np.array(of_topic), np.array([most, -1]))
    bounds = list(starts)
    while most >= 0:
        left = [row for n in range(0, len(starts), 2) for row in live(rows, n, bounds[n])]
        may_go = [row for row in left if not row.active]
        if sum(row.size for row in left) <= most or not may_go:
            break

        def youngest_with(row: Row) -> tuple[int, int, int]:
            begun = live(rows, row.partition, starts[row.partition])
            return max(o.time for o in begun if not o.active and o.next <= row.next), row.partition, row.next

        oldest = min(may_go, key=youngest_with)
        bounds[oldest.partition] = oldest.next
    assert found.tolist() == bounds, "the other topic has no limit"


def with_tails(**tails: Tail | Unknown) -> PartitionFacts:
    keys = {"each": "retention.bytes", "topic": "retention.topic.bytes"}
    return LOG.facts(BYTES)._replace(tails={keys[name]: tail for name, tail in tails.items()})


@pytest.mark.parametrize(
    ("each", "in_topic", "trim_to", "said"),
    [
        (Tail(12, exact=True), Tail(15, exact=False), 15, ("retention.topic.bytes", "estimated")),
        (Tail(16, exact=True), NOT_SWEPT, 16, ("by the inventory",)),
    ],
    ids=["the topic's", "the partition's: the topic's is unknown"],
)
def test_larger_of_two_size_bounds_decides_and_names_its_source(
    each: Tail, in_topic: Maybe[Tail], trim_to: int, said: tuple[str, ...]
) -> None:
    found = decide(with_tails(each=each, topic=in_topic), replace(BYTES, max_topic_bytes=1000), NOW)
    assert (found.trim_to, found.rule) == (trim_to, "size")
    assert all(text in found.reasons[0].text for text in said)
    assert (found.reasons[-1] == NOT_SWEPT.reasons[0]) == isinstance(in_topic, Unknown)


def test_unknown_or_unread_size_holds() -> None:
    assert decide(with_tails(each=NOT_SWEPT), BYTES, NOW).reasons == NOT_SWEPT.reasons
    assert decide(LOG.facts(BYTES), BYTES, NOW).action == "hold"


def test_size_rule_stops_at_the_floor() -> None:
    """G2: R5 too trims nothing unread, unless the policy says so."""
    held = replace(BYTES, unconsumed="hold")
    facts = with_tails(each=Tail(18, exact=True))._replace(floor=replace(LOG, floor=13).facts(held).floor)
    found = decide(facts, held, NOW)
    assert (found.trim_to, found.limited_by, decide(facts, replace(held, max_bytes=None), NOW).action) == (
        13,
        "G2",
        "keep",
    )


WHOLE = replace(BYTES, whole_segments=True)


@pytest.mark.parametrize(
    ("bases", "trim_to"), [([0, 14, 17], 14), ([15], 15), ([16, 20], None), ([0, 10], None), ([], None)]
)
def test_size_bound_is_rounded_down_to_a_segment_base(bases: list[int], trim_to: int | None) -> None:
    found = decide(with_tails(each=Tail(15, exact=True))._replace(segment_bases=bases), WHOLE, NOW)
    assert (found.trim_to, found.action) == (trim_to, "keep" if trim_to is None else "trim")
    if trim_to is None:
        assert isinstance(found.reasons[-1], Reason)
        assert found.reasons[-1].code == "granularity"


def test_whole_segments_without_an_inventory_hold_and_name_the_scan_command() -> None:
    found = decide(with_tails(each=Tail(15, exact=True)), WHOLE, NOW)
    assert found.action == "hold"
    assert any("kretain segments scan" in reason.text for reason in found.reasons)


R6 = DiskRules(percent=50)
CLICKS = TopicPartition("clicks", 3)
NOW = 1_000 * MINUTE
FULL = Disk(1, ("/a",), Room(1000, 700, 400), {ORDERS: 400})
FOLDER = LogDir("/a", "0:1", None, 1000, 300, log_bytes=450, pending_bytes=120, stray_bytes=30)


def file_of(broker: int, scanned_at_ms: int, *dirs: LogDir) -> InventoryFile:
    return InventoryFile("a.parquet", broker, None, scanned_at_ms, dirs)


@pytest.mark.parametrize(
    ("known", "stays_there", "found"),
    [
        (0, 0, Leaving(0, 300)),
        (0, 100, Leaving(0, 200)),
        (100, 0, Leaving(100, 200)),
        (100, 150, Leaving(100, 50)),
        (0, 10_000, Leaving(0, 0)),
    ],
)
def test_unexplained_bytes_count_as_possibly_leaving_unless_known_to_stay(
    known: int, stays_there: int, found: Leaving
) -> None:
    assert leaving(FULL, known, stays_there) == found


@pytest.mark.parametrize(
    ("reserved", "seen", "staying"),
    [
        pytest.param({}, [], 100, id="all but logs and what leaves"),
        pytest.param({"*": 40}, [], 60, id="less what is reserved"),
        pytest.param(
            *({}, [DiskSample(NOW - 2 * MINUTE, 5, 1000), DiskSample(NOW, 30, 1000)], 30),
            id="others gave 70 back after the scan",
        ),
    ],
)
def test_inventory_proves_staying_bytes_despite_later_sweeps(
    reserved: dict[str, int], seen: list[DiskSample], staying: int
) -> None:
    """700 were in use at the scan: 450 logs', 120 + 30 leaving, so 100 are others'. What left logs since, leaves."""
    file = file_of(1, NOW - MINUTE, FOLDER)
    assert stays_by_scan(FULL, [file], reserved, NOW, seen) == (staying, file.scanned_at_ms)


@pytest.mark.parametrize(
    "file",
    [
        file_of(2, NOW, FOLDER),
        file_of(1, NOW - SAYS_FOR_MS - 1, FOLDER),
        file_of(1, NOW + 10 * MINUTE, FOLDER),
        file_of(1, NOW, replace(FOLDER, path="/b")),
        file_of(1, NOW, replace(FOLDER, total_bytes=2000)),
        file_of(1, NOW, replace(FOLDER, unread=1)),
    ],
)
def test_old_or_incomplete_inventory_proves_no_staying_bytes(file: InventoryFile) -> None:
    assert stays_by_scan(FULL, [file], {}, NOW) is None


def looks(*pairs: tuple[int, int]) -> list[DiskSample]:
    return [DiskSample(minute * MINUTE, used, 1000) for minute, used in pairs]


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        pytest.param(looks((99, 280)), None, id="too short"),
        pytest.param(looks((90, 280), (99, 290)), 280, id="long enough"),
        pytest.param(looks((90, 280), (95, 40)), 40, id="the least of two"),
        pytest.param([DiskSample(90 * MINUTE, 1, 999)], None, id="another disk's size"),
        pytest.param(looks((101, 1)), None, id="our clock was set back"),
        pytest.param([], None, id="never"),
        pytest.param(looks((1, 10), (20, 500), (30, 200), (35, 250)), 200, id="the last three after a longer pause"),
    ],
)
def test_lowest_usage_counts_as_staying_once_seen_for_long_enough(seen: list[DiskSample], found: int | None) -> None:
    assert lowest(seen, DiskSample(100 * MINUTE, 300, 1000), 6 * MINUTE) == found


def test_disk_memory_keeps_the_lowest_of_close_looks() -> None:
    memory = DiskMemory()
    for second, used in ((0, 100), (10, 70), (20, 90)):
        memory.add(DiskSample(second * 1000, used, 1000), lowest=True)
    assert [one.used_bytes for one in memory.samples] == [70]


def test_disk_memory_keeps_a_lower_look_of_a_machine_whose_clock_is_behind_another() -> None:
    """R6: by up to a minute they may differ (``state: cluster``)."""
    theirs, memory = DiskMemory(), DiskMemory()
    for minute in (0, 4, 8):
        theirs.add(DiskSample(minute * MINUTE, 300, 1000), lowest=True)
    memory.packed = theirs.packed
    memory.add(DiskSample(8 * MINUTE - 30_000, 100, 1000), lowest=True)
    assert lowest(memory.samples, DiskSample(10 * MINUTE, 300, 1000), 6 * MINUTE) == 100


def stay(memory: Ledger, minute: int, disk: Disk, may_leave: int | None = 0) -> int:
    """What stays of a disk at a look, by a ledger alone."""
    return stays_bytes(disk, memory, (), {}, minute * MINUTE, 6 * MINUTE, may_leave)


@pytest.mark.parametrize(
    ("looks", "known"),
    [
        ([(0, 300, 0), (4, 100, 0), (8, 250, 0)], [0, 0, 100]),
        ([(0, 300, 0), (8, 250, 100)], [0, 150]),
        ([(0, 300, 0), (8, 250, 1000)], [0, 0]),
        ([(0, 300, None), (4, 250, 0), (8, 250, 0)], [0, 0, 250]),
        ([(0, 300, 0), (8, 250, None), (12, 250, 0), (16, 250, 0)], [0, 0, 0, 250]),
    ],
    ids=["least of all", "less what may be swept", "all may be swept", "first look", "a replica came"],
)
def test_ledger_learns_staying_bytes_over_several_looks(looks: list[tuple[int, int, int | None]], known: list) -> None:
    """The first look knows nothing; when others' 100 were seen for longer than a check and a delay, they stay."""
    memory = Ledger(None)
    assert [
        stay(memory, minute, replace(FULL, room=Room(1000, 400 + unexplained, 400)), may_leave)
        for minute, unexplained, may_leave in looks
    ] == known
    assert stays_bytes(FULL, memory, (), {}, 19 * MINUTE, None, 0) == 0


def test_ledger_counts_nothing_as_staying_after_a_replica_left_the_disk() -> None:
    memory = Ledger(None)
    both = replace(FULL, replicas={ORDERS: 200, CLICKS: 200})
    looks = ((0, both), (8, both), (9, FULL), (12, FULL), (20, FULL))
    assert [stay(memory, minute, disk) for minute, disk in looks] == [0, 300, 0, 0, 300]
    assert memory.disk(FULL.key).samples == (), "looks at how full it is are others"


NEAR = [log_dir("/a", 10_000, 4_000), log_dir("/b", 10_000, 4_009)]
APART = [log_dir("/a", 1000, 400), log_dir("/b", 1000, 250)]
BOTH_BROKERS = {n: [log_dir("/a", 10_000, 4_000, replicas=(replica(CLICKS, 3_000),))] for n in (1, 2)}


@pytest.mark.parametrize(
    ("answers", "rules", "devices", "known", "said"),
    [
        pytest.param({1: APART}, R6, ("8:1", "8:2"), [("/a",), ("/b",)], None, id="two rooms of two devices"),
        pytest.param({1: APART}, R6, ("8:1", "8:1"), [("/a", "/b")], None, id="one device by the inventory"),
        pytest.param({1: NEAR}, R6, None, [], "disks.devices", id="rooms that differ by less than a thousandth"),
        pytest.param(
            {1: NEAR},
            replace(R6, devices=(frozenset({"/a"}), frozenset({"1:/b"}))),
            *(None, [("/a",), ("/b",)], None),
            id="unless the policy says that they are two",
        ),
        pytest.param(
            {1: [log_dir("/a", 10_000, 4_000), log_dir("/b", 10_000, 4_000)]},
            R6,
            ("8:1", "8:17"),
            [],
            "disks.devices",
            id="two devices of one size to the byte",
        ),
        pytest.param({1: NEAR}, R6, ("8:1", "8:17"), [("/a",), ("/b",)], None, id="two devices of about one size"),
        pytest.param(
            {1: NEAR}, R6, ("0:40", "0:41"), [], "disks.devices", id="subvolumes of btrfs: each has a number of its own"
        ),
        pytest.param({1: NEAR}, R6, ("8:1", "0:41"), [], "disks.devices", id="a device, and a mount of NFS"),
        pytest.param(
            BOTH_BROKERS,
            replace(R6, devices=(frozenset({"1:/a", "2:/a"}),)),
            *(None, [], "broker 2's device too"),
            id="a device of two brokers: each would free what both have too much",
        ),
        pytest.param(
            BOTH_BROKERS, replace(R6, shared=True), None, [], "as a disk of broker 2", id="disks that may be shared"
        ),
        pytest.param(
            BOTH_BROKERS,
            replace(R6, shared=True, devices=(frozenset({"1:/a"}), frozenset({"2:/a"}))),
            *(None, [("/a",), ("/a",)], None),
            id="unless the policy says that they are two as well",
        ),
        pytest.param(BOTH_BROKERS, R6, None, [("/a",), ("/a",)], None, id="others' use of a disk tells otherwise"),
    ],
)
def test_dirs_that_may_share_a_device_make_r6_unknown(
    answers: dict[int, list[LogDirState]],
    rules: DiskRules,
    devices: tuple[str, str] | None,
    known: list[tuple[str, ...]],
    said: str | None,
) -> None:
    told = {} if devices is None else {(1, "/a"): devices[0], (1, "/b"): devices[1]}
    found, notes = disks_of(dict(answers), rules, told)
    assert [one.dirs for one in found if not isinstance(one.room, Unknown)] == known
    assert not notes if said is None else said in notes[0].text


def test_broker_that_is_down_is_an_unknown_disk_with_its_replicas() -> None:
    answers: dict[int, list[LogDirState] | Exception] = {1: [log_dir("/a")], 3: OSError("no answer")}
    disks, _ = all_disks(dict(answers), {ORDERS: (1, 2), CLICKS: (3, 2)}, DiskRules())
    away = [one for one in disks if not one.dirs]
    assert [(one.name, one.dirs, set(one.replicas)) for one in away] == [
        ("broker 2", (), {ORDERS, CLICKS}),
        ("broker 3", (), {CLICKS}),
    ]
    [down] = away[0].room.reasons if isinstance(away[0].room, Unknown) else ()
    assert "2 replicas of clicks, orders" in down.text
    assert "down" in down.text


@pytest.mark.parametrize(
    ("scanned", "ledger", "over_ms", "found"),
    [
        (None, None, 360_000, 0),
        (None, 70, 360_000, 70),
        (Scanned(40, NOW), None, None, 40),
        (Scanned(40, NOW - 359_999), 70, 360_000, 40),  # others have given 30 back since, and it was seen
        (Scanned(40, NOW - 360_000), 70, 360_000, 70),  # others have written 30 since, and they were there all the time
        (Scanned(90, NOW - 360_000), 70, 360_000, 90),
    ],
)
def test_newer_of_scan_and_ledger_decides_what_stays(
    scanned: Scanned | None, ledger: int | None, over_ms: int | None, found: int
) -> None:
    assert stays(scanned, ledger, NOW, over_ms) == found


ABOVE, BELOW = DiskRules(percent=50), DiskRules(percent=90)
SIZE = 1000


LIVE = Disk(1, ("/a",), Room(2000, 1500, SIZE), {ORDERS: SIZE})
SCANNED = ScannedReplica(1, "/a", ORDERS, "id", 1, 80, 0, 80, 100, 600, 400, 100, 9, 4, 0)
"""Closed segments of 500 up to 80, of which 100 lay below S; an active one of 100; 400 bytes came after the scan."""


@pytest.mark.parametrize(
    ("scanned", "start", "decided", "doubted"),
    [
        (SCANNED, 0, 0, 0),
        (SCANNED, 20, 0, 0),
        (SCANNED, 20, 80, 0),
        (SCANNED, 20, 99, 0),  # what was active at the scan reaches up to 100 at least
        (SCANNED, 20, 100, SIZE - 500),  # the walk counts the closed segments, and nobody what came after them
        (SCANNED._replace(end=200, log_bytes=SIZE), 200, 0, 0),  # nothing was written since
        (SCANNED._replace(end=200), 200, 0, SIZE - 500),  # the log goes on beyond H, which a follower holds up
        (SCANNED._replace(end=-1), 20, 80, 0),
        (SCANNED._replace(end=-1), 20, 81, SIZE - 500),
        (SCANNED, 150, 0, SIZE - 500),
        (SCANNED._replace(live_bytes=0), 150, 0, SIZE - 500),
        (None, 0, 0, 0),
        (None, 1, 0, SIZE),
        (None, 0, 1, SIZE),
        (SCANNED, None, 0, SIZE),
    ],
)
def test_possibly_dead_bytes_outside_the_inventory_rows_are_doubted(
    scanned: ScannedReplica | None, start: int | None, decided: int, doubted: int
) -> None:
    known = {} if scanned is None else {(0, ORDERS): scanned}
    starts = {} if start is None else {ORDERS: start}
    for rules, found in ((ABOVE, doubted), (BELOW, 0)):  # nothing is asked of a disk below its ceiling
        assert doubted_bytes([LIVE], rules, known, starts, {ORDERS: 200}, {ORDERS: decided}) == [found]


def test_bytes_swept_since_the_scan_are_not_counted() -> None:
    """Of 500 closed bytes 400 were swept, and 200 came after them: all 300 that the replica has may be dead."""
    disk = Disk(1, ("/a",), Room(2000, 1500, 300), {ORDERS: 300})
    assert doubted_bytes(
        [disk], ABOVE, {(0, ORDERS): SCANNED._replace(live_bytes=0)}, {ORDERS: 150}, {ORDERS: 200}, {}
    ) == [300 - 200]


def test_index_bytes_leave_with_their_segments_or_their_replica() -> None:
    deleted = SCANNED._replace(tp=TopicPartition("deleted", 0))
    assert indexes_gone([SCANNED, deleted, SCANNED._replace(broker=2)], [LIVE], ()) == {LIVE.name: 4 + 9}
    assert indexes_gone([SCANNED], [LIVE], {(1, *ORDERS)}) == {LIVE.name: 9}, "it is not believed"


@pytest.mark.parametrize(("apart_s", "machines"), [(61, 1), (120, 1), (300, 1), (61, 2), (120, 2)])
def test_smallest_amount_of_the_last_hour_outlives_thinning_and_merging(apart_s: int, machines: int) -> None:
    """R6: two machines look in turn (``state: cluster``), and each takes over the other's looks."""
    for lull in range(70, 110):  # by then older looks are thinned out again and again
        one, other, began = DiskMemory(), DiskMemory(), lull * apart_s
        for now in range(0, began + 3600, apart_s):
            if machines == 2:
                one, other = other, one
                one.packed = one.merged(other).packed
            if now > began:
                assert lowest(one.samples, DiskSample(now * 1000, 100, 1000), 360_000) == 10
            one.add(DiskSample(now * 1000, 10 if now == began else 100, 1000), lowest=True)
