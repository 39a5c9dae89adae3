"""Disks and decisions together: how full a disk is, what R6 asks of partitions, what it says where it can't."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from kretain.render.disks import bar
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import LogDirState
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.core.model import Code, Maybe, Reason, TopicFacts, TopicPartition, Unknown
from retention_cli.decide.decision import Limit, after_disks, decide, disk_limit, off_disks, raised
from retention_cli.decide.topic_rules import TopicRules
from retention_cli.disks.devices import disks_of
from retention_cli.disks.disk import (
    Blocker,
    Disk,
    DiskOutcome,
    Leaving,
    Room,
    excess_bytes,
    mostly_others,
    outcome_as_json,
)
from retention_cli.disks.inventory.log_dirs import LogDir
from retention_cli.disks.run import DiskRun
from retention_cli.disks.water_level import OldestFirst, oldest_first
from retention_cli.engines.fleet.plan import FleetPlan
from retention_cli.engines.fleet.saved import read_fleet
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.recall import Remembered
from retention_cli.plan.saved import ParquetPlans, read_plan, write_plan
from retention_cli.plan.value import as_json, plan_text
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.load import parse_policy
from retention_cli.policy.model import Policy
from retention_cli.policy.selection import Selection
from retention_cli.policy.settings import DiskRules, Settings
from retention_cli.trim.run import check_saved
from retention_cli.trim.wait import wait_for_space
from tests.support.disks import ORDERS, in_the_way_bytes, log_dir, log_dirs_by_turns, replica, view_of
from tests.support.facts import HOUR, NOW, UNKNOWN, Log, topic, why
from tests.support.plans import EVERY, KINDS, saved
from tests.support.says import refusal, says
from tests.support.world import run_cli

CLICKS, R6 = TopicPartition("clicks", 0), DiskRules(percent=50)
FREE = Limit(1000, Code.G1, "the high watermark")


NEW = TopicPartition("new", 0)


def only(rules: DiskRules, *dirs: LogDirState) -> tuple[Disk, list[Reason]]:
    [disk], notes = disks_of({1: list(dirs)}, rules)
    return disk, notes


@pytest.mark.parametrize(
    ("reserved", "used"), [({}, 600), ({"*": 50}, 550), ({"*": 9, "1:/a": 60, "/a": 50}, 540), ({"*": 601}, None)]
)
def test_used_bytes_exclude_usable_and_reserved_bytes(reserved: dict[str, int], used: int | None) -> None:
    """R6: used = total − usable − disks.reserved."""
    room = only(replace(R6, reserved=reserved), log_dir("/a"))[0].room
    assert isinstance(room, Unknown) if used is None else room == Room(1000, used, 500)


def test_policy_capacity_replaces_an_unknown_volume_size() -> None:
    old = log_dir("/a", *(Unknown.because("disk", "before Kafka 3.3"),) * 2)
    disk, notes = only(R6, old)
    assert isinstance(disk.room, Unknown)
    assert "before Kafka 3.3" in notes[0].text
    assert only(replace(R6, capacity={"/a": 2000}), old)[0].room == Room(2000, 500, 500)


@pytest.mark.parametrize(("total", "usable"), [(0, 0), (1000, 1001)])
def test_volume_with_impossible_figures_makes_the_disk_unknown(total: int, usable: int) -> None:
    """R6, R7: other brokers answer with what they have."""
    assert "set disks.capacity" in only(R6, log_dir("/a", total, usable))[1][0].text


@pytest.mark.parametrize("capacity", [0, 30, 499])
def test_capacity_below_the_bytes_of_replicas_makes_the_disk_unknown(capacity: int) -> None:
    """R6, R7: a missing unit. A disk that is full to the last byte is known."""
    disk, notes = only(replace(R6, capacity={"*": capacity}), log_dir("/a"))
    assert isinstance(disk.room, Unknown)
    says(notes[0].text, f"disks.capacity is {capacity} B, but replicas take 500 B there", "is a unit missing?")
    assert only(replace(R6, capacity={"*": 500}), log_dir("/a"))[0].room == Room(500, 500, 500)


ALIKE, ALMOST = (log_dir("/a"), log_dir("/b")), (log_dir("/a"), log_dir("/b", usable_bytes=401))
OF_900, OF_1000, OF_800 = Room(900, 500, 500), Room(1000, 500, 500), Room(800, 500, 500)


@pytest.mark.parametrize(
    ("dirs", "capacity", "more", "rooms", "said"),
    [
        pytest.param(ALIKE, {"/a": 900, "1:/b": 800}, {}, [OF_900, OF_800], None, id="one each"),
        pytest.param(ALMOST, {"/a": 900, "1:/b": 800}, {}, [OF_900, OF_800], None, id="one each, nearly alike"),
        pytest.param(ALIKE, {"*": 1100}, {}, None, "whether disks.capacity is for each", id="one for all"),
        pytest.param(ALIKE, {"/a": 1100}, {}, None, "whether disks.capacity is for each", id="one of two dirs"),
        pytest.param(ALMOST, {"/a": 1100}, {}, None, "whether they share a device", id="one of two, nearly alike"),
        pytest.param(
            (*ALIKE, log_dir("/c")), {"/a": 900, "/b": 800}, {}, None, "List each device", id="two of three dirs"
        ),
        pytest.param(
            *(ALIKE, {"*": 1000}, {"devices": (frozenset({"/a"}), frozenset({"/b"}))}, [OF_1000] * 2, None),
            id="one for all of two devices",
        ),
        pytest.param(
            *(ALIKE, {"*": 1100}, {"devices": (frozenset({"/a", "/b"}),)}, [Room(1100, 1000, 1000)], None),
            id="one for one device",
        ),
        pytest.param(
            *(ALIKE, {"/a": 1100, "1:/b": 1100}, {"devices": (frozenset({"/a", "/b"}),)}, None),
            *("names several of its dirs",),
            id="two for one device by the policy",
        ),
        pytest.param(
            ALIKE, {"/b": 1100}, {"told": "8:1"}, [Room(1100, 1000, 1000)], None, id="one for a device of the inventory"
        ),
        pytest.param(
            *(ALIKE, {"/a": 1100, "/b": 1100}, {"told": "8:1"}, None, "names several of its dirs"),
            id="two for a device of the inventory",
        ),
    ],
)
def test_capacity_counts_for_the_dirs_that_it_is_known_to_be_of(
    dirs: tuple[LogDirState, ...],
    capacity: dict[str, int],
    more: dict[str, Any],
    rooms: list[Room] | None,
    said: str | None,
) -> None:
    """R6, R7: dirs of a size of their own are not merged by the figures that it replaces, or the size is doubtful."""
    told = {(1, one.path): more["told"] for one in dirs if "told" in more}
    disks, notes = disks_of({1: list(dirs)}, replace(R6, capacity=capacity, devices=more.get("devices", ())), told)
    if rooms is None:
        assert all(isinstance(one.room, Unknown) for one in disks)
    else:
        assert [one.room for one in disks] == rooms
    assert not notes if said is None else any(said in one.text for one in notes)


ONE_DEVICE = Disk(1, ("/a", "/b"), Room(1000, 600, 535), {ORDERS: 505, CLICKS: 30})
TWO_DEVICES = [
    Disk(1, ("/a",), Room(1000, 600, 500), {ORDERS: 500}),
    Disk(1, ("/b",), Room(1000, 600, 35), {CLICKS: 30, ORDERS: 5}),
]


@pytest.mark.parametrize(
    ("devices", "disks", "noted"),
    [
        ((), [ONE_DEVICE], [True]),
        ((frozenset({"/a"}),), TWO_DEVICES, []),
        ((frozenset({"/a", "/b"}),), [ONE_DEVICE], []),
        ((frozenset({"1:/a", "1:/b"}),), [ONE_DEVICE], []),
    ],
    ids=["not declared", "two", "one", "one of this broker"],
)
def test_dirs_on_one_device_count_once_with_a_note_unless_declared(
    devices: tuple[frozenset[str], ...], disks: list[Disk], noted: list[bool]
) -> None:
    """A copy on its way takes room too."""
    two = log_dir("/a"), log_dir("/b", replicas=(replica(CLICKS, 30), replica(ORDERS, 5, future=True)))
    found, notes = disks_of({1: list(two)}, replace(R6, devices=devices))
    assert found == disks
    assert ["disks.devices" in one.text for one in notes] == noted


def test_offline_dir_and_silent_broker_are_noted_and_unknown() -> None:
    disks, notes = disks_of({1: [log_dir("/a", error="KAFKA_STORAGE_ERROR")], 2: OSError("no answer")}, R6)
    assert [isinstance(one.room, Unknown) for one in disks] == [True]
    assert ["offline" in notes[1].text, "broker 2" in notes[0].text] == [True, True]


@pytest.mark.parametrize(("kafka", "shared", "said"), [(299, False, "disks.shared"), (299, True, ""), (300, False, "")])
def test_disk_used_mostly_by_others_makes_r6_unknown_unless_shared(kafka: int, shared: bool, said: str) -> None:
    found = why(mostly_others(Room(1000, 600, kafka), replace(R6, shared=shared)))
    assert said in found if said else found == ""


@pytest.mark.parametrize(("percent", "excess"), [(50, 100), (60, 0), (59.9, 1), (100, -400)])
def test_excess_is_counted_in_whole_bytes(percent: float, excess: int) -> None:
    assert excess_bytes(Room(1000, 600, 600), percent) == excess


ROWS = [  # disk, partition, base, next, bytes, time, active: clicks-0 is older than orders-0
    (0, 0, 0, 10, 100, 5, False),
    (0, 0, 10, 20, 100, 50, False),
    (0, 0, 20, 30, 100, 60, True),
    (0, 1, 0, 10, 100, 20, False),
    (0, 1, 10, 20, 100, 70, True),
]


def walked(
    used: int = 600,
    *,
    rows: list[tuple[int, int, int, int, int, int, bool]] = ROWS,
    log_starts: dict[TopicPartition, int] | None = None,
    decided: dict[TopicPartition, int] | None = None,
    limits: dict[TopicPartition, Maybe[Limit]] | None = None,
    replicas: dict[TopicPartition, int] | None = None,
    held: dict[TopicPartition, Unknown] | None = None,
    **scan: Any,
) -> OldestFirst:
    """Disk /a with both topics on it, and what an inventory of it says (``scan``)."""
    names, path = [CLICKS, ORDERS], scan.get("path", "/a")
    marks = scan.get("ours") or [True] * len(rows)
    table = [
        (1, path, names[tp], "id" if own else "other", base, following, size, size, time, active, 0)
        for (_, tp, base, following, size, time, active), own in zip(rows, marks, strict=True)
    ]
    view = view_of(
        table, scan.get("incomplete"), [LogDir(one, "8:1", None, 1000, 400) for _, one in scan.get("covered", ())]
    )
    disk = Disk(1, ("/a",), Room(1000, used, 500), {CLICKS: 300, ORDERS: 200} if replicas is None else replicas)
    starts = {CLICKS: 0, ORDERS: 0} if log_starts is None else log_starts
    stopped = {**view.broken(), **(held or {})}
    free = {CLICKS: FREE, ORDERS: FREE} if limits is None else limits
    return oldest_first(
        view.on_disks([disk], starts, dict.fromkeys(names, "id")),
        [disk],
        R6,
        {**starts, **(decided or {})},
        {tp: stopped.get(tp) or limit for tp, limit in free.items()},
        [Leaving(*(scan.get(what, 0) for what in ("leaving", "possible", "doubted")))],
    )


TRIMMED: dict[str, Any] = {"log_starts": {CLICKS: 10, ORDERS: 0}}
SWEPT: dict[str, Any] = {**TRIMMED, "replicas": {CLICKS: 200, ORDERS: 200}}
EMPTIED: dict[str, Any] = {"log_starts": {CLICKS: 30, ORDERS: 0}}


@pytest.mark.parametrize(
    ("used", "facts", "bounds", "outcome"),
    [
        pytest.param(600, {}, {CLICKS: 10}, {"excess_bytes": 100, "freed_bytes": 100}, id="the oldest segment goes"),
        pytest.param(
            *(650, {}, {CLICKS: 10, ORDERS: 10}),
            {"excess_bytes": 150, "freed_bytes": 200, "short_bytes": 0, "level_ms": 20},
            id="and the next one, until it adds up",
        ),
        pytest.param(
            *(600, {"held": {CLICKS: Unknown.because("disk", "broker 3 is down")}}, {ORDERS: 10}, {}),
            id="the next oldest goes in the stead of one with a replica on a broker that is down",
        ),
        pytest.param(700, {"decided": {CLICKS: 20}}, {}, {}, id="what other rules free is not freed again"),
        pytest.param(700, TRIMMED, {ORDERS: 10}, {"dead_bytes": 100}, id="nor are dead bytes"),
        pytest.param(
            *(600, SWEPT, {ORDERS: 10}, {"dead_bytes": 0}),
            id="dead segments swept since the inventory don't count: the replica is no larger than its live ones",
        ),
        pytest.param(
            *(600, {**SWEPT, "leaving": 100}, {}, {"dead_bytes": 100}),
            id="swept bytes are in use until their files are deleted",
        ),
        pytest.param(
            *(700, EMPTIED, {}, {"dead_bytes": 200}),
            id="an active segment below the log start is not dead: the log keeps it",
        ),
        pytest.param(900, EMPTIED, {ORDERS: 10}, {"short_bytes": 900 - 500 - 200 - 100}, id="nor freed"),
        pytest.param(650, {"possible": 60}, {CLICKS: 10}, {}, id="bytes that may be leaving are awaited"),
        pytest.param(
            *(600, {"possible": 100}, {}, {"freed_bytes": 0, "short_bytes": 0, "doubtful_bytes": 100}),
            id="and nothing goes in their stead",
        ),
        pytest.param(
            *(700, {"doubted": 150}, {CLICKS: 10}, {"doubtful_bytes": 150, "unexplained_bytes": 0}),
            id="so are those of live replicas that may be dead",
        ),
        pytest.param(
            *(700, {"path": "/b", "covered": frozenset({(1, "/a")})}, {}, {"unknown": None}),
            id="an empty scanned dir is known",
        ),
    ],
)
def test_r6_takes_the_oldest_segments_that_nothing_else_frees(
    used: int, facts: dict[str, Any], bounds: dict[TopicPartition, int], outcome: dict[str, object]
) -> None:
    found = walked(used, **facts)
    assert (found.bounds, {name: getattr(found.outcomes[0], name) for name in outcome}) == (bounds, outcome)


def test_bytes_that_may_be_leaving_are_noted_and_make_partitions_unknown() -> None:
    doubted, possible = walked(700, doubted=150), walked(600, possible=100)
    assert "150 B of live replicas may be dead" in doubted.outcomes[0].notes()[0].text
    assert "A fresh scan shows which" in doubted.unknown[ORDERS].reasons[0].text
    assert all("may be leaving" in possible.unknown[tp].reasons[0].text for tp in (ORDERS, CLICKS))
    assert "100 B in use belong to no live replica" in possible.outcomes[0].notes()[0].text
    assert [walked(used, possible=more).outcomes[0].notes() for used, more in ((500, 100), (650, 0))] == [[], []]


def test_partition_without_segments_in_the_inventory_is_unknown() -> None:
    """Partitions are numbered without holes: a number alone is no segment."""
    found = walked(900, rows=[one for one in ROWS if one[1] == 1])
    assert found.unknown[CLICKS].reasons[0].text == "the inventory has no segments of it: scan again"


@pytest.mark.parametrize(
    "change",
    [
        {"limits": {ORDERS: FREE}},
        {"limits": {ORDERS: FREE, CLICKS: UNKNOWN}},
        {"incomplete": {(1, "clicks", 0): "an index is broken"}},
        {"ours": [False, False, False, True, True]},
    ],
    ids=["not managed", "floor unknown", "inventory incomplete", "another topic of that name"],
)
def test_partition_that_must_not_be_trimmed_is_named_in_the_way(change: dict) -> None:
    found = walked(750, **change)
    [one] = found.outcomes
    assert (found.bounds, one.short_bytes, in_the_way_bytes(one)[CLICKS]) == ({ORDERS: 10}, 150, 300)
    assert "short by 150 B" in one.notes()[0].text


def test_disk_missing_from_the_inventory_makes_its_partitions_unknown() -> None:
    found = walked(path="/elsewhere")
    assert (found.bounds, set(found.unknown)) == ({}, {CLICKS, ORDERS})
    assert "kretain segments scan" in found.outcomes[0].notes()[0].text


@pytest.mark.parametrize(
    ("used", "managed", "unknown"), [(600, {CLICKS, ORDERS, NEW}, {NEW}), (400, {NEW}, set())], ids=["full", "not full"]
)
def test_partition_newer_than_the_inventory_is_unknown_only_on_a_full_disk(
    used: int, managed: set[TopicPartition], unknown: set[TopicPartition]
) -> None:
    assert (
        walked(used, limits=dict.fromkeys(managed, FREE), replicas={CLICKS: 300, ORDERS: 200, NEW: 5}).unknown.keys()
        == unknown
    )


LOG = Log(0, [NOW - HOUR] * 20, floor=12)


@pytest.mark.parametrize(
    ("log", "chosen", "limit"),
    [
        (LOG, Settings(), Limit(12, Code.G2, "group:a has read up to 12")),
        (LOG, Settings(min_wallclock_ms=99 * HOUR), Limit(12, Code.G2, "group:a has read up to 12")),
        (LOG, Settings(unconsumed="trim"), Limit(20, Code.G1, "the high watermark")),
        (replace(LOG, stable=15), Settings(unconsumed="trim"), Limit(15, Code.G1, "an open transaction begins at 15")),
    ],
    ids=["the floor", "not the wall clock: G3 guards all but R6", "the high watermark", "an open transaction"],
)
def test_r6_stops_at_the_floor_unless_the_policy_allows_more(log: Log, chosen: Settings, limit: Limit) -> None:
    """G2, and G1 behind it."""
    facts = log.facts(chosen)
    assert disk_limit(facts, TopicRules(facts.topic, chosen, NOW)) == limit


@pytest.mark.parametrize(
    ("log", "chosen", "about"),
    [
        (replace(LOG, floor=UNKNOWN), Settings(), topic()),
        (LOG, Settings(hold="legal", unconsumed="trim"), topic()),
        (LOG, Settings(unconsumed="trim"), topic(internal=True)),
        (LOG, Settings(unconsumed="trim"), topic(cleanup_policy=frozenset({"compact"}))),
        (LOG, Settings(unconsumed="trim"), topic("x-changelog")),
        (LOG, Settings(unconsumed="trim", unsettled=UNKNOWN), topic()),
        (LOG, Settings(unconsumed="trim"), topic(topic_id=UNKNOWN)),
        (replace(LOG, stamps=[]), Settings(unconsumed="trim"), topic()),
    ],
    ids=["floor unknown", "hold", "internal", "compact", "changelog", "unsettled", "no id", "empty"],
)
def test_r6_limit_is_unknown_for_a_partition_that_no_rule_may_trim(log: Log, chosen: Settings, about: object) -> None:
    facts = log.facts(chosen, about)  # type: ignore[arg-type]
    assert why(disk_limit(facts, TopicRules(facts.topic, chosen, NOW)))


WHY = Reason("R6", "among the oldest")


def test_r6_raises_a_decision_only_above_other_rules_and_up_to_the_limit() -> None:
    chosen, limit = Settings(), Limit(12, Code.G2, "group:a")
    facts = LOG.facts(chosen)
    before = decide(facts, chosen, NOW)
    after = raised(facts, chosen, before, 9, limit, WHY)
    assert (after.action, after.trim_to, after.rule, after.records, after.limited_by, after.reasons[0]) == (
        *("trim", 9, "disk-usage", 9, None),
        WHY,
    )
    assert raised(facts, chosen, before, 12, limit, WHY).limited_by == "G2"
    for one, offset in ((before, 13), (after, 9), (before, 0)):
        assert raised(facts, chosen, one, offset, limit, WHY) == one, offset


@pytest.mark.parametrize(
    ("bases", "expected"),
    [([0, 5, 8], ("trim", 8, "R6")), (None, ("hold", None, "granularity"))],
    ids=["known", "unknown"],
)
def test_r6_target_is_rounded_down_to_a_segment_base_with_whole_segments(
    bases: list[int] | None, expected: tuple[str, int | None, str]
) -> None:
    chosen = Settings(whole_segments=True)
    facts = LOG.facts(chosen) if bases is None else LOG.facts(chosen)._replace(segment_bases=bases)
    found = raised(facts, chosen, decide(facts, chosen, NOW), 9, Limit(12, Code.G2, "group:a"), WHY)
    assert (found.action, found.trim_to, found.reasons[-1].code) == expected


@pytest.mark.parametrize(
    ("used", "kafka", "percent", "drawn"),
    [
        (600, 500, None, "█████▒····"),
        (600, 500, 80, "█████▒··|··"),
        (1000, 1000, 50, "█████|█████"),
        (1, 0, 100, "··········|"),
    ],
)
def test_disk_usage_is_drawn_as_a_bar(used: int, kafka: int, percent: float | None, drawn: str) -> None:
    room = Room(1000, used, kafka)
    assert bar(DiskOutcome(Disk(1, ("/a",), room, {}), percent), room, 10) == drawn


def orders_in(usable_bytes: int, orders_bytes: int, clicks_bytes: int) -> LogDirState:
    return log_dir("/a", 1000, usable_bytes, [replica(ORDERS, orders_bytes), replica(CLICKS, clicks_bytes)])


SHRINKS = [orders_in(500, *sizes) for sizes in ((500, 10), (390, 50), (480, 90), (470, 130))]
"""A replica fell by 110, then as much was written to another and to it: what is written is not netted off."""


@pytest.mark.parametrize(
    ("dirs", "at_most_s", "delay_s", "pauses", "said"),
    [
        ([orders_in(400, 380, 10), orders_in(400, 380, 10), orders_in(520, 380, 10)], 60, 60, 2, ()),
        ([orders_in(400, 380, 10)], 60, 0, None, ("at 60.0 %, 100 B above its ceiling of 50 %", "written meanwhile")),
        (
            [orders_in(400, 380, 10)],
            0,
            60,
            None,
            ("100 B above its ceiling of 50 %", "files that are still to be removed"),
        ),
        ([orders_in(500, 500, 10), orders_in(500, 500, 10), orders_in(500, 380, 10)], 60, 0, 2, ()),
        ([orders_in(500, 500, 10)], 0, 0, None, ("brokers have freed 0 B of 120 B",)),
        (SHRINKS, 60, 0, None, ()),
    ],
    ids=["files gone", "writers took it", "files still there", "replica smaller", "time is up", "written meanwhile"],
)
def test_trim_wait_ends_once_space_is_freed_or_names_the_missing_bytes(
    dirs: list[LogDirState], at_most_s: float, delay_s: float, pauses: int | None, said: tuple[str, ...]
) -> None:
    """``trim --wait``: brokers count segments no more before their files are deleted (``file.delete.delay.ms``)."""
    paused: list[float] = []
    before = DiskOutcome(Disk(1, ("/a",), Room(1000, 600, 510), {ORDERS: 500, CLICKS: 10}), 50, freed_bytes=120)
    reader = log_dirs_by_turns(iter([{1: [one]} for one in dirs]))
    until = time.monotonic() + at_most_s if at_most_s else 0
    found = wait_for_space(reader, [before], R6, until, pause=paused.append, delay_s=delay_s)
    assert len(found) == bool(said)
    assert all(text in found[0].text for text in said)
    assert pauses in (None, len(paused))


def test_r6_trims_a_measured_partition_and_holds_an_unmeasured_one() -> None:
    """Of two partitions alike one has a bound, of the other nobody knows whether it is still the same log (M1)."""
    chosen = Settings()
    facts = LOG.facts(chosen)
    before, limit = decide(facts, chosen, NOW), disk_limit(facts, TopicRules(facts.topic, chosen, NOW))
    lost = Unknown.because("R6", "its leader changed")
    gone = after_disks(facts, chosen, before, limit, (10, Reason("R6", "the oldest")), None)
    held = after_disks(facts, chosen, before, limit, None, lost)
    assert (gone.action, gone.trim_to) == ("trim", 10)
    assert (held.action, held.trim_to, held.reasons) == ("hold", None, lost.reasons)
    assert after_disks(facts, chosen, before, limit, None, None) == before


@pytest.mark.parametrize(
    ("about", "chosen", "stopped"),
    [
        (topic(), Settings(), None),
        (topic(tiered=True), Settings(), "tiered: trim"),
        (topic(tiered=True), Settings(trim_tiered=True), None),
        (topic(diskless=True), Settings(trim_tiered=True), "diskless"),
        (topic(tiered=True, diskless=True), Settings(trim_tiered=True), "diskless"),
    ],
)
def test_r6_leaves_a_topic_alone_that_is_not_on_disks_alone(
    about: TopicFacts, chosen: Settings, stopped: str | None
) -> None:
    found = off_disks(about, chosen)
    assert (found is None) if stopped is None else (found is not None and stopped in found.reasons[0].text)


# -- a pass that looks at the disks again, for the partitions that had to be read again, forgets no disk --


FIRST, AGAIN = TopicPartition("a", 0), TopicPartition("a", 1)


def test_partition_with_a_replica_on_a_silent_broker_stays_held_after_a_second_look() -> None:
    """R6 holds every partition with a replica there, not those alone that were read again."""
    state = DiskRun(DiskRules())
    answer: Any = {1: [LogDirState("/a", 1_000, 500)], 2: RequestFailedError("timed out", retriable=True)}
    reader = log_dirs_by_turns(repeat(answer))
    leaders = {tp: PartitionMetadata(1, 0, (1, 2)) for tp in (FIRST, AGAIN)}
    for some in (leaders, {AGAIN: leaders[AGAIN]}):
        state.take_samples(reader, {}, {}, some, Remembered(Ledger(None), {}, some, 0, 0), lambda: 0)
    assert [set(one.replicas) for one in state.disks if not one.dirs] == [{FIRST, AGAIN}]


# -- rules of disks where they are not carried out (several clusters): refused, never ignored; and in saved plans --

FULL = DiskOutcome(
    Disk(1, ("/a",), Room(1000, 650, 500), {ORDERS: 500}),
    50.0,
    excess_bytes=150,
    freed_bytes=100,
    short_bytes=50,
    level_ms=7,
    in_the_way=[Blocker(ORDERS, 50, "G2", "group:billing")],
)
DARK = DiskOutcome(Disk(2, ("/a",), Unknown.because("disk", "offline"), {}), 50.0, Unknown.because("disk", "offline"))
MADE = replace(EVERY, disks=(FULL, DARK))


def policy_with(disks: str = "", entry: str = "retention.ms: 1d") -> Policy:
    return parse_policy(
        f"version: 1\n{disks and f'disks: {disks}'}\ntopics:\n  - match: '*'\n    {entry}\n", "p.yaml", ""
    )


@pytest.mark.parametrize(
    ("policy", "needs"),
    [
        (policy_with("{log.retention.disk.usage.percent: 80}"), True),
        (policy_with("{watermarks: [{percent: 75, factor: 0.5, minimum: 1d}]}"), True),
        (policy_with(entry="retention.bytes: 1GiB"), True),
        (policy_with(entry="retention.topic.bytes: 1GiB"), True),
        (policy_with(entry="granularity: segment"), True),
        (policy_with(""), False),
        (policy_with("{capacity: 1TiB}"), False),
        (policy_with("{log.retention.disk.usage.percent: 100}"), False),
    ],
)
def test_policy_with_a_ceiling_watermarks_sizes_or_segments_needs_disks(policy: Policy, needs: bool) -> None:
    assert policy.needs_disks is needs


# -- the command line ----------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text("version: 1\ntopics: [{match: '*', retention.ms: 1d}]\n")
    lines = ["version: 1", "policy: p.yaml", "clusters:"]
    lines += [f"  - {{name: {name}, bootstrap-server: 'localhost:{port}'}}" for name, port in (("eu", 1), ("us", 2))]
    (tmp_path / "fleet.yaml").write_text("\n".join(lines))
    return tmp_path


def failed(folder: Path, code: int | None, *arguments: str) -> str:
    """Run a command that fails with this exit code, None for any; return what it says."""
    env = {"HOME": str(folder), "KRETAIN_STATE_DIR": str(folder / "state"), "COLUMNS": "200"}
    with contextlib.chdir(folder):
        done = run_cli(*arguments, check=code, **env)
    assert (done.code != 0, "Traceback" in done.err) == (True, False)
    return done.err


ONE = "is for one cluster: name it with --cluster NAME"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("plan --fleet fleet.yaml --inventory i", f"--inventory {ONE}"),
        ("trim --fleet fleet.yaml --inventory i --dry-run", f"--inventory {ONE}"),
        ("trim --fleet fleet.yaml --wait --yes", f"--wait {ONE}"),
        ("trim -b localhost:1 -p p.yaml --wait --dry-run", "--wait has nothing to wait for in a --dry-run"),
    ],
)
def test_disk_options_that_contradict_each_other_are_a_usage_error(here: Path, arguments: str, says: str) -> None:
    assert says in failed(here, 2, *arguments.split())


def test_missing_inventory_in_a_fleet_fails_only_its_cluster(here: Path) -> None:
    (here / "p.yaml").write_text("version: 1\ndisks: {inventory: 'i*'}\ntopics: [{match: '*', retention.ms: 1d}]\n")
    says(failed(here, None, "plan", "--fleet", "fleet.yaml"), "eu: ", "disks.inventory: i* matches no file")


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("inventory/*.parquet", "disks.inventory: inventory/*.parquet matches no file"),
        ("inventory/b.parquet", "inventory/b.parquet"),
        ("inventory", "no inventory"),
        ("['inventory/a?.parquet', '{there}/*.gone']", "inventory/a?.parquet matches no file"),
        ("'{there}/*.gone'", "*.gone matches no file"),
        ("broken.*", "broken.parquet"),
    ],
)
def test_missing_or_broken_inventory_of_the_policy_is_an_error(here: Path, named: str, says: str) -> None:
    """From the policy file's folder, wherever kretain is started; nothing is asked of a cluster before."""
    folder, elsewhere = here / "policies", here / "elsewhere"
    (folder / "inventory").mkdir(parents=True)
    elsewhere.mkdir()
    (folder / "broken.parquet").write_bytes(b"broken")
    inventory = named.replace("{there}", str(folder))
    text = f"version: 1\ndisks:\n  inventory: {inventory}\ntopics: [{{match: '*', retention.ms: 1d}}]\n"
    (folder / "p.yaml").write_text(text)
    assert says in failed(elsewhere, 1, "plan", "-b", "localhost:1", "-p", "../policies/p.yaml")


@pytest.mark.parametrize("named", ["[]", "''", "7", "[a, 7]"])
def test_invalid_inventory_value_is_an_error_with_its_line(named: str) -> None:
    said = refusal(PolicyError, policy_with, f"{{inventory: {named}}}")
    says(said, "p.yaml:2", "inventory", "give a file, a folder or a glob")


def test_one_cluster_of_a_fleet_accepts_an_inventory(here: Path) -> None:
    """It goes on to the inventory, which is not there."""
    assert "nowhere.parquet" in failed(
        here, 1, "plan", "--fleet", "fleet.yaml", "--cluster", "eu", "--inventory", "nowhere.parquet"
    )


# -- saved ---------------------------------------------------------------------------------------------


def test_plan_with_disks_is_saved_with_them_and_read_back_without(tmp_path: Path) -> None:
    """They are for people and scripts; a trim decides afresh, so that nothing goes by what a file says of a disk."""
    text, columns = tmp_path / "plan.json", tmp_path / "plan.parquet"
    text.write_text(plan_text(MADE), encoding="utf-8")
    write_plan(columns, MADE)
    head = ParquetPlans(columns).head
    assert head["disks"] == json.loads(plan_text(MADE))["disks"] == [outcome_as_json(FULL), outcome_as_json(DARK)]
    assert {**head, "partitions": as_json(MADE)["partitions"]} == as_json(MADE)
    assert read_plan(columns) == read_plan(text) == EVERY
    check_saved(read_plan(columns), Selection(policy_with()), MADE.created_at_ms, 1000)


@pytest.mark.parametrize("kind", KINDS)
def test_fleet_plan_with_disks_is_saved_and_read_back_without_them(tmp_path: Path, kind: str) -> None:
    fleet = FleetPlan(MADE.created_at_ms, "fleet.yaml", None, {"eu": MADE})
    assert read_fleet(saved(tmp_path, fleet, kind)).plans["eu"]() == EVERY
