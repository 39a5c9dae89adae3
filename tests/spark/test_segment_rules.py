"""The disk rules over Spark say what this process says by itself, of the same inventory (RULES.md R5, R6)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_cli.decide import Limit
from retention_cli.disks.oldest_first import OldestFirst
from retention_cli.disks.oldest_first import oldest_first as local_oldest_first
from retention_cli.disks.outcome import SHOWN, outcome_as_json
from retention_cli.disks.stock import Stock
from retention_cli.model import TopicPartition, Unknown
from retention_cli.policy.settings import DiskRules
from retention_cli.segments.inventory import read_inventory as read_here
from retention_cli.spark import oldest_first as spark_oldest_first
from retention_cli.spark.inventory import SparkInventory, read_inventory
from retention_cli.spark.oldest_first import oldest_first
from retention_cli.spark.schemas import REASON
from tests.spark.inventories import Clusters, write

RULES = DiskRules(percent=50, shared=True)
CLUSTERS = 150


class Both:
    """One inventory, read by this process and by Spark, with what both are told of it."""

    def __init__(self, session: Any, clusters: Clusters, folder: Path) -> None:
        self.session, self.clusters = session, clusters
        paths = [write(folder, clusters.rows, clusters.incomplete)]
        self.stock = Stock(read_here(paths))
        self.here = read_here(paths)
        self.inventory: SparkInventory = read_inventory(session, paths)

    def local(self) -> OldestFirst:
        known = self.clusters
        return local_oldest_first(
            *(self.stock.lying(known.ids), known.disks, RULES),
            *(known.starts, known.decided, known.limits, known.leaving),
        )

    def partitions(self) -> Any:
        known, rows = self.clusters, []
        for tp in known.seen:
            limit = known.limits.get(tp)
            row = {
                **{"topic": tp.topic, "partition": tp.partition, "topic_id": known.ids.get(tp)},
                **{"managed": tp in known.limits, "log_start": known.starts.get(tp), "trim_to": known.decided.get(tp)},
            }
            if isinstance(limit, Limit):
                row |= {"limit_offset": limit.offset, "limit_guard": limit.guard, "limit_text": limit.text}
            elif isinstance(limit, Unknown):
                row["limit_reasons"] = [{"code": one.code, "text": one.text} for one in limit.reasons]
            rows.append(row)
        text, number = pa.string(), pa.int64()
        kinds = {
            **{"topic": text, "partition": pa.int32(), "topic_id": text, "managed": pa.bool_(), "log_start": number},
            **{"trim_to": number, "limit_offset": number, "limit_guard": text, "limit_text": text},
            "limit_reasons": pa.list_(REASON),
        }
        return self.session.createDataFrame(pa.Table.from_pylist(rows, pa.schema(list(kinds.items()))))


@pytest.fixture(scope="module")
def both(local_spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    clusters, chance = Clusters(), random.Random(5)
    for number in range(CLUSTERS):
        clusters.add(number, chance)
    found = Both(local_spark, clusters, tmp_path_factory.mktemp("inventory") / "all")
    yield found
    found.inventory.close()


def test_the_inventory_says_the_same_of_itself(both: Both) -> None:
    assert both.inventory.incomplete == both.here.incomplete
    assert list(both.inventory.incomplete) == list(both.here.incomplete)
    assert any("it is in" in one for one in both.inventory.incomplete.values())
    assert both.inventory.rows == len(both.here.table)
    assert (both.inventory.files, both.inventory.cluster_id) == (both.here.files, "c")


@pytest.mark.parametrize("sieve_from", [10**9, 0])
def test_the_oldest_go_first_as_they_do_here(both: Both, sieve_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds, what each disk comes to, and what stays unknown."""
    monkeypatch.setattr(spark_oldest_first, "_SIEVE_FROM", sieve_from)
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
