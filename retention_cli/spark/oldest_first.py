"""R6 with an inventory, over Spark: what :mod:`retention_cli.disks.oldest_first` comes to, by windows (RULES.md R6).

Segments are shuffled twice: all of them by partition, for the running maximum of their times, and kept so; those that
the walk can come to by disk, for the running sum. What comes to this process is a row per disk, and the most that is in
its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import pyarrow as pa

from retention_cli.decide import Limit
from retention_cli.disks.oldest_first import (
    NO_SEGMENTS,
    UNMANAGED,
    above_ceilings,
    blocker,
    broken_partitions,
    concerned,
    named,
)
from retention_cli.disks.outcome import SHOWN, Blocker, DiskOutcome
from retention_cli.disks.room import Disk
from retention_cli.model import Maybe, Reason, TopicPartition, Unknown
from retention_cli.policy.settings import DiskRules
from retention_cli.segments.inventory import InventoryError
from retention_cli.spark.inventory import SparkInventory
from retention_cli.spark.schemas import REASON
from retention_cli.spark.walk import age, at_most, going, in_reach, plain

TP: Final = ("topic", "partition")
_ROWS_A_TASK: Final = 250_000
_SIEVE_FROM: Final = 1_000_000
"""From so many candidates on it pays to leave those out that the walk can't come to, before they are sorted."""
_REPLICAS_A_BATCH: Final = 100_000
_NOWHERE: Final = -1
"""A log dir that no broker names (any more)."""


@dataclass(frozen=True, slots=True)
class SparkOldestFirst:
    """As :class:`retention_cli.disks.oldest_first.OldestFirst`. A context manager: it lets go of what Spark keeps.

    ``bounds`` is a frame of topic, partition and bound; ``unknown`` one of topic, partition and reasons
    (array<struct<code,text>>). Of what is in a disk's way the outcomes name the most
    (:data:`~retention_cli.disks.outcome.SHOWN`), and count the others.
    """

    bounds: Any
    outcomes: Sequence[DiskOutcome]
    unknown: Any

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what Spark keeps."""
        self.bounds.unpersist()


def oldest_first(
    inventory: SparkInventory,
    disks: Sequence[Disk],
    rules: DiskRules,
    partitions: Any,
    leaving_bytes: Sequence[int] = (),
) -> SparkOldestFirst:
    """Return the bounds that bring each disk under its ceiling, the oldest segments first.

    Args:
        inventory: of this cluster.
        disks: all disks that could be read.
        rules: the policy's; ``percent`` is set.
        partitions: topic, partition, topic_id, managed (bool: R6 may touch it), log_start, trim_to (where other rules
            trim to), limit_offset, limit_guard, limit_text (how far R6 may go), limit_reasons
            (array<struct<code,text>>: why that is unknown); all but the first two may be null. One row each; read
            several times, so that it had better be kept. What the inventory has and this has not is not managed.
        leaving_bytes: per disk, what brokers have swept lately and may not have deleted yet.

    Raises:
        InventoryError: it changed while it was read, or ``partitions`` has one twice.
    """
    from pyspark.sql import functions as f

    unknown, excess = above_ceilings(disks, rules, inventory.dirs)
    broken = broken_partitions(inventory.incomplete)
    work = _Work(inventory, disks, partitions, broken)
    kept: list[Any] = []
    try:
        rows = work.laid(walks=any(one > 0 for one in excess)).persist()
        kept.append(rows)
        start = work.at_first(rows)
        leaving = [*leaving_bytes, *(0 for _ in disks)]
        dead = [start[n].dead + leaving[n] for n in range(len(disks))]
        remaining = [excess[n] - dead[n] - start[n].gone for n in range(len(disks))]
        over = {n: size_bytes for n, size_bytes in enumerate(remaining) if size_bytes > 0}
        freed, short, found = [one.gone for one in start], [0 for _ in disks], _Found(work.nothing())
        if over:
            gone = work.walked(rows, over, sum(start[n].candidates for n in over)).persist()
            kept.append(gone)
            found = _Found(gone.groupBy(*TP).agg(f.max("next").alias("bound")).persist(), work.levels(gone))
            kept.append(found.bounds)
            after = work.replicas_after(rows, found.bounds).persist()
            kept.append(after)
            freed = work.freed(after)
            short = [max(0, size_bytes - freed[n] + start[n].gone) for n, size_bytes in enumerate(remaining)]
            work.in_the_way(after, [n for n, size_bytes in enumerate(short) if size_bytes], found)
            kept.remove(found.bounds)
    finally:
        for frame in kept:
            frame.unpersist()
    outcomes = [
        DiskOutcome(
            disk=disk,
            percent=rules.percent,
            unknown=unknown.get(n),
            excess_bytes=max(0, excess[n]),
            dead_bytes=dead[n],
            other_rules_bytes=start[n].gone,
            freed_bytes=freed[n] - start[n].gone,
            short_bytes=0 if n in unknown else short[n],
            level_ms=found.levels.get(n),
            in_the_way=tuple(found.stays.get(n, ())),
            unnamed=found.unnamed.get(n, 0),
        )
        for n, disk in enumerate(disks)
    ]
    return SparkOldestFirst(found.bounds, outcomes, work.unknown(outcomes))


@dataclass(frozen=True, slots=True)
class _AtFirst:
    """Per disk: bytes that are dead, that go by the other rules, and how many segments may go."""

    dead: int = 0
    gone: int = 0
    candidates: int = 0


@dataclass(slots=True)
class _Found:
    """What the walk came to: by disk the newest time that went for its own sake, and what stays on those left short."""

    bounds: Any
    levels: Mapping[int, int] = field(default_factory=dict)
    stays: dict[int, list[Blocker]] = field(default_factory=dict)
    unnamed: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Work:
    inventory: SparkInventory
    disks: Sequence[Disk]
    partitions: Any
    broken: Mapping[TopicPartition, Unknown]

    @property
    def session(self) -> Any:
        return self.inventory.frame.sparkSession

    def laid(self, walks: bool) -> Any:
        """Return the segments by disk, each with what its partition says of it, and its place in time."""
        from pyspark.sql import functions as f

        known = {(disk.broker, path): n for n, disk in enumerate(self.disks) for path in disk.dirs}
        dirs = pa.table(
            {
                "broker": pa.array([broker for broker, _ in known], pa.int32()),
                "dir": pa.array([path for _, path in known], pa.string()),
                "disk": pa.array(list(known.values()), pa.int32()),
            }
        )
        found = self.inventory.frame.join(f.broadcast(self.session.createDataFrame(dirs)), ["broker", "dir"], "left")
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
        """Return the partitions, with how far each may go: null where it may not, or nobody knows."""
        from pyspark.sql import functions as f

        known = f.col("managed") & f.col("limit_reasons").isNull() & f.col("why").isNull()
        return self.partitions.join(self._broken(), [*TP], "left").select(
            *TP,
            f.col("topic_id").alias("wanted_id"),
            f.col("log_start").cast("bigint"),
            f.col("trim_to").cast("bigint"),
            f.when(known, f.col("limit_offset").cast("bigint")).alias("limit"),
        )

    def _broken(self) -> Any:
        from pyspark.sql import functions as f

        rows = [{"topic": tp.topic, "partition": tp.partition, "why": _reasons(one)} for tp, one in self.broken.items()]
        schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("why", pa.list_(REASON))])
        return f.broadcast(self.session.createDataFrame(pa.Table.from_pylist(rows, schema)))

    def _sizes(self, numbers: Iterable[int]) -> Any:
        """Return disk, topic, partition and what brokers say that the replica takes there."""
        schema = pa.schema(
            [("disk", pa.int32()), ("topic", pa.string()), ("partition", pa.int32()), ("now", pa.int64())]
        )
        batches = [batch for n in numbers for batch in _batches(n, self.disks[n].replicas, schema)]
        return self.session.createDataFrame(pa.Table.from_batches(batches, schema))

    def at_first(self, rows: Any) -> list[_AtFirst]:
        """Return what each disk has before the walk."""
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
            each.join(self._sizes(range(len(self.disks))), [*TP, "disk"], "left")
            .groupBy("disk")
            .agg(f.sum(there).alias("dead"), *(f.sum(name).alias(name) for name in ("gone", "candidates", "rows")))
            .collect()
        )
        seen = sum(row["rows"] for row in found)
        if seen != self.inventory.rows:
            raise InventoryError(
                f"the inventory had {self.inventory.rows:,} rows and has {seen:,} now: it was changed while it was read"
            )
        told = {row["disk"]: _AtFirst(row["dead"] or 0, row["gone"] or 0, row["candidates"]) for row in found}
        return [told.get(n, _AtFirst()) for n in range(len(self.disks))]

    def nothing(self) -> Any:
        """Return no bounds."""
        return self.session.createDataFrame([], "topic string, partition int, bound bigint")

    def walked(self, rows: Any, over: Mapping[int, int], candidates: int) -> Any:
        """Return how far each replica goes for its disk's sake: disk, topic, partition, next and age."""
        from pyspark.sql import functions as f

        table = pa.table(
            {"disk": pa.array(list(over), pa.int32()), "remaining": pa.array(list(over.values()), pa.int64())}
        )
        remaining = self.session.createDataFrame(table)
        rows = rows.where("age is not null").select(*TP, "disk", "next", "bytes", "age")
        if candidates >= _SIEVE_FROM:
            rows = in_reach(rows, remaining, "disk")
        each = going(rows, remaining, "disk").groupBy("disk", *TP)
        return each.agg(f.max("next").alias("next"), f.max("age").alias("age"))

    def levels(self, gone: Any) -> dict[int, int]:
        """Return the newest time that went of each disk for its own sake."""
        from pyspark.sql import functions as f

        return {row["disk"]: row["age"] for row in gone.groupBy("disk").agg(f.max("age").alias("age")).collect()}

    def replicas_after(self, rows: Any, bounds: Any) -> Any:
        """Return what of each replica goes with the bounds, and what stays, by why: null where no segment does."""
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
        """Return the bytes that go of each disk, those of the other rules' trims included."""
        from pyspark.sql import functions as f

        rows = after.groupBy("disk").agg(f.sum("freed").alias("freed")).collect()
        found = {row["disk"]: row["freed"] or 0 for row in rows}
        return [found.get(n, 0) for n in range(len(self.disks))]

    def in_the_way(self, after: Any, short: Sequence[int], found: _Found) -> None:
        """Add the most of what stays on these disks, the largest first, and how many more there are."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        if not short:
            return
        whys = [f.struct(f.lit(why).alias("why"), f.col(why).alias("size")) for why in ("active", "limit", "undated")]
        stays = after.where(f.col("disk").isin([*short])).select("disk", *TP, f.inline(f.array(*whys)))
        of_disk = Window.partitionBy("disk")
        rank = f.row_number().over(of_disk.orderBy(f.desc("size"), *TP, "why"))
        ranked = stays.where("size is not null").select(
            "*", rank.alias("rank"), f.count("*").over(of_disk).alias("many")
        )
        rows = sorted(ranked.where(f.col("rank") <= SHOWN).collect(), key=lambda row: (row["disk"], row["rank"]))
        allowed = self._allowed({TopicPartition(row["topic"], row["partition"]) for row in rows})
        for row in rows:
            tp = TopicPartition(row["topic"], row["partition"])
            one = blocker(tp, row["size"], row["why"], allowed.get(tp, UNMANAGED))
            found.stays.setdefault(row["disk"], []).append(one)
            found.unnamed[row["disk"]] = max(0, row["many"] - SHOWN)

    def _allowed(self, chosen: set[TopicPartition]) -> dict[TopicPartition, Maybe[Limit]]:
        """Return how far R6 may go of some partitions."""
        from pyspark.sql import functions as f

        names = pa.table(
            {
                "topic": pa.array([tp.topic for tp in chosen], pa.string()),
                "partition": pa.array([tp.partition for tp in chosen], pa.int32()),
            }
        )
        rows = self.partitions.where("managed").join(f.broadcast(self.session.createDataFrame(names)), [*TP]).collect()
        found = {TopicPartition(row["topic"], row["partition"]): _limit(row) for row in rows}
        return {tp: self.broken.get(tp) or found.get(tp, UNMANAGED) for tp in chosen}

    def unknown(self, outcomes: Sequence[DiskOutcome]) -> Any:
        """Return, of managed partitions on disks that R6 has to do with, why it could not look at them."""
        from pyspark.sql import functions as f

        numbers = [n for n, one in enumerate(outcomes) if concerned(one)]
        untold = [
            {"disk": n, "of_disk": _reasons(named(one.disk, one.unknown))}
            for n, one in enumerate(outcomes)
            if one.unknown is not None
        ]
        of_disks = pa.Table.from_pylist(untold, pa.schema([("disk", pa.int32()), ("of_disk", pa.list_(REASON))]))
        present = self.inventory.replicas.select(*TP).distinct().withColumn("present", f.lit(True))
        limit_unknown = (
            f.when(f.size("limit_reasons") > 0, f.col("limit_reasons"))
            .when(f.col("limit_reasons").isNotNull(), _as_array(_UNTOLD))
            .when(f.col("limit_offset").isNull(), _as_array(_UNTOLD))
        )
        managed = self.partitions.where("managed").select(*TP, limit_unknown.alias("stopped"))
        absent = f.when(f.col("present").isNull(), _as_array(NO_SEGMENTS))
        why = f.coalesce("of_disk", absent, "why", "stopped")
        return (
            self._sizes(numbers)
            .join(managed, [*TP])
            .join(present, [*TP], "left")
            .join(self._broken(), [*TP], "left")
            .join(f.broadcast(self.session.createDataFrame(of_disks)), "disk", "left")
            .select(*TP, "disk", why.alias("reasons"))
            .where("reasons is not null")
            .groupBy(*TP)
            .agg(f.min_by("reasons", "disk").alias("reasons"))
        )


_UNTOLD: Final = Unknown.because("R6", "how far it may go is not known")


def _limit(row: Any) -> Maybe[Limit]:
    if row["limit_reasons"]:
        return Unknown(tuple(Reason(one["code"], one["text"]) for one in row["limit_reasons"]))
    if row["limit_reasons"] is not None or row["limit_offset"] is None:
        return _UNTOLD
    return Limit(row["limit_offset"], row["limit_guard"], row["limit_text"])


def _reasons(why: Unknown) -> list[dict[str, str]]:
    return [{"code": one.code, "text": one.text} for one in why.reasons]


def _as_array(why: Unknown) -> Any:
    from pyspark.sql import functions as f

    return f.array(*(f.struct(f.lit(one.code).alias("code"), f.lit(one.text).alias("text")) for one in why.reasons))


def _batches(disk: int, replicas: Mapping[TopicPartition, int], schema: Any) -> Iterator[pa.RecordBatch]:
    """Yield a disk's replicas' sizes, some at a time: a large cluster has millions."""
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
    if sizes:  # behind an empty batch PySpark loses all others
        yield packed()
