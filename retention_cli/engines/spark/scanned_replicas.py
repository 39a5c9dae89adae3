"""Summarize each replica in Spark's inventory, over all its segments, to compare it with the cluster (R6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from retention_cli.core.model import TopicPartition
from retention_cli.disks.solve.borne_out import ScannedReplica
from retention_cli.engines.spark.frames import as_frame
from retention_cli.engines.spark.inventory import SparkInventory


def scanned_replicas(inventory: SparkInventory, log_starts: Mapping[TopicPartition, int]) -> Iterator[ScannedReplica]:
    """Yield a summary of each replica.

    Args:
        inventory: the cluster's inventory.
        log_starts: S of partitions, where it is known.
    """
    from pyspark.sql import functions as f

    table = pa.table(
        {
            "topic": pa.array([tp.topic for tp in log_starts], pa.string()),
            "partition": pa.array([tp.partition for tp in log_starts], pa.int32()),
            "log_start": pa.array(list(log_starts.values()), pa.int64()),
        }
    )
    session: Any = inventory.frame.sparkSession
    active, named = f.col("active"), f.coalesce("topic_id", f.lit(""))
    end = f.coalesce("next_offset", f.lit(-1))
    indexes = f.greatest(f.col("bytes") - f.col("log_bytes"), f.lit(0))
    beyond = f.col("next_offset").isNull() | (f.col("next_offset") > f.coalesce("log_start", f.lit(0)))
    rows = (
        inventory.frame.join(f.broadcast(as_frame(session, table)), ["topic", "partition"], "left")
        .groupBy("broker", "dir", "topic", "partition")
        .agg(
            f.min(named).alias("low"),
            f.max(named).alias("high"),
            f.sum(active.cast("int")).alias("actives"),
            f.max(f.when(active, f.col("base_offset")).otherwise(-1)).alias("active_base"),
            f.min("base_offset").alias("first_base"),
            f.max("base_offset").alias("last_base"),
            f.max(end).alias("end"),
            f.sum("log_bytes").alias("log_bytes"),
            f.sum(f.when(~active & beyond, f.col("log_bytes")).otherwise(0)).alias("live_bytes"),
            f.sum(f.when(active, f.least("log_bytes", "bytes")).otherwise(0)).alias("active_bytes"),  # preallocated
            f.sum(indexes).alias("index_bytes"),
            f.sum(f.when(~active & ~beyond, indexes).otherwise(0)).alias("dead_index_bytes"),
            f.max("leader_epoch").alias("leader_epoch"),
        )
    )
    for row in rows.toLocalIterator():
        topic_id = row["low"] if row["low"] and row["low"] == row["high"] else None
        tp = TopicPartition(row["topic"], row["partition"])
        yield ScannedReplica(row["broker"], row["dir"], tp, topic_id, *row[6:])
