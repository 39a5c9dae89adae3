"""What of a disk is leaving, which dirs are one disk, and whose broker is away (R6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from retention_cli.brokers.log_offsets import LogDirState
from retention_cli.core.model import TopicPartition, Unknown
from retention_cli.disks.devices import all_disks, disks_of, stays_bytes
from retention_cli.disks.disk import Disk, Leaving, Room
from retention_cli.disks.inventory.format import InventoryFile, ScannedReplica
from retention_cli.disks.inventory.log_dirs import LogDir
from retention_cli.disks.pending_deletes import (
    SAYS_FOR_MS,
    Scanned,
    doubted_bytes,
    indexes_gone,
    leaving,
    stays,
    stays_by_scan,
)
from retention_cli.memory.disk import DiskMemory, Look, lowest
from retention_cli.memory.ledger import Ledger
from retention_cli.policy.settings import DiskRules
from tests.support.disks import log_dir, replica

R6 = DiskRules(percent=50)
ORDERS, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 3)
MINUTE = 60_000
NOW = 1_000 * MINUTE
DISK = Disk(1, ("/a",), Room(1000, 700, 400), {ORDERS: 400})
FOLDER = LogDir("/a", "0:1", None, 1000, 300, log_bytes=450, pending_bytes=120, stray_bytes=30)


def file_of(broker: int, scanned_at_ms: int, *dirs: LogDir) -> InventoryFile:
    return InventoryFile("a.parquet", broker, None, scanned_at_ms, dirs)


@pytest.mark.parametrize(
    ("known", "stays_there", "found"),
    [(0, 0, Leaving(0, 300)), (100, 0, Leaving(100, 200)), (100, 150, Leaving(100, 50)), (0, 10_000, Leaving(0, 0))],
)
def test_unexplained_bytes_count_as_possibly_leaving_unless_known_to_stay(
    known: int, stays_there: int, found: Leaving
) -> None:
    assert leaving(DISK, known, stays_there) == found


def test_inventory_proves_staying_bytes_despite_later_sweeps() -> None:
    """700 were in use at the scan: 450 logs', 120 + 30 leaving, so 100 are others'. What left logs since, leaves."""
    file = file_of(1, NOW - MINUTE, FOLDER)
    assert stays_by_scan(DISK, [file], {}, NOW) == (100, file.scanned_at_ms)
    assert leaving(DISK, 0, 100).possible_bytes == 200  # 120 + 30, and 50 that were swept after the scan
    assert stays_by_scan(DISK, [file], {"*": 40}, NOW) == (60, file.scanned_at_ms)
    fell, before = Look(NOW, 30, 1000), Look(NOW - 2 * MINUTE, 5, 1000)  # others gave 70 back after the scan
    assert stays_by_scan(DISK, [file], {}, NOW, [before, fell]) == (30, file.scanned_at_ms)


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
    assert stays_by_scan(DISK, [file], {}, NOW) is None


def looks(*pairs: tuple[int, int]) -> list[Look]:
    return [Look(minute * MINUTE, used, 1000) for minute, used in pairs]


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        pytest.param(looks((99, 280)), None, id="too short"),
        pytest.param(looks((90, 280), (99, 290)), 280, id="long enough"),
        pytest.param(looks((90, 280), (95, 40)), 40, id="the least of two"),
        pytest.param([Look(90 * MINUTE, 1, 999)], None, id="another disk's size"),
        pytest.param(looks((101, 1)), None, id="our clock was set back"),
        pytest.param([], None, id="never"),
        pytest.param(looks((1, 10), (20, 500), (30, 200), (35, 250)), 200, id="the last three after a longer pause"),
    ],
)
def test_lowest_usage_counts_as_staying_once_seen_for_long_enough(seen: list[Look], found: int | None) -> None:
    assert lowest(seen, Look(100 * MINUTE, 300, 1000), 6 * MINUTE) == found


def test_disk_memory_keeps_the_lowest_of_close_looks() -> None:
    memory = DiskMemory()
    for second, used in ((0, 100), (10, 70), (20, 90)):
        memory.add(Look(second * 1000, used, 1000), lowest=True)
    assert [one.used_bytes for one in memory.looks] == [70]


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
    found = []
    for minute, unexplained, may_leave in looks:
        disk = replace(DISK, room=Room(1000, 400 + unexplained, 400))
        found.append(stays_bytes(disk, memory, (), {}, minute * MINUTE, 6 * MINUTE, may_leave))
    assert found == known
    assert stays_bytes(DISK, memory, (), {}, 19 * MINUTE, None, 0) == 0


def test_ledger_counts_nothing_as_staying_after_a_replica_left_the_disk() -> None:
    memory = Ledger(None)
    both = replace(DISK, replicas={ORDERS: 200, CLICKS: 200})
    found = [
        stays_bytes(disk, memory, (), {}, minute * MINUTE, 6 * MINUTE, 0)
        for minute, disk in ((0, both), (8, both), (9, DISK), (12, DISK), (20, DISK))
    ]
    assert found == [0, 300, 0, 0, 300]
    assert memory.disk(DISK.key).looks == (), "looks at how full it is are others"


NEAR = [log_dir("/a", 10_000, 4_000), log_dir("/b", 10_000, 4_009)]
ALIKE = [log_dir("/a", 10_000, 4_000), log_dir("/b", 10_000, 4_000)]
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
        pytest.param({1: ALIKE}, R6, ("8:1", "8:17"), [], "disks.devices", id="two devices of one size to the byte"),
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
    disk = Disk(1, ("/a",), Room(2000, 1500, SIZE), {ORDERS: SIZE})
    known = {} if scanned is None else {(0, ORDERS): scanned}
    starts = {} if start is None else {ORDERS: start}
    ends = {ORDERS: 200}
    assert doubted_bytes([disk], ABOVE, known, starts, ends, {ORDERS: decided}) == [doubted]
    assert doubted_bytes([disk], BELOW, known, starts, ends, {ORDERS: decided}) == [0], "nothing is asked of that disk"


def test_bytes_swept_since_the_scan_are_not_counted() -> None:
    """Of 500 closed bytes 400 were swept, and 200 came after them: all 300 that the replica has may be dead."""
    disk = Disk(1, ("/a",), Room(2000, 1500, 300), {ORDERS: 300})
    dead = SCANNED._replace(live_bytes=0)
    assert doubted_bytes([disk], ABOVE, {(0, ORDERS): dead}, {ORDERS: 150}, {ORDERS: 200}, {}) == [300 - 200]


def test_index_bytes_leave_with_their_segments_or_their_replica() -> None:
    disk = Disk(1, ("/a",), Room(2000, 1500, SIZE), {ORDERS: SIZE})
    deleted = SCANNED._replace(tp=TopicPartition("deleted", 0))
    assert indexes_gone([SCANNED, deleted, SCANNED._replace(broker=2)], [disk], ()) == {disk.name: 4 + 9}
    assert indexes_gone([SCANNED], [disk], {(1, *ORDERS)}) == {disk.name: 9}, "it is not believed"


@pytest.mark.parametrize("apart_s", [61, 120, 300])
def test_smallest_amount_of_the_last_hour_outlives_thinning(apart_s: int) -> None:
    for lull in range(70, 110):  # by then older looks are thinned out again and again
        memory, began = DiskMemory(), lull * apart_s
        for now in range(0, began + 3600, apart_s):
            used = 10 if now == began else 100
            if now > began:
                assert lowest(memory.looks, Look(now * 1000, used, 1000), 360_000) == 10
            memory.add(Look(now * 1000, used, 1000), lowest=True)
