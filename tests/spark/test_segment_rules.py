"""The disk rules over Spark say what this process says by itself, of the same inventory (R5, R6)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

from retention_cli.core.model import Reason, Tail, TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks.inventory.inventory import InventoryError
from retention_cli.disks.inventory.inventory import read_inventory as read_here
from retention_cli.disks.solve.inventory_view import InventoryView
from retention_cli.disks.solve.oldest_first import OldestFirst
from retention_cli.disks.solve.oldest_first import oldest_first as local_oldest_first
from retention_cli.disks.solve.outcome import SHOWN, outcome_as_json
from retention_cli.disks.solve.room import Room
from retention_cli.engines.spark import disk_rows, inventory
from retention_cli.engines.spark.inventory import SparkInventory, read_inventory
from retention_cli.engines.spark.oldest_first import oldest_first
from retention_cli.engines.spark.schemas import REASON
from retention_cli.engines.spark.segment_rules import bases, tails
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

    def local(self) -> OldestFirst:
        known = self.clusters
        return local_oldest_first(
            self.view.segment_table(known.ids),
            known.disks,
            RULES,
            known.starts,
            known.decided,
            known.limits,
            known.leaving,
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
    local_spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")  # replicas lie in several
    found = Both(local_spark, clusters, tmp_path_factory.mktemp("inventory") / "all")
    local_spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    yield found
    found.inventory.close()


def test_the_inventory_says_the_same_of_itself(both: Both) -> None:
    assert both.inventory.incomplete == both.here.incomplete
    assert list(both.inventory.incomplete) == list(both.here.incomplete)
    assert any("it is in" in one for one in both.inventory.incomplete.values())
    assert both.inventory.rows == len(both.here.table)
    assert (both.inventory.files, both.inventory.cluster_id) == (both.here.files, "c")


@pytest.mark.parametrize("sieve_from", [pytest.param(10**9, marks=pytest.mark.thorough), 0])
def test_the_oldest_go_first_as_they_do_here(both: Both, sieve_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds, what each disk comes to, and what stays unknown."""
    monkeypatch.setattr(disk_rows, "SIEVE_FROM", sieve_from)
    here = both.local()
    partitions = both.partitions()
    with oldest_first(both.inventory, both.clusters.disks, RULES, partitions, both.clusters.leaving) as there:
        bounds = {TopicPartition(row[0], row[1]): row["bound"] for row in there.bounds.collect()}
        unknown = {
            TopicPartition(row[0], row[1]): [(one["code"], one["text"]) for one in row["reasons"]]
            for row in there.unknown.collect()
        }
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


def test_nothing_goes_where_no_disk_is_too_full(both: Both) -> None:
    roomy = [replace(disk, room=Room(10**9, 1, 1)) for disk in both.clusters.disks]
    with oldest_first(both.inventory, roomy, RULES, both.partitions()) as found:
        assert found.bounds.collect() == []
        assert not any(one.freed_bytes or one.short_bytes or one.in_the_way for one in found.outcomes)
        assert any(one.other_rules_bytes for one in found.outcomes)


def test_an_inventory_that_changes_meanwhile_is_refused(both: Both) -> None:
    """Also where a partition is named twice: its segments would count twice."""
    rows = both.partitions()
    with pytest.raises(InventoryError, match="changed while it was read"):
        oldest_first(both.inventory, both.clusters.disks, RULES, rows.union(rows))


TP = TopicPartition("orders", 0)
GOOD = [row(1, "/a", TP, base, base + 10, largest_timestamp=base) for base in range(0, 100, 10)]
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
    local_spark: Any, tmp_path: Path, rows: list[Any], said: str
) -> None:
    """Also where two batches meet: they hold five rows here."""
    folder = write(tmp_path / "all", rows, {}, ordered=False)
    with pytest.raises(InventoryError) as here:
        read_here([folder])
    local_spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "5")
    with pytest.raises(InventoryError) as there:
        read_inventory(local_spark, [folder])
    local_spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert said in str(here.value)
    assert str(there.value) == str(here.value)


def test_executors_must_read_the_files_that_this_process_sees(
    local_spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = write(tmp_path / "here", GOOD, {}), write(tmp_path / "there [1]", GOOD[1:], {})
    address = inventory.file_address
    monkeypatch.setattr(inventory, "file_address", lambda path: address(there / path.name))
    monkeypatch.setattr(inventory, "unquote", lambda path: unquote(path).replace("there [1]", "here"))
    with pytest.raises(InventoryError, match="has 10 rows here, and 9 where Spark reads it: it must lie, by the same"):
        read_inventory(local_spark, [here])
    monkeypatch.setattr(inventory, "file_address", lambda path: "file:///nowhere" + str(path))
    with pytest.raises(
        InventoryError, match=r"Spark can't read the inventory: .*; it must lie, by the same path"
    ) as found:
        read_inventory(local_spark, [here])
    assert "\n" not in str(found.value)
