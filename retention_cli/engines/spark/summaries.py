"""Summarize each cluster's decided rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from retention_cli.plan.value import Totals


@dataclass(frozen=True, slots=True)
class Summary:
    """The sums over a cluster's rows: totals, all managed records (Σ H − S), and why sizes are missing."""

    totals: Totals
    managed: int = 0
    note: str | None = None


def summaries_of(decided: Any) -> dict[str, Summary]:
    """Return each cluster's summary. This makes Spark read and decide."""
    from pyspark.sql import functions as f

    trims = f.col("action") == "trim"
    rows = (
        decided.groupBy("cluster")
        .agg(
            f.count("*").alias("partitions"),
            *(f.count_if(f.col("action") == name).alias(name) for name in ("trim", "keep", "hold", "skip")),
            f.sum(f.when(trims, f.col("records"))).alias("records"),
            f.sum(f.when(trims, f.col("bytes"))).alias("bytes"),
            f.count_if(trims & f.col("bytes").isNull()).alias("unsized"),
            f.sum(f.when(trims, f.col("unconsumed"))).alias("unconsumed"),
            f.count_if(trims & ~f.col("bytes_exact")).alias("inexact"),
            f.sum(f.col("high_watermark") - f.col("log_start")).alias("managed"),
            f.min("note").alias("note"),
        )
        .collect()
    )
    return {
        row["cluster"]: Summary(
            Totals(
                row["partitions"],
                row["trim"],
                row["keep"],
                row["hold"],
                row["skip"],
                records=row["records"] or 0,
                size_bytes=None if row["unsized"] else row["bytes"] or 0,
                unconsumed=row["unconsumed"] or 0,
                size_exact=row["trim"] > 0 and not row["inexact"],
            ),
            row["managed"] or 0,
            row["note"],
        )
        for row in rows
    }
