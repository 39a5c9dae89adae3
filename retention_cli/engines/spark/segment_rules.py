"""R5 and whole segments from an inventory, over Spark: :mod:`retention_cli.disks.solve.inventory_view` with frames."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import pyarrow as pa

from retention_cli.core.model import Maybe, PartitionFacts, Tail, TopicPartition, Unknown, known
from retention_cli.disks.solve.inventory_view import InventoryView, missing_replica, tails_by_key, unknown_logs
from retention_cli.disks.solve.tails import MOST_OFFSETS
from retention_cli.engines.spark.frames import as_frame, frame_of
from retention_cli.engines.spark.inventory import SparkInventory
from retention_cli.engines.spark.walk import age, at_most, going, plain
from retention_cli.policy.settings import Settings

TP: Final = ("topic", "partition")
LED: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("topic_id", pa.string()), ("leader", pa.int32())]
)
_SIZED: Final = pa.schema([*LED, ("log_start", pa.int64()), ("max_bytes", pa.int64()), ("max_topic_bytes", pa.int64())])


def bases(inventory: SparkInventory, partitions: Any) -> Any:
    """Return topic, partition, bases (array<bigint>, sorted; null: unknown) and reasons (null: known), one row each.

    Args:
        inventory: the cluster's inventory.
        partitions: topic, partition, topic_id (null: unknown), leader (null: none); one row each.
    """
    from pyspark.sql import functions as f

    held = (
        _of_leaders(inventory, partitions).groupBy(*TP).agg(f.sort_array(f.collect_list("base_offset")).alias("held"))
    )
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
    from pyspark.sql import functions as f

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
    partitions = frame_of(inventory.frame.sparkSession, rows, _SIZED)
    wanted = ("log_start", "max_bytes", "max_topic_bytes")
    segments = plain(_of_leaders(inventory, partitions, *wanted), f.lit(True)).withColumn("bytes", f.col("log_bytes"))
    held = segments.select(*TP).distinct()
    told = held.join(_tails(segments), [*TP], "left").join(_topic_tails(segments), [*TP], "left")
    found = {
        TopicPartition(row["topic"], row["partition"]): {"each": row["earliest"], "together": row["bound"]}
        for row in told.toLocalIterator()
    }

    def missing(tp: TopicPartition) -> Unknown | None:
        return missing_replica(inventory.incomplete, tp, leaders.get(tp), held=tp in found)

    def tail(rule: str, tp: TopicPartition) -> int:
        return max(known(facts[tp].log_start) or 0, found[tp][rule] or 0)

    unknown = unknown_logs(facts, missing)
    return tails_by_key(settings, unknown, facts, partial(tail, "each"), partial(tail, "together"), InventoryView.by)


def log_bytes(inventory: SparkInventory, trims: Any) -> Any:
    """Return topic, partition, size and exact, like ``InventoryView.log_bytes``: a row for each trim that it covers.

    Args:
        inventory: the cluster's inventory.
        trims: the columns of ``partitions`` in :func:`bases`, log_start and trim_to.
    """
    from pyspark.sql import functions as f

    span = f.col("next_offset") - f.col("base_offset")
    held = f.least("next_offset", "trim_to") - f.greatest("base_offset", "log_start")
    rows = _of_leaders(inventory, trims, "log_start", "trim_to").where(
        (f.col("next_offset") > f.col("log_start")) & (f.col("base_offset") < f.col("trim_to")) & (span <= MOST_OFFSETS)
    )
    size = f.when(held == span, f.col("log_bytes")).otherwise(f.expr("log_bytes * held div greatest(span, 1L)"))
    each = (
        rows.withColumns({"held": held, "span": span})
        .withColumn("size", size)
        .groupBy(*TP)
        .agg(f.sum("held").alias("covered"), f.sum("size").alias("size"), f.every(held == span).alias("exact"))
    )
    found = _with_missing(inventory, trims.join(each, [*TP], "inner"), f.lit(True)).where("missing is null")
    return found.where(f.col("covered") == f.col("trim_to") - f.col("log_start")).select(*TP, "size", "exact")


def _of_leaders(inventory: SparkInventory, partitions: Any, *more: str) -> Any:
    """Return the segments of leader replicas of the current topics; none of a topic without an id."""
    from pyspark.sql import functions as f

    chosen = partitions.select(*TP, "topic_id", f.col("leader").cast("int").alias("broker"), *more)
    return inventory.frame.join(chosen, [*TP, "topic_id", "broker"])


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
    incomplete = f.broadcast(as_frame(inventory.frame.sparkSession, table))
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


def _tails(rows: Any) -> Any:
    """Return the start of each partition's largest tail that fits; the last segment always does."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    live = rows.where("max_bytes >= 0").where(f.col("active") | (f.col("next") > at_most(f.col("log_start"), 0)))
    newest_first = Window.partitionBy(*TP).orderBy(f.desc("base_offset"))
    size = f.sum("bytes").over(newest_first.rowsBetween(Window.unboundedPreceding, 0))
    fits = live.select(
        *TP, "base_offset", "max_bytes", size.alias("tail"), f.row_number().over(newest_first).alias("place")
    )
    return fits.where("place = 1 or tail <= max_bytes").groupBy(*TP).agg(f.min("base_offset").alias("earliest"))


def _topic_tails(rows: Any) -> Any:
    """Return where each partition must begin for its topic to fit: R6's walk, with a topic in place of a disk."""
    from pyspark.sql import functions as f

    chosen = rows.where("max_topic_bytes >= 0").withColumns(
        {
            "limit": at_most(f.lit(None), 2**63 - 2),
            "gone": ~f.col("active") & (f.col("next") <= at_most(f.col("log_start"), 0)),
        }
    )
    stays = f.sum(f.when(~f.col("gone"), f.col("bytes")))
    remaining = (
        chosen.groupBy("topic").agg((stays - f.max("max_topic_bytes")).alias("remaining")).where("remaining > 0")
    )
    aged = chosen.select(*TP, "next", "bytes", age().alias("age")).where("age is not null")
    return going(aged, remaining, "topic").groupBy(*TP).agg(f.max("next").alias("bound"))


def _reason(code: str, text: Any) -> Any:
    from pyspark.sql import functions as f

    return f.array(f.struct(f.lit(code).alias("code"), (f.lit(text) if isinstance(text, str) else text).alias("text")))
