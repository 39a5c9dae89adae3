"""R5 and whole segments from an inventory, over Spark: :mod:`retention_cli.disks.solve.inventory_view` with frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from retention_cli.core.model import Maybe, PartitionFacts, Tail, TopicPartition, Unknown, known
from retention_cli.disks.solve.dictionary import words
from retention_cli.disks.solve.inventory_view import InventoryView, missing_replica, tails_by_key, unknown_logs
from retention_cli.disks.solve.segments import Ints
from retention_cli.disks.solve.tails import bytes_between, exact_tails, exact_topic_tails
from retention_cli.engines.spark.frames import as_frame, frame_of
from retention_cli.engines.spark.inventory import SparkInventory
from retention_cli.engines.spark.parcels import rows_of, slab_numbers, whole
from retention_cli.engines.spark.schemas import ddl
from retention_cli.engines.spark.shuffle_keys import keys
from retention_cli.engines.spark.slabs import (
    SLABS,
    Partitions,
    Slab,
    by_slab,
    equal_texts,
    partitions_of,
    slab_of,
    solved,
)
from retention_cli.policy.settings import Settings

TP: Final = ("topic", "partition")
LED: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("topic_id", pa.string()), ("leader", pa.int32())]
)
OfLeaders = Callable[[Slab, Partitions, Callable[[str], Ints]], Any]
_CHOSEN: Final = 0
_WANTED: Final = ("log_start", "max_bytes", "max_topic_bytes")
_HELD: Final = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("held", pa.list_(pa.int64()))])
_TAILS: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("each", pa.int64()), ("together", pa.int64())]
)
_BETWEEN: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("covered", pa.int64()),
        ("size", pa.int64()),
        ("exact", pa.bool_()),
    ]
)
_SIZED: Final = pa.schema([*LED, ("log_start", pa.int64()), ("max_bytes", pa.int64()), ("max_topic_bytes", pa.int64())])


def bases(inventory: SparkInventory, partitions: Any) -> Any:
    """Return topic, partition, bases (array<bigint>, sorted; null: unknown) and reasons (null: known), one row each.

    Args:
        inventory: the cluster's inventory.
        partitions: topic, partition, topic_id (null: unknown), leader (null: none); one row each.
    """
    from pyspark.sql import functions as f

    held = _of_leaders(inventory, partitions, _bases, _HELD)
    found = _with_missing(inventory, partitions.join(held, [*TP], "left"), f.col("held").isNotNull())
    known = f.when(f.col("missing").isNull(), f.col("held"))
    return found.select(*TP, known.alias("bases"), f.col("missing").alias("reasons"))


def tails(
    inventory: SparkInventory,
    facts: Mapping[TopicPartition, PartitionFacts],
    settings: Mapping[str, Settings],
    leaders: Mapping[TopicPartition, int | None],
    ids: Mapping[TopicPartition, str],
) -> dict[TopicPartition, dict[str, Maybe[Tail]]]:
    """Return R5's bounds, exact to the segment, by the policy's key, like ``InventoryView.tails``."""
    rows = (
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "topic_id": ids.get(tp),
            "leader": leaders.get(tp),
            "log_start": known(one.log_start),
            "max_bytes": settings[tp.topic].max_bytes,
            "max_topic_bytes": settings[tp.topic].max_topic_bytes,
        }
        for tp, one in facts.items()
    )
    partitions = frame_of(inventory.slabs.sparkSession, rows, _SIZED)
    topics = keys(len(inventory.keys))
    runs = _of_leaders(inventory, partitions, _by_topic(topics), SLABS, *_WANTED)
    told = runs.repartition(len(topics), "key").mapInArrow(_tails, ddl(_TAILS))
    found = {
        TopicPartition(row["topic"], row["partition"]): {"each": row["each"], "together": row["together"]}
        for row in told.collect()
    }

    def missing(tp: TopicPartition) -> Unknown | None:
        return missing_replica(inventory.incomplete, tp, leaders.get(tp), held=tp in found)

    def tail(rule: str, tp: TopicPartition) -> int:
        return max(known(facts[tp].log_start) or 0, int(found[tp][rule]))

    unknown = unknown_logs(facts, missing)
    return tails_by_key(settings, unknown, facts, partial(tail, "each"), partial(tail, "together"), InventoryView.by)


def log_bytes(inventory: SparkInventory, trims: Any) -> Any:
    """Return topic, partition, size and exact, like ``InventoryView.log_bytes``: a row for each trim that it covers.

    Args:
        inventory: the cluster's inventory.
        trims: the columns of ``partitions`` in :func:`bases`, log_start and trim_to.
    """
    from pyspark.sql import functions as f

    each = _of_leaders(inventory, trims, _bytes_between, _BETWEEN, "log_start", "trim_to")
    found = _with_missing(inventory, trims.join(each, [*TP], "inner"), f.lit(True)).where("missing is null")
    return found.where(f.col("covered") == f.col("trim_to") - f.col("log_start")).select(*TP, "size", "exact")


def _of_leaders(inventory: SparkInventory, partitions: Any, solve: OfLeaders, schema: Any, *more: str) -> Any:
    """Return rows that tasks make of the leader replicas of the current topics, slab by slab.

    Args:
        inventory: the cluster's inventory.
        partitions: topic, partition, topic_id (null: unknown), leader (null: none), and the columns ``more``.
        solve: returns rows from these replicas' runs, their partitions, and a function that returns a column of
            ``more`` by partition number, -1 for null.
        schema: of the rows.
        more: columns of numbers.
    """
    from pyspark.sql import functions as f

    def run(slab: Slab, others: Mapping[int, Any]) -> Any:
        chosen = others.get(_CHOSEN)
        if chosen is None or not len(slab.counts):
            return schema.empty_table()
        of_runs, of_chosen = partitions_of(slab.runs, chosen).numbers
        place = np.full(int(max(of_runs.max(), of_chosen.max())) + 1, -1)
        place[of_chosen] = np.arange(len(chosen))
        asked = np.flatnonzero(place[of_runs] >= 0)
        slab, rows = slab.take(asked), chosen.take(pa.array(place[of_runs[asked]]))
        ours = equal_texts(slab.runs["topic_id"], rows["topic_id"])
        of_leader = np.flatnonzero(ours & (slab.numbers("broker") == rows["leader"].to_numpy()))
        if not len(of_leader):
            return schema.empty_table()
        slab, rows = slab.take(of_leader), rows.take(pa.array(of_leader))
        names = partitions_of(slab.runs)

        def column(name: str) -> Ints:
            found = np.full(len(names), -1, dtype=np.int64)
            found[names.numbers[0]] = rows[name].to_numpy()
            return found

        return solve(slab, names, column)

    numbers = [f.coalesce(f.col(name).cast("bigint"), f.lit(-1)).alias(name) for name in ("leader", *more)]
    chosen = by_slab(partitions.select(*TP, "topic_id", *numbers), inventory.keys, _CHOSEN)
    return solved(inventory.slabs, chosen, run, schema)


def _with_missing(inventory: SparkInventory, rows: Any, held: Any) -> Any:
    """Return the rows with ``missing``: why the inventory lacks a partition's leader replica; null if it has it."""
    from pyspark.sql import functions as f

    table = pa.table(
        {
            "leader": pa.array([broker for broker, _, _ in inventory.incomplete], pa.int32()),
            "topic": pa.array([topic for _, topic, _ in inventory.incomplete], pa.string()),
            "partition": pa.array([partition for _, _, partition in inventory.incomplete], pa.int32()),
            "problem_there": pa.array(list(inventory.incomplete.values()), pa.string()),
        }
    )
    incomplete = f.broadcast(as_frame(inventory.slabs.sparkSession, table))
    broken = f.concat(f.lit("broker "), "leader", f.lit("'s inventory: "), "problem_there")
    absent = f.concat(
        f.lit("the inventory has no segments of it on broker "), "leader", f.lit(", its leader: scan it again")
    )
    missing = (
        f.when(f.col("leader").isNull(), _reason("inventory", f.lit("it has no leader")))
        .when(f.col("problem_there").isNotNull(), _reason("inventory", broken))
        .when(~held, _reason("inventory", absent))
    )
    return rows.join(incomplete, [*TP, "leader"], "left").withColumn("missing", missing)


def _bases(slab: Slab, names: Partitions, _: Callable[[str], Ints]) -> Any:
    """Return the base offsets (:data:`_HELD`) of leader replicas."""
    segments = slab.of_logs(names.numbers[0])
    order = np.lexsort((segments.base_offset, segments.partition))
    every = np.arange(len(names))
    offsets = np.searchsorted(segments.partition[order], np.append(every, len(names))).astype(np.int32)
    held = pa.ListArray.from_arrays(pa.array(offsets), pa.array(segments.base_offset[order]))
    return rows_of(_HELD, len(names), **names.names(every), held=held)


def _by_topic(keys: Ints) -> OfLeaders:
    """Return what a task makes of leader replicas: their runs with what R5 allows, by topic."""

    def solve(slab: Slab, names: Partitions, column: Callable[[str], Ints]) -> Any:
        runs = slab.runs
        for name in _WANTED:
            runs = runs.append_column(name, pa.array(column(name)[names.numbers[0]]))
        nothing = np.zeros(len(runs), dtype=np.int64)
        return replace(slab, runs=runs).cut(slab_numbers(runs["topic"], nothing, len(keys)), keys)

    return solve


def _tails(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield where tails begin (:data:`_TAILS`), from the leaders' runs of whole topics."""
    if (table := whole(batches)) is None:
        return
    slab = slab_of(table)
    names = partitions_of(slab.runs)
    segments, of_leader = slab.of_logs(names.numbers[0]), np.ones(int(slab.counts.sum()), dtype=np.bool_)

    def column(name: str) -> Ints:
        found = np.full(len(names), -1, dtype=np.int64)
        found[names.numbers[0]] = slab.numbers(name)
        return found

    log_start, of_each, together = (column(name) for name in _WANTED)
    topics, topic = words(pa.chunked_array([names.topics]))
    of_topic = np.full(len(topics), -1, dtype=np.int64)
    of_topic[topic] = together
    log_start = np.maximum(0, log_start)
    each = exact_tails(segments, of_leader, log_start, of_each)
    bounds = exact_topic_tails(segments, of_leader, log_start, topic, of_topic)
    every = names.names(np.arange(len(names)))
    yield from rows_of(_TAILS, len(names), **every, each=each, together=bounds).to_batches()


def _bytes_between(slab: Slab, names: Partitions, column: Callable[[str], Ints]) -> Any:
    """Return the bytes of trims (:data:`_BETWEEN`) in leader replicas."""
    of_leader = np.ones(int(slab.counts.sum()), dtype=np.bool_)
    start, end = np.maximum(0, column("log_start")), column("trim_to")
    covered, size, cut = bytes_between(slab.of_logs(names.numbers[0]), of_leader, start, end)
    every = names.names(np.arange(len(names)))
    return rows_of(_BETWEEN, len(names), **every, covered=covered, size=size, exact=~cut)


def _reason(code: str, text: Any) -> Any:
    from pyspark.sql import functions as f

    return f.array(f.struct(f.lit(code).alias("code"), (f.lit(text) if isinstance(text, str) else text).alias("text")))
