"""The bytes that R6 could not free, and the partitions that it could not judge, over Spark, with the reasons (R6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from retention_cli.core.model import Maybe, Reason, TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks.solve.oldest_first import NO_SEGMENTS, UNMANAGED, blocker, concerned
from retention_cli.disks.solve.outcome import SHOWN, Blocker, DiskOutcome
from retention_cli.disks.solve.room import named
from retention_cli.engines.spark.disk_rows import TP, DiskRows
from retention_cli.engines.spark.fact_rows import reason_rows
from retention_cli.engines.spark.frames import frame_of
from retention_cli.engines.spark.schemas import REASON

_UNTOLD: Final = Unknown.because("R6", "how far it may go is not known")


def in_the_way(work: DiskRows, after: Any, short: Sequence[int]) -> dict[int, tuple[list[Blocker], int]]:
    """Return, by disk, the largest amounts of bytes that stay, and how many more amounts there are.

    Args:
        work: the segments.
        after: the bytes that stay, by replica (:meth:`DiskRows.replicas_after`).
        short: the disks that stay above their ceilings.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if not short:
        return {}
    whys = [f.struct(f.lit(why).alias("why"), f.col(why).alias("size")) for why in ("active", "limit", "undated")]
    left = after.where(f.col("disk").isin([*short])).select("disk", *TP, f.inline(f.array(*whys)))
    of_disk = Window.partitionBy("disk")
    rank = f.row_number().over(of_disk.orderBy(f.desc("size"), *TP, "why"))
    ranked = left.where("size is not null").select("*", rank.alias("rank"), f.count("*").over(of_disk).alias("many"))
    rows = sorted(ranked.where(f.col("rank") <= SHOWN).collect(), key=lambda row: (row["disk"], row["rank"]))
    allowed = _allowed(work, {TopicPartition(row["topic"], row["partition"]) for row in rows})
    found: dict[int, tuple[list[Blocker], int]] = {}
    for row in rows:
        tp = TopicPartition(row["topic"], row["partition"])
        stays, _ = found.setdefault(row["disk"], ([], max(0, row["many"] - SHOWN)))
        stays.append(blocker(tp, row["size"], row["why"], allowed.get(tp, UNMANAGED)))
    return found


def _allowed(work: DiskRows, chosen: set[TopicPartition]) -> dict[TopicPartition, Maybe[Limit]]:
    """Return how far R6 may trim some partitions."""
    from pyspark.sql import functions as f

    places = ({"topic": tp.topic, "partition": tp.partition} for tp in chosen)
    names = frame_of(work.session, places, pa.schema([("topic", pa.string()), ("partition", pa.int32())]))
    rows = work.partitions.where("managed").join(f.broadcast(names), [*TP]).collect()
    found = {TopicPartition(row["topic"], row["partition"]): _limit(row) for row in rows}
    return {tp: work.broken.get(tp) or found.get(tp, UNMANAGED) for tp in chosen}


def unknown_partitions(work: DiskRows, outcomes: Sequence[DiskOutcome]) -> Any:
    """Return why R6 could not judge managed partitions, on disks above their ceilings or of unknown usage."""
    from pyspark.sql import functions as f

    numbers = [n for n, one in enumerate(outcomes) if concerned(one)]
    untold = [
        {"disk": n, "of_disk": reason_rows(named(one.disk, one.unknown))}
        for n, one in enumerate(outcomes)
        if one.unknown is not None
    ]
    untold += [
        {"disk": n, "waits": reason_rows(named(one.disk, one.waits))}
        for n, one in enumerate(outcomes)
        if one.waits is not None
    ]
    of_disks = frame_of(
        work.session,
        untold,
        pa.schema([("disk", pa.int32()), ("of_disk", pa.list_(REASON)), ("waits", pa.list_(REASON))]),
    )
    present = work.inventory.replicas.select(*TP).distinct().withColumn("present", f.lit(True))
    limit_unknown = (
        f.when(f.size("limit_reasons") > 0, f.col("limit_reasons"))
        .when(f.col("limit_reasons").isNotNull(), _as_array(_UNTOLD))
        .when(f.col("limit_offset").isNull(), _as_array(_UNTOLD))
    )
    managed = work.partitions.where("managed").select(*TP, limit_unknown.alias("stopped"))
    absent = f.when(f.col("present").isNull(), _as_array(NO_SEGMENTS))
    why = f.coalesce("of_disk", absent, "why", "stopped", "waits")
    return (
        work.sizes(numbers)
        .join(managed, [*TP])
        .join(present, [*TP], "left")
        .join(work.broken_rows(), [*TP], "left")
        .join(f.broadcast(of_disks), "disk", "left")
        .select(*TP, "disk", why.alias("reasons"))
        .where("reasons is not null")
        .groupBy(*TP)
        .agg(f.min_by("reasons", "disk").alias("reasons"))
    )


def _limit(row: Any) -> Maybe[Limit]:
    if row["limit_reasons"]:
        return Unknown(tuple(Reason(one["code"], one["text"]) for one in row["limit_reasons"]))
    if row["limit_reasons"] is not None or row["limit_offset"] is None:
        return _UNTOLD
    return Limit(row["limit_offset"], row["limit_guard"], row["limit_text"])


def _as_array(why: Unknown) -> Any:
    from pyspark.sql import functions as f

    return f.array(*(f.struct(f.lit(one.code).alias("code"), f.lit(one.text).alias("text")) for one in why.reasons))
