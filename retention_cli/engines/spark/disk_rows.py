"""The segments on a cluster's disks as frames: before R6's walk, those it trims, and those that stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from retention_cli.core.model import TopicPartition, Unknown
from retention_cli.disks.inventory.inventory import InventoryError
from retention_cli.disks.solve.room import Disk
from retention_cli.engines.spark.fact_rows import reason_rows
from retention_cli.engines.spark.frames import as_frame, frame_of
from retention_cli.engines.spark.inventory import SparkInventory
from retention_cli.engines.spark.schemas import REASON
from retention_cli.engines.spark.walk import age, at_most, going, in_reach, plain

TP: Final = ("topic", "partition")
_ROWS_A_TASK: Final = 250_000
SIEVE_FROM: Final = 1_000_000
"""From this many candidates on, it is faster to leave out those that the walk can't reach before sorting."""
_REPLICAS_A_BATCH: Final = 100_000
_NOWHERE: Final = -1
"""A log dir that no broker names (any longer)."""


@dataclass(frozen=True, slots=True)
class AtFirst:
    """Per disk: dead bytes, bytes that the other rules trim, and the number of segments that may be trimmed."""

    dead: int = 0
    gone: int = 0
    candidates: int = 0


@dataclass(frozen=True, slots=True)
class DiskRows:
    """The segments of an inventory, the disks that they are on, and their partitions.

    ``partitions`` are those passed to :func:`retention_cli.engines.spark.oldest_first.oldest_first`, ``broken`` those
    that can't be judged, with the reasons.
    """

    inventory: SparkInventory
    disks: Sequence[Disk]
    partitions: Any
    broken: Mapping[TopicPartition, Unknown]

    @property
    def session(self) -> Any:
        """The session that the frames belong to."""
        return self.inventory.frame.sparkSession

    def on_disks(self, walks: bool) -> Any:
        """Return the segments by disk, each with its partition's limits, and its place in time."""
        from pyspark.sql import functions as f

        known = {(disk.broker, path): n for n, disk in enumerate(self.disks) for path in disk.dirs}
        dirs = pa.table(
            {
                "broker": pa.array([broker for broker, _ in known], pa.int32()),
                "dir": pa.array([path for _, path in known], pa.string()),
                "disk": pa.array(list(known.values()), pa.int32()),
            }
        )
        found = self.inventory.frame.join(f.broadcast(as_frame(self.session, dirs)), ["broker", "dir"], "left")
        tasks = max(1, -(-self.inventory.rows // _ROWS_A_TASK))
        columns = ("topic_id", "next_offset", "bytes", "log_bytes", "largest_timestamp", "active")
        found = found.select(*TP, f.coalesce("disk", f.lit(_NOWHERE)).alias("disk"), *columns)
        beside = self._limits().hint("shuffle_hash")
        found = plain(
            found.repartition(tasks, *TP).join(beside, [*TP], "left"), f.col("topic_id") == f.col("wanted_id")
        )
        below = ~f.col("active")
        found = found.withColumns(
            {
                "limit": at_most(f.col("limit"), -1),
                "dead": below & (f.col("next") <= at_most(f.col("log_start"), 0)),
                "gone": below & (f.col("next") <= f.greatest(at_most(f.col("log_start"), 0), at_most("trim_to", 0))),
            }
        )
        return found.select(
            *TP,
            "disk",
            "next",
            "bytes",
            "log_bytes",
            "active",
            "dead",
            "gone",
            (f.col("next") <= f.col("limit")).alias("allowed"),
            (age() if walks else f.lit(None).cast("bigint")).alias("age"),
        )

    def _limits(self) -> Any:
        """Return the partitions, with how far each may be trimmed: null if it must not be, or if that is unknown."""
        from pyspark.sql import functions as f

        known = f.col("managed") & f.col("limit_reasons").isNull() & f.col("why").isNull()
        return self.partitions.join(self.broken_rows(), [*TP], "left").select(
            *TP,
            f.col("topic_id").alias("wanted_id"),
            f.col("log_start").cast("bigint"),
            f.col("trim_to").cast("bigint"),
            f.when(known, f.col("limit_offset").cast("bigint")).alias("limit"),
        )

    def broken_rows(self) -> Any:
        """Return topic, partition and why (an array of reasons) of partitions that can't be judged."""
        from pyspark.sql import functions as f

        rows = [
            {"topic": tp.topic, "partition": tp.partition, "why": reason_rows(one)} for tp, one in self.broken.items()
        ]
        schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("why", pa.list_(REASON))])
        return f.broadcast(frame_of(self.session, rows, schema))

    def sizes(self, numbers: Iterable[int]) -> Any:
        """Return disk, topic, partition and the replica's size in bytes (``now``), as reported by the brokers."""
        schema = pa.schema(
            [("disk", pa.int32()), ("topic", pa.string()), ("partition", pa.int32()), ("now", pa.int64())]
        )
        batches = [batch for n in numbers for batch in _batches(n, self.disks[n].replicas, schema)]
        return as_frame(self.session, pa.Table.from_batches(batches, schema))

    def at_first(self, rows: Any) -> list[AtFirst]:
        """Return each disk's figures before the walk.

        Raises:
            InventoryError: the inventory was changed while it was read.
        """
        from pyspark.sql import functions as f

        dead = f.col("dead")
        each = rows.groupBy(*TP, "disk").agg(
            f.sum(f.when(dead, f.col("log_bytes"))).alias("below"),
            f.sum(f.when(~dead, f.col("log_bytes"))).alias("above"),
            f.sum(f.when(f.col("gone") & ~dead, f.col("bytes"))).alias("gone"),
            f.count("age").alias("candidates"),
            f.count("*").alias("rows"),
        )
        left = f.greatest(f.lit(0), f.coalesce("now", f.lit(0)) - f.coalesce("above", f.lit(0)))
        there = f.when(f.col("below") > 0, f.least("below", left))
        found = (
            each.join(self.sizes(range(len(self.disks))), [*TP, "disk"], "left")
            .groupBy("disk")
            .agg(f.sum(there).alias("dead"), *(f.sum(name).alias(name) for name in ("gone", "candidates", "rows")))
            .collect()
        )
        seen = sum(row["rows"] for row in found)
        if seen != self.inventory.rows:
            raise InventoryError(
                f"the inventory had {self.inventory.rows:,} rows and has {seen:,} now: it was changed while it was read"
            )
        told = {row["disk"]: AtFirst(row["dead"] or 0, row["gone"] or 0, row["candidates"]) for row in found}
        return [told.get(n, AtFirst()) for n in range(len(self.disks))]

    def nothing(self) -> Any:
        """Return an empty frame of bounds."""
        return self.session.createDataFrame([], "topic string, partition int, bound bigint")

    def walked(self, rows: Any, over: Mapping[int, int], candidates: int) -> Any:
        """Return how far each replica is trimmed because of its disk: disk, topic, partition, next and age."""
        from pyspark.sql import functions as f

        table = pa.table(
            {"disk": pa.array(list(over), pa.int32()), "remaining": pa.array(list(over.values()), pa.int64())}
        )
        remaining = as_frame(self.session, table)
        rows = rows.where("age is not null").select(*TP, "disk", "next", "bytes", "age")
        if candidates >= SIEVE_FROM:
            rows = in_reach(rows, remaining, "disk")
        each = going(rows, remaining, "disk").groupBy("disk", *TP)
        return each.agg(f.max("next").alias("next"), f.max("age").alias("age"))

    def levels(self, gone: Any) -> dict[int, int]:
        """Return, per disk, the newest time that is trimmed because of that disk."""
        from pyspark.sql import functions as f

        return {row["disk"]: row["age"] for row in gone.groupBy("disk").agg(f.max("age").alias("age")).collect()}

    def replicas_after(self, rows: Any, bounds: Any) -> Any:
        """Return each replica's bytes that these bounds free, and those that stay, by reason; null if it has none."""
        from pyspark.sql import functions as f

        below = f.col("gone") | (~f.col("active") & (f.col("next") <= f.coalesce("bound", f.lit(-1))))
        size = {
            "freed": below,
            "active": ~below & f.col("active"),
            "limit": ~below & ~f.col("active") & ~f.col("allowed"),
            "undated": ~below & ~f.col("active") & f.col("allowed"),
        }
        sums = [f.sum(f.when(which, f.col("bytes"))).alias(name) for name, which in size.items()]
        return rows.where("not dead").join(bounds, [*TP], "left").groupBy("disk", *TP).agg(*sums)

    def freed(self, after: Any) -> list[int]:
        """Return the bytes freed on each disk, including those of the other rules' trims."""
        from pyspark.sql import functions as f

        rows = after.groupBy("disk").agg(f.sum("freed").alias("freed")).collect()
        found = {row["disk"]: row["freed"] or 0 for row in rows}
        return [found.get(n, 0) for n in range(len(self.disks))]


def _batches(disk: int, replicas: Mapping[TopicPartition, int], schema: Any) -> Iterator[pa.RecordBatch]:
    """Yield the sizes of a disk's replicas in batches: a large cluster has millions."""
    topics: list[str] = []
    partitions: list[int] = []
    sizes: list[int] = []

    def packed() -> pa.RecordBatch:
        columns = [[disk] * len(sizes), topics, partitions, sizes]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    for (topic, partition), size_bytes in replicas.items():
        topics.append(topic)
        partitions.append(partition)
        sizes.append(size_bytes)
        if len(sizes) == _REPLICAS_A_BATCH:
            yield packed()
            topics, partitions, sizes = [], [], []
    if sizes:  # after an empty batch PySpark loses all others
        yield packed()
