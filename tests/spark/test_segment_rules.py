"""The disk rules over Spark say what this process says by itself, of the same inventory (R5, R6)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_cli.core.model import Reason, Tail, TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks.inventory.inventory import InventoryError
from retention_cli.disks.inventory.inventory import read_inventory as read_here
from retention_cli.disks.solve.inventory_view import InventoryView
from retention_cli.disks.solve.leaving import Leaving
from retention_cli.disks.solve.oldest_first import OldestFirst
from retention_cli.disks.solve.oldest_first import oldest_first as local_oldest_first
from retention_cli.disks.solve.outcome import SHOWN, outcome_as_json
from retention_cli.disks.solve.room import Room
from retention_cli.engines.spark import inventory
from retention_cli.engines.spark.inventory import SparkInventory, read_inventory
from retention_cli.engines.spark.oldest_first import Walk, oldest_first
from retention_cli.engines.spark.scanned_replicas import scanned_replicas
from retention_cli.engines.spark.schemas import REASON
from retention_cli.engines.spark.segment_rules import bases, log_bytes, tails
from retention_cli.policy.settings import DiskRules, Settings
from tests.spark.inventories import Clusters, row, write
from tests.unit.facts import NOW, Log, topic

RULES = DiskRules(percent=50, shared=True)
CLUSTERS = 150


class Both:
    """One inventory, read by this process and by Spark, with what both are told of it."""

    def __init__(self, session: Any, clusters: Clusters, folder: Path) -> None:
        self.session, self.clusters = session, clusters
        paths = [write(folder, clusters.rows, clusters.incomplete)]
        self.view = InventoryView(read_here(paths))
        self.here = read_here(paths)
        self.inventory: SparkInventory = read_inventory(session, paths)

    def local(self, leaving: list[Leaving] | None = None) -> OldestFirst:
        known = self.clusters
        return local_oldest_first(
            self.view.segment_table(known.ids),
            known.disks,
            RULES,
            known.starts,
            known.decided,
            known.limits,
            known.leaving if leaving is None else leaving,
        )

    def partitions(self) -> Any:
        known, rows = self.clusters, []
        for tp in known.seen:
            limit = known.limits.get(tp)
            row: dict[str, Any] = {
                "topic": tp.topic,
                "partition": tp.partition,
                "topic_id": known.ids.get(tp),
                "managed": tp in known.limits,
                "log_start": known.starts.get(tp),
                "trim_to": known.decided.get(tp),
            }
            if limit is None:  # a limit of what is not managed allows nothing
                row |= {"limit_offset": 1000, "limit_guard": "G1", "limit_text": "the high watermark"}
            elif isinstance(limit, Limit):
                row |= {"limit_offset": limit.offset, "limit_guard": limit.guard, "limit_text": limit.text}
            else:
                row["limit_reasons"] = [{"code": one.code, "text": one.text} for one in limit.reasons]
            rows.append(row)
        return self.frame(rows, "topic_id log_start trim_to limit_offset limit_guard limit_text", managed=pa.bool_())

    def led(self) -> Any:
        """What bases are told."""
        known, rows = self.clusters, []
        for tp in known.leaders:
            led = {"topic_id": known.ids.get(tp), "leader": known.leaders[tp]}
            rows.append({"topic": tp.topic, "partition": tp.partition, **led})
        return self.frame(rows, "topic_id", leader=pa.int32())

    def frame(self, rows: list[dict[str, Any]], names: str, **more: Any) -> Any:
        texts = ("topic_id", "limit_guard", "limit_text")
        kinds = {"topic": pa.string(), "partition": pa.int32(), "limit_reasons": pa.list_(REASON)}
        kinds |= {name: pa.string() if name in texts else pa.int64() for name in names.split()} | more
        return self.session.createDataFrame(pa.Table.from_pylist(rows, pa.schema(list(kinds.items()))))


@pytest.fixture(scope="module")
def both(local_spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    clusters, chance = Clusters(), random.Random(5)
    for number in range(CLUSTERS):
        clusters.add(number, chance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inventory, "ROWS_A_BATCH", 7)  # replicas lie in several batches,
        patch.setattr(inventory, "ROWS_A_TASK", 100)  # of several tasks,
        patch.setattr(inventory, "ROWS_A_SLAB", 300)  # and in several slabs
        found = Both(local_spark, clusters, tmp_path_factory.mktemp("inventory") / "all")
    yield found
    found.inventory.close()


def test_the_inventory_says_the_same_of_itself(both: Both) -> None:
    assert both.inventory.incomplete == both.here.incomplete
    assert list(both.inventory.incomplete) == list(both.here.incomplete)
    assert any("it is in" in one for one in both.inventory.incomplete.values())
    assert both.inventory.rows == len(both.here.table)
    assert (both.inventory.files, both.inventory.cluster_id) == (both.here.files, "c")


def test_spark_takes_each_slab_to_a_task_of_its_own(both: Both) -> None:
    """By the hash of its key: a Spark with another hash would be slower, not wrong."""

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        found = {key for batch in batches for key in batch.column(0).to_pylist()}
        yield pa.RecordBatch.from_pydict({"keys": pa.array([len(found)], pa.int64())})

    rows = both.inventory.slabs.select("key").mapInArrow(count, "keys bigint").collect()
    assert len(rows) == len(both.inventory.keys) > 3
    assert {row["keys"] for row in rows} == {1}


def test_the_oldest_go_first_as_they_do_here(both: Both) -> None:
    """Bounds, what each disk comes to, and what stays unknown."""
    here = both.local()
    there = oldest_first(both.inventory, both.clusters.disks, RULES, both.partitions(), both.clusters.leaving)
    bounds = there.bounds
    unknown = {tp: [(one.code, one.text) for one in why.reasons] for tp, why in there.unknown.items()}
    assert bounds == here.bounds
    assert len(bounds) > CLUSTERS // 3
    for one, other in zip(there.outcomes, here.outcomes, strict=True):
        assert outcome_as_json(one) == outcome_as_json(other)
        assert one.notes() == other.notes()
        assert replace(one, in_the_way=(), unnamed=0) == replace(other, in_the_way=(), unnamed=0)
        assert tuple(one.in_the_way) == tuple(other.in_the_way[:SHOWN])
    assert unknown == {tp: [(r.code, r.text) for r in why.reasons] for tp, why in here.unknown.items()}
    assert len({text for why in unknown.values() for _, text in why}) > 20


def reasons(rows: Any) -> Unknown | None:
    return None if rows is None else Unknown(tuple(Reason(one["code"], one["text"]) for one in rows))


def test_segments_begin_where_the_leaders_do(both: Both) -> None:
    """``granularity: segment``: what the inventory does not hold of a leader is unknown."""
    known = both.clusters
    here = both.view.bases(known.leaders, known.ids)
    rows = bases(both.inventory, both.led()).collect()
    there = {TopicPartition(row[0], row[1]): reasons(row["reasons"]) or row["bases"] for row in rows}
    assert there == here
    assert len({str(one) for one in here.values() if isinstance(one, Unknown)}) > 3
    assert any(isinstance(one, list) and len(one) > 2 for one in here.values())


def test_tails_are_counted_as_they_are_here(both: Both) -> None:
    """R5, per partition and per topic."""
    known = both.clusters
    settings = {name: Settings(max_bytes=each, max_topic_bytes=both) for name, (each, both) in known.most.items()}
    facts = {}
    for tp in sorted(known.leaders):
        log = Log(0, [NOW] * 3).facts(Settings(), topic())._replace(partition=tp.partition)
        facts[tp] = log._replace(log_start=known.starts.get(tp, Unknown.because("S", f"no start of {tp}")))
    here = both.view.tails(facts, settings, known.leaders, known.ids)
    there = tails(both.inventory, facts, settings, known.leaders, known.ids)
    assert there == here
    offsets = [one.offset for found in here.values() for one in found.values() if isinstance(one, Tail)]
    assert len(set(offsets)) > 20


def test_replicas_are_summed_up_as_they_are_here(both: Both) -> None:
    """What is compared with the cluster before rows are believed (R6)."""
    known = both.clusters
    here = {(one.broker, one.dir, one.tp): one for one in both.view.replicas(known.starts)}
    there = [*scanned_replicas(both.inventory, known.starts)]
    assert {(one.broker, one.dir, one.tp): one for one in there} == here
    assert len(there) == len(here) > 3 * CLUSTERS
    assert {one.topic_id for one in there} == {"now", "before", "after", None}
    assert {one.leader_epoch for one in there} > {None, 0, 1, 2}
    assert any(one.live_bytes < one.log_bytes - one.active_bytes for one in there)


def test_the_bytes_of_trims_are_what_they_are_here(both: Both) -> None:
    """Exact at boundaries, in proportion within a segment, and none where the inventory has not all of it."""
    known, chance = both.clusters, random.Random(3)
    trims = {}
    for tp in sorted(known.leaders):
        start = known.starts.get(tp, 0)
        trims[tp] = (start, start + chance.randint(1, 40))
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "topic_id": known.ids.get(tp), "leader": known.leaders[tp]}
        | {"log_start": low, "trim_to": high}
        for tp, (low, high) in trims.items()
    ]
    frame = both.frame(rows, "topic_id log_start trim_to", leader=pa.int32())
    found = {
        TopicPartition(row[0], row[1]): (row["size"], row["exact"])
        for row in log_bytes(both.inventory, frame).collect()
    }
    assert found == both.view.log_bytes(trims, known.leaders, known.ids)
    assert {exact for _, exact in found.values()} == {True, False}
    assert CLUSTERS // 3 < len(found) < len(trims)


def test_a_walk_may_be_repeated_with_more_that_is_leaving(both: Both) -> None:
    """As it is until the bytes that its own bounds free are counted: the first pass is not made again."""
    known = both.clusters
    more = [one._replace(doubted_bytes=one.doubted_bytes + 9) for one in known.leaving]
    with Walk(both.inventory, known.disks, RULES, both.partitions()) as walk:
        first, second = walk.oldest_first(known.leaving), walk.oldest_first(more)
    assert first.bounds == both.local().bounds
    assert second.bounds == both.local(more).bounds != first.bounds


def test_nothing_goes_where_no_disk_is_too_full(both: Both) -> None:
    roomy = [replace(disk, room=Room(10**9, 1, 1)) for disk in both.clusters.disks]
    found = oldest_first(both.inventory, roomy, RULES, both.partitions())
    assert found.bounds == {}
    assert not any(one.freed_bytes or one.short_bytes or one.in_the_way for one in found.outcomes)
    assert any(one.other_rules_bytes for one in found.outcomes)


def test_slabs_of_which_nothing_goes_stop_no_walk(both: Both) -> None:
    """One disk alone is too full, so most slabs have no candidate."""
    known = both.clusters
    full = next(n for n, one in enumerate(both.local().outcomes) if one.freed_bytes)
    some = [disk if n == full else replace(disk, room=Room(10**9, 1, 1)) for n, disk in enumerate(known.disks)]
    here = local_oldest_first(
        both.view.segment_table(known.ids), some, RULES, known.starts, known.decided, known.limits, known.leaving
    )
    there = oldest_first(both.inventory, some, RULES, both.partitions(), known.leaving)
    assert there.bounds == here.bounds != {}
    assert [one.freed_bytes for one in there.outcomes] == [one.freed_bytes for one in here.outcomes]


def test_replicas_are_summed_up_where_no_log_start_is_known(both: Both) -> None:
    there = {(one.broker, one.dir, one.tp): one for one in scanned_replicas(both.inventory, {})}
    assert there == {(one.broker, one.dir, one.tp): one for one in both.view.replicas({})}


def test_an_inventory_that_changes_meanwhile_is_refused(both: Both) -> None:
    """Also where a partition is named twice: its segments would count twice."""
    rows = both.partitions()
    with pytest.raises(InventoryError, match="changed while it was read"):
        oldest_first(both.inventory, both.clusters.disks, RULES, rows.union(rows))


TP = TopicPartition("orders", 0)
GOOD = [row(1, "/a", TP, base, base + 10, largest_timestamp=base) for base in range(0, 100, 10)]
OTHER = [one | {"mtime": 2} for one in GOOD]
APART = [*GOOD, row(1, "/b", TP, 0, 10), *GOOD[:1]]
LAPPING = [*GOOD[:4], GOOD[4] | {"next_offset": 51}, *GOOD[5:]]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (APART, "orders-0 in /a stands in two places"),
        (LAPPING, "orders-0 at offset 50 begins before the one before it ends"),
        ([*GOOD[:5], *GOOD[4:]], "orders-0 at offset 40 is there twice or out of order"),
        ([*GOOD, row(1, "/b", TP, 0, 10, bytes=-1)], "orders-0 at offset 0 has a negative size"),
    ],
)
def test_rows_that_no_scan_writes_are_refused_as_they_are_here(
    local_spark: Any, tmp_path: Path, rows: list[Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where two batches meet: they hold five rows here."""
    folder = write(tmp_path / "all", rows, {}, ordered=False)
    with pytest.raises(InventoryError) as here:
        read_here([folder])
    monkeypatch.setattr(inventory, "ROWS_A_BATCH", 5)
    with pytest.raises(InventoryError) as there:
        read_inventory(local_spark, [folder])
    assert said in str(here.value)
    assert str(there.value) == str(here.value)


def test_executors_must_read_the_files_that_this_process_sees(
    local_spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, fewer, other = (
        write(tmp_path / name, rows, {}) for name, rows in (("here", GOOD), ("fewer", GOOD[1:]), ("[1]", OTHER))
    )
    monkeypatch.setattr(inventory, "place_of", lambda path: str(fewer / path.name))
    with pytest.raises(InventoryError, match="has 10 rows here, and 9 where Spark reads it: it must lie, by the same"):
        read_inventory(local_spark, [here])
    monkeypatch.setattr(inventory, "place_of", lambda path: str(other / path.name))
    with pytest.raises(InventoryError, match="is another file where Spark reads it: it must lie, by the same path"):
        read_inventory(local_spark, [here])
    monkeypatch.setattr(inventory, "place_of", lambda path: f"/nowhere/{path.name}")
    with pytest.raises(
        InventoryError, match=r"Spark can't read the inventory: .*; it must lie, by the same path"
    ) as found:
        read_inventory(local_spark, [here])
    assert "\n" not in str(found.value)
