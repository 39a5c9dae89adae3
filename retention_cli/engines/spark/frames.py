"""Reduce commits to standings: minimums over millions of rows, by groupBy, that keep what is unknown (F1–F6)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from retention_cli.core.model import Reason
from retention_cli.engines.spark.schemas import ddl
from retention_cli.observe.floors.standing import NAMED_AT_MOST, Best, GoneCommit, Refused, Standing

ROWS_A_BATCH: Final = 5_000
PLACE: Final = ("cluster", "topic", "partition")


def as_frame(session: Any, table: Any) -> Any:
    """Return a pyarrow table as a frame.

    Connect can't infer an empty table's columns; and after an empty batch PySpark loses all others.
    """
    if not len(table):
        return session.createDataFrame([], ddl(table.schema))
    some = [batch for batch in table.to_batches() if batch.num_rows]
    return session.createDataFrame(pa.Table.from_batches(some, table.schema))


def frame_of(session: Any, rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Any:
    """Return rows as a frame, packed into columns as they arrive."""
    return as_frame(session, pa.Table.from_batches(batches_of(rows, schema), schema))


def batches_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow batches, as they arrive; none is empty."""
    waiting = iter(rows)
    while some := list(itertools.islice(waiting, ROWS_A_BATCH)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def standings(commits: Any, required: Sequence[str] = ()) -> Any:
    """Return one row for each partition in rows of ``schemas.COMMITS``, as input of :func:`standing_of`.

    It lacks ``failed`` and ``failed_topic``, which :func:`with_failures` adds: they concern more than one partition.

    Args:
        commits: rows of ``schemas.COMMITS``.
        required: every group that the policy requires for any topic (F4).
    """
    from pyspark.sql import functions as f

    counted = commits.where("kind = 'commit'")
    lowest = f.min(f.struct("offset", "group"))
    highest = f.min(f.struct((-f.col("offset")).alias("minus"), "group"))
    by_epoch = counted.groupBy(*PLACE, "leader_epoch").agg(lowest.alias("least"), highest.alias("most"))
    best = by_epoch.groupBy(*PLACE).agg(
        f.min("least").alias("least"),
        f.min("most").alias("most"),
        f.bool_or(f.col("leader_epoch").isNull()).alias("bare"),
        f.collect_list(f.when(f.col("leader_epoch").isNotNull(), _highest())).alias("epochs"),
    )
    best = best.select(
        *PLACE,
        f.col("least.offset").alias("low"),
        f.col("least.group").alias("low_by"),
        (-f.col("most.minus")).alias("high"),
        f.col("most.group").alias("high_by"),
        "bare",
        "epochs",
    )
    joined = best.join(_odd(commits), [*PLACE], "full_outer").join(_missing(commits), [*PLACE], "full_outer")
    if required:
        there = commits.where(f.col("kind").isin("commit", "gone", "refused") & f.col("group").isin(*required))
        present = there.groupBy(*PLACE).agg(f.collect_set("group").alias("present"))
        return joined.join(present, [*PLACE], "full_outer")
    return joined.withColumn("present", f.lit(None).cast("array<string>"))


def _highest() -> Any:
    from pyspark.sql import functions as f

    return f.struct("leader_epoch", (-f.col("most.minus")).alias("offset"), f.col("most.group").alias("group"))


def _odd(commits: Any) -> Any:
    """Return a partition's refused commits (F5), and the lowest commit of deleted groups (F6), by leader epoch.

    There are few of them, so one aggregation covers both.
    """
    from pyspark.sql import functions as f

    gone, refused = f.col("kind") == "gone", f.col("kind") == "refused"
    by_epoch = (
        commits.where(gone | refused)
        .groupBy(*PLACE, "kind", "leader_epoch")
        .agg(
            f.min(f.struct("offset", "group", "text")).alias("least"),
            f.min(f.struct("group", "offset", "text")).alias("first"),
            f.min(f.struct((-f.col("offset")).alias("minus"), "group")).alias("most"),
        )
    )
    proven = gone & f.col("leader_epoch").isNotNull()
    lowest = f.struct("leader_epoch", "least.offset", "least.group", f.col("least.text").alias("seen"))
    never = f.struct("first.offset", "first.group", f.col("first.text").alias("seen"))
    return by_epoch.groupBy(*PLACE).agg(
        f.collect_list(f.when(refused, _highest())).alias("refused"),
        f.collect_list(f.when(proven, lowest)).alias("gone"),
        f.min(f.when(gone & f.col("leader_epoch").isNull(), never)).alias("unproven"),
    )


def _missing(commits: Any) -> Any:
    """Return the first few groups by name without a commit on a partition, and how many there are (F2)."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    window = Window.partitionBy(*PLACE).orderBy("group")
    ranked = commits.where("kind = 'missing'").withColumn("rank", f.row_number().over(window))
    few = f.when(f.col("rank") <= NAMED_AT_MOST, f.struct("group", "text"))
    return ranked.groupBy(*PLACE).agg(f.collect_list(few).alias("missing"), f.count("*").alias("missing_count"))


def with_failures(rows: Any, commits: Any) -> Any:
    """Return the rows with the reasons for what could not be read in their topic and cluster (F3, F8, F9)."""
    from pyspark.sql import functions as f

    reasons = f.collect_set(f.struct("code", "text"))
    failed = commits.where("kind = 'failed'")
    topics = failed.where("topic is not null").groupBy("cluster", "topic").agg(reasons.alias("failed_topic"))
    clusters = failed.where("topic is null").groupBy("cluster").agg(reasons.alias("failed"))
    return rows.join(f.broadcast(topics), ["cluster", "topic"], "left").join(f.broadcast(clusters), ["cluster"], "left")


def join_commits(places: Any, commits: Any, required: Sequence[str] = ()) -> Any:
    """Return every partition of ``places`` (``schemas.SLICES`` or ``OFFSETS``) with its standing."""
    return with_failures(places.join(standings(commits, required), [*PLACE], "left"), commits)


def standing_of(row: Mapping[str, Any], require: Iterable[str]) -> Standing:
    """Return a partition's standing from a row of :func:`join_commits`; ``require`` are the groups that F4 requires."""
    best = None if row["low"] is None else Best(row["low"], row["low_by"], row["high"], row["high_by"])
    missing, now = row["missing"], row["leader_epoch"]
    refused = [Refused(one["offset"], one["leader_epoch"], one["group"]) for one in row["refused"] or ()]
    ahead = [one for one in refused if one.epoch is not None and one.epoch > now]
    return Standing(
        leader_epoch=now,
        best=best,
        failed=_reasons(row["failed"]),
        failed_topic=_reasons(row["failed_topic"]),
        epochs={one["leader_epoch"]: (one["offset"], one["group"]) for one in row["epochs"] or ()},
        refused=min(refused, key=lambda one: one.rank, default=None),
        ahead=min(ahead, key=lambda one: one.rank, default=None),
        missing=[(one["group"], one["text"]) for one in missing] if missing else (),
        missing_count=row["missing_count"] or 0,
        absent=[group for group in require if group not in (row["present"] or ())],
        gone={one["leader_epoch"]: _gone(one) for one in row["gone"] or ()},
        unproven=None if row["unproven"] is None else _gone(row["unproven"]),
        bare=bool(row["bare"]),
    )


def _gone(row: Mapping[str, Any]) -> GoneCommit:
    return GoneCommit(row["offset"], row["group"], row["seen"])


def _reasons(rows: Iterable[Mapping[str, str]] | None) -> set[Reason]:
    return {Reason(one["code"], one["text"]) for one in rows} if rows else set()
