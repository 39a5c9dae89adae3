"""An inventory asked by the rules: leaders' segments alone, of today's topics, and what it does not hold is unknown."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, NotFound
from retention_cli.core.model import Maybe, PartitionFacts, Tail, TopicPartition, Unknown
from retention_cli.disks.disk import Disk, Room
from retention_cli.disks.inventory.format import Inventory, InventoryError, InventoryFile, ScannedReplica, schema
from retention_cli.disks.inventory_view import InventoryView, doubt, doubts_of
from retention_cli.disks.water_level import NO_END, UNDATED
from retention_cli.policy.settings import Settings
from tests.support.disks import view_of
from tests.support.facts import NOW, Log, known, topic, why
from tests.support.says import refusal

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
IDS = {T0: "id-1", T1: "id-1"}


def row(broker: int, tp: TopicPartition, base: int, size: int, time: int, *, active: bool = False, **more: Any) -> dict:
    plain = {
        "broker": broker,
        "dir": "/a",
        "topic": tp.topic,
        "topic_id": "id-1",
        "partition": tp.partition,
        "base_offset": base,
        "next_offset": base + 10,
        "bytes": size + 1,
        "log_bytes": size,
        "first_timestamp": time,
        "largest_timestamp": time,
        "mtime": time,
        "active": active,
        "tiered": False,
        "problem": None,
    }
    return plain | more


ROWS = [
    row(1, T0, 0, 100, 10),
    row(1, T0, 10, 100, 30),
    row(1, T0, 20, 50, 40, active=True),
    row(1, T1, 0, 100, 20),
    row(1, T1, 10, 30, 50, active=True),
    row(2, T0, 0, 100, 10, next_offset=15),
    row(2, T0, 15, 150, 40, active=True),
]


def view(rows: list[dict] = ROWS, incomplete: dict | None = None) -> InventoryView:
    table = pa.Table.from_pylist(rows, schema=schema())
    for name in ("dir", "topic", "topic_id"):
        table = table.set_column(table.schema.get_field_index(name), name, table.column(name).dictionary_encode())
    return InventoryView(Inventory((InventoryFile("a.parquet", 1, "cluster-1", NOW, ()),), table, incomplete or {}))


def facts(tp: TopicPartition, start: int = 0, end: int = 30) -> PartitionFacts:
    return Log(start, [NOW] * (end - start)).facts(Settings(), topic())._replace(partition=tp.partition)


def tails(found: InventoryView, chosen: Settings, **leaders: int | None) -> list[Maybe[Tail]]:
    """Return the only bound of T0, and that of T1."""
    led = {T0: leaders.get("t0", 1), T1: leaders.get("t1", 1)}
    bounds = found.tails({T0: facts(T0), T1: facts(T1, end=20)}, {"orders": chosen}, led, IDS)
    return [one for tp in (T0, T1) for one in bounds[tp].values()]


def test_segment_bases_are_those_of_the_leaders_replica() -> None:
    assert (view().bases({T0: 1, T1: 1}, IDS), view().bases({T0: 2}, IDS)) == (
        {T0: [0, 10, 20], T1: [0, 10]},
        {T0: [0, 15]},
    )


@pytest.mark.parametrize("other", ["id-0", "id-2", None])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_replica_of_two_topic_ids_has_none(other: str | None, at: int) -> None:
    assert [
        one.topic_id
        for one in view([one | {"topic_id": other} if n == at else one for n, one in enumerate(ROWS)]).replicas({})
    ] == [None, "id-1", "id-1"]


def test_bases_of_an_unread_replica_or_another_topic_are_unknown() -> None:
    assert "an index is broken" in why(
        view(incomplete={(1, "orders", 0): "an index is broken"}).bases({T0: 1, T1: 1}, IDS)[T0]
    )
    for topic_id in ("id-2", None):
        assert all(
            isinstance(one, Unknown)
            for one in view([one | {"topic_id": topic_id} for one in ROWS]).bases({T0: 1, T1: 1}, IDS).values()
        )


@pytest.mark.parametrize(
    ("chosen", "leaders", "expected"),
    [
        pytest.param(Settings(max_bytes=150), {}, [10, 0], id="closed segments that are not needed"),
        pytest.param(Settings(max_bytes=149), {}, [20, 0], id="one byte less"),
        pytest.param(Settings(max_bytes=150), {"t0": 2}, [15, 0], id="another leader"),
        pytest.param(Settings(max_bytes=1), {"t0": None}, [None, 10], id="no leader"),
        pytest.param(Settings(max_topic_bytes=300), {}, [10, 0], id="the oldest segments of the topic"),
        pytest.param(Settings(max_topic_bytes=200), {}, [10, 10], id="of both partitions"),
        pytest.param(Settings(max_topic_bytes=300), {"t1": 3}, [None, None], id="one unknown partition holds all"),
    ],
)
def test_size_tail_is_counted_by_the_leaders_log_bytes(
    chosen: Settings, leaders: dict[str, int | None], expected: list[int | None]
) -> None:
    """R5: ``log_bytes``, as brokers count a partition's size; indexes are not in it."""
    found = [None if isinstance(one, Unknown) else one for one in tails(view(), chosen, **leaders)]
    assert found == [None if offset is None else Tail(offset, exact=True) for offset in expected]


@pytest.mark.parametrize(
    ("undated", "most", "expected"),
    [
        pytest.param(0, 300, None, id="the other's younger segment would go in its place"),
        pytest.param(0, 400, [0, 0], id="all fits"),
        pytest.param(3, 200, None, id="in the other partition"),
        pytest.param(1, 300, [10, 0], id="behind what goes"),
        pytest.param(1, 200, None, id="behind what goes, and before what goes of the other"),
    ],
)
def test_topic_with_a_segment_without_a_time_is_trimmed_only_of_what_is_older_for_certain(
    undated: int, most: int, expected: list[int] | None
) -> None:
    """R5."""
    rows = [one | {"largest_timestamp": None} if n == undated else one for n, one in enumerate(ROWS)]
    found = tails(view(rows), Settings(max_topic_bytes=most))
    if expected is None:
        assert ["how old its records from" in why(one) for one in found] == [True, True]
    else:
        assert found == [Tail(offset, exact=True) for offset in expected]


def test_inventory_of_another_cluster_is_refused() -> None:
    view().inventory.check_cluster("cluster-1")
    assert "cluster-2" in refusal(InventoryError, view().inventory.check_cluster, "cluster-2")


@pytest.mark.parametrize(
    ("trim", "leader", "told"),
    [
        ((0, 10), 1, (100, True)),
        ((0, 20), 1, (200, True)),
        ((10, 20), 1, (100, True)),
        ((0, 15), 1, (150, False)),  # a segment that is cut counts by its offsets
        ((3, 20), 1, (170, False)),
        ((4, 6), 1, (20, False)),
        ((0, 31), 1, None),  # written after the scan
        ((0, 15), 2, (100, True)),
        ((0, 10), 3, None),
        ((0, 10), None, None),
    ],
)
def test_trimmed_bytes_are_those_of_the_leaders_log(
    trim: tuple[int, int], leader: int | None, told: tuple[int, bool] | None
) -> None:
    assert view().log_bytes({T0: trim}, {T0: leader}, IDS).get(T0) == told


def test_trimmed_bytes_are_unknown_for_a_broken_replica_or_another_topic() -> None:
    assert (
        view(incomplete={(1, "orders", 0): "broken"}).log_bytes({T0: (0, 10)}, {T0: 1}, IDS),
        view().log_bytes({T0: (0, 10)}, {T0: 1}, {T0: "id-2"}),
    ) == ({}, {})
    open_end = [one | {"next_offset": None} if one["active"] else one for one in ROWS]
    assert view(open_end).log_bytes({T0: (0, 20), T1: (0, 15)}, {T0: 1, T1: 1}, IDS) == {T0: (200, True)}


UNSORTED = (
    (2, "/b", "orders", 1, 0, 10, 5, 100, False),
    (1, "/a", "orders", 10, 0, 10, 6, None, True),
    (1, "/b", "billing", 0, 0, None, 7, 300, False),
    (1, "/a", "orders", 1, 10, 20, 8, 400, False),
)


def encoded(*rows: tuple[Any, ...]) -> InventoryView:
    return view_of(
        [
            (broker, path, TopicPartition(topic, number), "id", base, following, size, size, time, active, None)
            for broker, path, topic, number, base, following, size, time, active in rows
        ]
    )


def test_partitions_and_dirs_are_numbered_in_sorted_order() -> None:
    """R6 breaks ties by (topic, partition): the numbers must stand in that order, 10 behind 9."""
    found = encoded(*UNSORTED)
    assert (
        [str(found.partitions[n]) for n in found.segments.partition.tolist()],
        list(found.partitions),
        [found.dirs[n] for n in found.segments.disk.tolist()],
    ) == (
        ["orders-1", "orders-10", "billing-0", "orders-1"],
        sorted(found.partitions),
        [(2, "/b"), (1, "/a"), (1, "/b"), (1, "/a")],
    )


def test_unknown_time_or_end_of_a_segment_has_a_marker_value() -> None:
    segments = encoded(*UNSORTED).segments
    assert (segments.largest_timestamp.tolist(), segments.next_offset.tolist(), segments.active.tolist()) == (
        [100, UNDATED, 300, 400],
        [10, 10, NO_END, 20],
        [False, True, False, False],
    )


# -- an inventory is believed only as far as the cluster bears it out (R6) --


MIB = 1 << 20
TP = TopicPartition("orders", 0)
FACTS = Log(10, [0] * 90).facts(Settings(), topic(TP.topic))
ID: Any = FACTS.topic.topic_id
GOOD = ScannedReplica(1, "/a", TP, ID, 1, 80, 0, 80, 100, 10 * MIB, 8 * MIB, MIB // 2, 0, 0, 5)
EPOCH = 5
TODAY = FACTS._replace(leader_epoch=EPOCH)


@pytest.mark.parametrize(
    ("one", "size"),
    [
        (GOOD, 17 * MIB // 2),
        (GOOD, 10 * MIB),
        (GOOD, None),
        # half of what the log has by now, in offsets as in bytes: the rest was written since the scan
        (GOOD._replace(end=50, last_base=40, active_base=40), 20 * MIB),
    ],
)
def test_inventory_that_fits_the_cluster_is_trusted(one: ScannedReplica, size: int | None) -> None:
    assert doubt(one, FACTS, size) is None


@pytest.mark.parametrize(
    ("one", "size", "said"),
    [
        (GOOD._replace(topic_id="another"), 10 * MIB, "scanned before the topic was recreated"),
        (GOOD._replace(topic_id=None), 10 * MIB, "no topic id"),
        (GOOD._replace(actives=0, active_base=-1), 10 * MIB, "no active segment"),
        (GOOD._replace(actives=2), 10 * MIB, "more than one active"),
        (GOOD._replace(active_base=60), 10 * MIB, "behind the active"),
        (GOOD._replace(last_base=101, active_base=101), 10 * MIB, "reach offset 101"),
        (GOOD, -1, "no longer in /a"),
        (GOOD, 7 * MIB, "its broker says 7.00 MiB in all"),
        (GOOD._replace(log_bytes=9, live_bytes=5, active_bytes=2), 10 * MIB, "more than was written since"),
        (GOOD, 8 * MIB, "its broker says 8.00 MiB in all"),
        (GOOD._replace(end=-1), 8 * MIB, "its broker says 8.00 MiB in all"),
        (GOOD._replace(first_base=11), 10 * MIB, "begin at offset 11, but its log at 10"),
    ],
)
def test_inventory_that_contradicts_the_cluster_is_doubted(one: ScannedReplica, size: int, said: str) -> None:
    text = known(doubt(one, FACTS, size))
    assert said in text
    assert "scan again" in text


def test_replica_created_after_the_scan_is_doubted_unless_unmanaged() -> None:
    disks = [Disk(n, ("/a",), Room(100, 50, 50), {TP: 10 * MIB}) for n in (1, 2)]
    other = ScannedReplica(2, "/a", TopicPartition("other", 0), "x", 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, None)
    assert set(doubts_of([GOOD, other], disks, {TP: TODAY}, {})) == {(2, "orders", 0)}
    assert doubts_of([GOOD], disks, {TP: TODAY}, {}) == {}, "nothing was scanned on broker 2"
    assert doubts_of([GOOD], [Disk(1, ("/a",), Unknown.because("disk", "offline"), {})], {TP: TODAY}, {}) == {}


@pytest.mark.parametrize(
    ("one", "now", "end", "said"),
    [
        (GOOD, 5, None, ""),
        (GOOD, 7, Found(100), ""),
        (GOOD, 7, Found(120), ""),
        (GOOD, 7, Found(99), "leader epoch 5 now ends at 99, but the scan reached 100"),
        (GOOD, 7, None, "of the scan ends: scan again"),
        (GOOD, 7, RequestFailedError("timed out", retriable=True), "of the scan ends (timed out)"),
        (GOOD, 7, NotFound(), "no longer has: the log was cut"),
        (GOOD, None, Found(99), "ends at 99"),
        (GOOD, 4, None, "under leader epoch 5, which this log never had"),
        (GOOD._replace(leader_epoch=None), 0, None, ""),
        (GOOD._replace(leader_epoch=None), 1, None, "does not say under which leader epoch"),
        (GOOD._replace(leader_epoch=None), None, None, "does not say under which leader epoch"),
    ],
)
def test_replica_truncated_since_the_scan_is_doubted(
    one: ScannedReplica, now: int | None, end: Answer | None, said: str
) -> None:
    """A log that was cut and has grown again has the same offsets, and other records (M1)."""
    disks = [Disk(1, ("/a",), Room(100, 50, 50), {TP: 10 * MIB})]
    found = doubts_of([one], disks, {TP: FACTS._replace(leader_epoch=now)}, {} if end is None else {(TP, 5): end})
    assert found.keys() == ({(1, "orders", 0)} if said else set())
    assert all(said in text and "scan again" in text for text in found.values())
