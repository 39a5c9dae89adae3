"""The walk over segments, oldest first, as windows over frames (R6, and R5's of a topic).

As in :mod:`retention_cli.disks.solve.water_level`, whose docstring explains why no loop is needed, the segments trimmed
on each disk (or of each topic) are those before a position in its own order. A null is never old and never below a
bound.
"""

from __future__ import annotations

from typing import Any, Final

from retention_cli.disks.solve.dictionary import NO_END
from retention_cli.disks.solve.segments import UNDATED

_BUCKETS: Final = 1_024
"""The number of buckets, each with a sum, in the sieve of times, per disk."""


def plain(frame: Any, ours: Any) -> Any:
    """Return an inventory's rows without nulls: a segment with an unknown value is not trimmed because of it.

    Args:
        frame: rows of an inventory, with any other columns.
        ours: whether a row is of the current topic with its name; null: unknown.
    """
    from pyspark.sql import functions as f

    end = f.when(ours, f.col("next_offset"))
    return frame.withColumns(
        {
            "next": f.coalesce(end, f.lit(NO_END)),
            "time": f.coalesce("largest_timestamp", f.lit(UNDATED)),
            "active": f.coalesce("active", f.lit(True)),
        }
    )


def at_most(offset: Any, instead: int) -> Any:
    """Return an offset (``instead`` if it is null) that is below the end of a segment whose end is unknown."""
    from pyspark.sql import functions as f

    return f.least(f.coalesce(offset, f.lit(instead)), f.lit(NO_END - 1)).cast("bigint")


def age() -> Any:
    """Return a candidate's age: the largest time of its partition up to its end (Unix ms). Null: it can't be trimmed.

    Over columns topic, partition, next, time, active, gone (trimmed without the walk) and limit. Rows of one partition
    that end at the same offset are one candidate. Nothing is trimmed at or after a segment without a time.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    upto = Window.partitionBy("topic", "partition").orderBy("next").rangeBetween(Window.unboundedPreceding, 0)
    stays = ~f.col("active") & ~f.col("gone")
    dated = f.min(f.when(stays, f.col("time"))).over(upto) >= 0
    return f.when(stays & (f.col("next") <= f.col("limit")) & dated, f.max(f.when(stays, f.col("time"))).over(upto))


def in_reach(rows: Any, remaining: Any, key: str) -> Any:
    """Return the rows that the walk can reach, by coarse times, so that fewer rows need sorting.

    Args:
        rows: candidates: ``key``, age and bytes.
        remaining: ``key``, and the bytes that it must free; only those that must free any.
        key: a disk or a topic.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    few = f.broadcast(remaining)
    span = rows.join(few, key).groupBy(key, "remaining").agg(f.min("age").alias("low"), f.max("age").alias("high"))
    width = f.expr(f"(high - low) div {_BUCKETS} + 1").alias("width")
    span = f.broadcast(span.select(key, "remaining", "low", width))
    placed = rows.join(span, key).withColumn("bucket", f.expr("(age - low) div width"))
    held = placed.groupBy(key, "remaining", "bucket").agg(f.sum("bytes").alias("held"))
    upto = f.sum("held").over(Window.partitionBy(key).orderBy("bucket"))
    # the buckets that end before enough is trimmed, and the one in which it is enough
    needed = held.withColumn("before", upto - f.col("held")).where("before < remaining")
    last = f.broadcast(needed.groupBy(key).agg(f.max("bucket").alias("last")))
    return placed.join(last, key).where("bucket <= last").drop("remaining", "low", "width", "bucket", "last")


def going(rows: Any, remaining: Any, key: str) -> Any:
    """Return the rows trimmed because of each disk, oldest first, until it has freed what it must free.

    Args:
        rows: candidates: ``key``, topic, partition, next, bytes and age.
        remaining: ``key``, and the bytes that it must free; only those that must free any.
        key: a disk or a topic.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    walk = Window.partitionBy(key).orderBy("age", "topic", "partition", "next")
    before = f.sum("bytes").over(walk.rowsBetween(Window.unboundedPreceding, -1))
    walked = rows.join(f.broadcast(remaining), key).withColumn("before", f.coalesce(before, f.lit(0)))
    return walked.where(f.col("before") < f.col("remaining"))
