"""What each consumer has yet to read, over Spark: :mod:`retention_cli.reports.unread` as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retention_cli.core.model import PartitionFacts
from retention_cli.reports.unread import BY_PARTITION, BY_TOPIC, Rows, log_of

Row = dict[str, Any]


def log_row(facts: PartitionFacts, told_ends: Sequence[Row] | None) -> Row:
    """Return what ``schemas.LOGS`` has beside a partition's floor; ``told_ends`` as in ``schemas.TOLD``."""
    ends = {row["leader_epoch"]: row["end"] for row in told_ends or ()}
    log = log_of(facts, ends)
    return {
        "leader_epoch": log.leader_epoch,
        "bytes": log.size_bytes,
        "samples": [{"wall_ms": at, "high_watermark": end} for at, end in log.samples],
        "ends": [{"leader_epoch": epoch, "end": end} for epoch, end in ends.items()],
    }


def unread_frame(logs: Any, commits: Any, each: Rows) -> Any:
    """Return rows of ``reports.unread.BY_TOPIC`` or ``BY_PARTITION``.

    Args:
        logs: rows of ``schemas.LOGS``.
        commits: rows of ``schemas.COMMITS``, with plain names of groups.
        each: whether a row is of a topic, or of a partition.
    """
    from pyspark.sql import functions as f

    mine = commits.where("`group` <> ''")
    there = logs.select(
        "topic",
        "partition",
        "log_start",
        "high_watermark",
        "samples",
        f.col("bytes").alias("size"),
        f.col("leader_epoch").alias("now"),
        f.map_from_entries("ends").alias("ends"),
    )
    rows = mine.join(there, ["topic", "partition"], "left")
    rows = rows.withColumn("stands", f.expr(_STANDS)).withColumn("oldest", f.greatest("stands", "log_start"))
    rows = rows.withColumn("records", f.expr(_RECORDS)).select(
        "topic",
        "partition",
        "group",
        f.col("offset").alias("committed"),
        "records",
        f.expr(_BYTES).alias("bytes"),
        f.expr(_SINCE).alias("unread_since"),
        f.expr("kind = 'gone'").alias("remembered"),
    )
    if each == "partitions":
        return rows.select(*BY_PARTITION)
    return (
        rows.groupBy("topic", "group")
        .agg(
            f.count("partition").alias("partitions"),
            f.count_if(f.col("records").isNull()).alias("unknown"),
            *(f.when(f.count(name) == f.count("*"), f.sum(name)).alias(name) for name in ("records", "bytes")),
            f.min("unread_since").alias("unread_since"),
            f.bool_or("remembered").alias("remembered"),
        )
        .select(*BY_TOPIC)
    )


_STANDS = """
CASE WHEN kind NOT IN ('commit', 'gone') THEN NULL
     WHEN leader_epoch IS NULL THEN IF(kind = 'commit', offset, NULL)
     WHEN leader_epoch > now THEN NULL
     WHEN NOT map_contains_key(ends, leader_epoch) THEN offset
     WHEN offset <= try_element_at(ends, leader_epoch) THEN offset
     WHEN kind = 'gone' THEN try_element_at(ends, leader_epoch)
END
"""
"""Where a consumer stands; null: unknown."""
_RECORDS = """
CASE WHEN log_start IS NULL OR high_watermark IS NULL THEN NULL
     WHEN kind = 'missing' AND log_start = high_watermark THEN 0
     WHEN stands <= high_watermark THEN high_watermark - oldest
END
"""
_BYTES = """
CASE WHEN records = 0 THEN 0
     ELSE CAST(CAST(size AS DECIMAL(19)) * CAST(records AS DECIMAL(19)) DIV (high_watermark - log_start) AS BIGINT)
END
"""
_SINCE = """
CASE WHEN records > 0 THEN
     aggregate(samples, CAST(NULL AS BIGINT),
               (since, one) -> IF(one.high_watermark <= oldest, NULL, coalesce(since, one.wall_ms)))
END
"""
