"""The columns of every frame, as Arrow schemas: those that readers yield and notebooks show.

Times are Unix ms, sizes bytes. A null is never a number: if a value could not be read, ``unknown`` names the
column with the reason's code and text.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from retention_cli.plan.columns import CLUSTER, COLUMNS, SAVED
from retention_cli.plan.parquet import schema as plan_schema

REASON: Final = pa.struct([("code", pa.string()), ("text", pa.string())])
UNKNOWN: Final = pa.list_(pa.struct([("field", pa.string()), ("code", pa.string()), ("text", pa.string())]))

COMMITS: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("kind", pa.string()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("code", pa.string()),
        ("text", pa.string()),
    ]
)
"""One row per group and partition; ``kind`` as in :class:`retention_cli.observe.floors.rows.CommitRow`."""

BASES: Final = [("bases", pa.list_(pa.int64())), ("bases_reasons", pa.list_(REASON))]
"""The base offsets of the leader's segments from an inventory; both null if none are needed."""

SLICES: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("slice", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("topic_id", pa.string()),
        ("internal", pa.bool_()),
        ("leader", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("memory", pa.binary()),
        ("proof", pa.binary()),
        ("disk_facts", pa.binary()),
        *BASES,
    ]
)
"""The partitions in the first metadata read, and the slice that reads each.

``memory`` is the ledger's record of a partition, if a rule needs it; otherwise ``proof`` is the part of it that shows
whether its log was cut (M2). Both are written by :func:`retention_cli.memory.documents.memory_as_bytes`. ``disk_facts``
are R7's usage and R5's tails, read by the client (:mod:`retention_cli.engines.spark.values`); null if there are no disk
rules.
"""

OFFSETS: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("topic_id", pa.string()),
        ("internal", pa.bool_()),
        ("leader", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("cleanup_policy", pa.string()),
        ("retention_ms", pa.int64()),
        ("timestamp_type", pa.string()),
        ("log_start", pa.int64()),
        ("high_watermark", pa.int64()),
        ("last_stable_offset", pa.int64()),
        (
            "lookups",
            pa.list_(
                pa.struct(
                    [
                        ("time", pa.int64()),
                        ("data", pa.bool_()),
                        ("offset", pa.int64()),
                        ("timestamp", pa.int64()),
                        ("record", pa.int64()),
                        ("code", pa.string()),
                        ("text", pa.string()),
                    ]
                )
            ),
        ),
        ("newest", pa.struct([("time", pa.int64()), ("offset", pa.int64()), ("exact", pa.bool_())])),
        (
            "event_prefix",
            pa.struct(
                [
                    ("offset", pa.int64()),
                    ("timestamp", pa.int64()),
                    ("ancient", pa.int64()),
                    ("ancient_ms", pa.int64()),
                    ("code", pa.string()),
                    ("text", pa.string()),
                ]
            ),
        ),
        ("samples", pa.binary()),
        ("stamped_below", pa.int64()),
        ("size_bytes", pa.int64()),
        ("unknown", UNKNOWN),
        ("read_ms", pa.int64()),
    ]
)
"""One row per partition: S, H, L and look-ups. ``lookups.offset`` is ``offset_at(time)``; null if unknown."""

FACTS: Final = pa.schema(
    [("cluster", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("read", pa.binary())]
)
"""One row per partition that was read, for later tasks: ``read`` is a
:class:`retention_cli.engines.spark.fact_tasks.ReadPartition`."""

LIMITS: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("topic_id", pa.string()),
        ("skipped", pa.bool_()),
        ("log_start", pa.int64()),
        ("trim_to", pa.int64()),
        ("limit_offset", pa.int64()),
        ("limit_guard", pa.string()),
        ("limit_text", pa.string()),
        ("limit_reasons", pa.list_(REASON)),
    ]
)
"""The other rules' bound of a partition, and how far its guards let R6 trim; ``limit_reasons`` if that is unknown."""

ASKED: Final = pa.schema(
    [("cluster", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("asked", pa.binary())]
)
"""R6's bound of a partition with its reason, and why R6 is unknown, determined by the client for tasks
(:class:`retention_cli.disks.decide.Measured`)."""

FLOORS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("log_start", pa.int64()),
        ("high_watermark", pa.int64()),
        ("last_stable_offset", pa.int64()),
        ("min_commit", pa.int64()),
        ("min_commit_by", pa.string()),
        ("lag", pa.int64()),
        ("reasons", pa.list_(REASON)),
    ]
)
"""One row per partition: :func:`retention_cli.reports.offsets.floor_row`."""

LOGS: Final = pa.schema(
    [
        *FLOORS,
        ("leader_epoch", pa.int32()),
        ("bytes", pa.int64()),
        ("samples", pa.list_(pa.struct([("wall_ms", pa.int64()), ("high_watermark", pa.int64())]))),
        ("ends", pa.list_(pa.struct([("leader_epoch", pa.int32()), ("end", pa.int64())]))),
    ]
)
"""Rows of :data:`FLOORS`, with what :class:`retention_cli.reports.unread.Log` has."""

SIZES: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("broker", pa.int32()),
        ("log_dir", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("bytes", pa.int64()),
        ("offset_lag", pa.int64()),
        ("is_future", pa.bool_()),
        ("total_bytes", pa.int64()),
        ("usable_bytes", pa.int64()),
        ("unknown", UNKNOWN),
    ]
)
"""One row per replica in a log dir; an empty or offline dir, and a broker that does not answer, have one row each."""

RECORDS: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("event_time", pa.int64()),
        ("bytes", pa.int64()),
        ("tombstone", pa.bool_()),
    ]
)
"""One row per data record. A time that is missing, or can't be read, is null."""

PIECES: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("reached", pa.int64()),
        ("error", pa.string()),
        ("out_of_range", pa.bool_()),
        ("hours", pa.binary()),
    ]
)
"""One row per piece of a partition read for a profile (:class:`retention_cli.brokers.record_columns.Ended`)."""

BATCH_RUNS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("error", pa.string()),
        ("moved", pa.bool_()),
        *((name, pa.list_(pa.int64())) for name in ("base_offset", "next_offset", "size_bytes", "largest_timestamp")),
    ]
)
"""One row per piece of a log read for its bytes (:class:`retention_cli.brokers.wire.runs.Runs`)."""

PLAN: Final = pa.schema([one.with_nullable(True) for one in plan_schema((CLUSTER, *SAVED))])
"""The plan's rows (docs/plan.md, The plan)."""

TOLD: Final = pa.schema(
    [
        ("read_ms", pa.int64()),
        ("memory", pa.binary()),
        ("doubt", pa.bool_()),
        ("ends", pa.list_(pa.struct([("leader_epoch", pa.int32()), ("end", pa.int64()), ("text", pa.string())]))),
        ("note", pa.string()),
    ]
)
"""A partition's facts that tasks return to the client besides the decision, to be remembered.

``memory`` is the updated record that a task was sent; null if it is unchanged. ``ends`` are the ends of the leader
epochs that the task asked about: a null end is an epoch that the leader does not know; with a ``text``, the request
failed. ``doubt``: whether the log was cut is unknown (M4). ``note`` is why sizes are missing, once per slice.
"""

DECIDED: Final = pa.schema([*(one.with_nullable(True) for one in plan_schema((CLUSTER, *COLUMNS))), *TOLD])
"""The plan's rows, with the columns that are not saved, and the facts that the client remembers of each partition."""


def ddl(schema: Any) -> str:
    """Return an Arrow schema in Spark's type syntax."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return str(from_arrow_schema(schema).simpleString())
