"""The columns of every frame, as Arrow schemas: those that readers yield and notebooks show.

Times are Unix ms, sizes bytes. A null is never a number: if a value could not be read, ``unknown`` names the
column with the reason's code and text.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from retention_cli.plan.columns import COLUMNS
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

READ: Final = pa.schema([*COMMITS, ("task", pa.int32()), ("key", pa.int32()), ("value", pa.binary())])
"""What tasks that read commits return, and what those that read partitions get.

=======  ===================================================================================================
kind     means
=======  ===================================================================================================
part     ``value`` is what some groups come to on the partitions that a ``task`` reads
         (:class:`retention_cli.engines.spark.parts.Part`)
source   parts of one were sent (:class:`retention_cli.engines.spark.parts.Source`): ``offset`` is its broker,
         ``partition`` its part, ``text`` its run
memory   a ``group`` was read; ``value`` are its commits, if the client's ledger has others
task     there is such a ``task``
=======  ===================================================================================================

Rows of other kinds are commits, where they are wanted. Spark's hash puts a row with the ``key`` of a task into the
partition with the task's number (:func:`retention_cli.engines.spark.packing.keys`).
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

TOLD: Final = pa.schema(
    [
        ("at", pa.int32()),
        ("read_ms", pa.int64()),
        ("memory", pa.binary()),
        ("doubt", pa.bool_()),
        ("ends", pa.list_(pa.struct([("leader_epoch", pa.int32()), ("end", pa.int64()), ("text", pa.string())]))),
        ("note", pa.string()),
    ]
)
"""A partition's facts that tasks return to the client besides the decision, to be remembered.

``at`` is its position among the cluster's partitions (:class:`retention_cli.engines.spark.places.Places`).
``memory`` is the updated record that a task was sent; null if it is unchanged. ``ends`` are the ends of the leader
epochs that the task asked about: a null end is an epoch that the leader does not know; with a ``text``, the request
failed. ``doubt``: whether the log was cut is unknown (M4). ``note`` is why sizes are missing, once per slice.
"""

CHUNK: Final = pa.schema([*(one.with_nullable(True) for one in plan_schema(COLUMNS)), *TOLD])
"""The plan's rows of one cluster, with the columns that are not saved, and what the client remembers of each."""

LOST: Final = pa.schema([("group", pa.string()), ("lost", pa.int64()), ("error", pa.string())])
"""How many records would be trimmed before a group has read them; or why a slice of groups could not be read."""

WRITTEN: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("rows", pa.int64()),
        ("file", pa.string()),
        ("content", pa.binary()),
    ]
)
"""A part of the plan that a task has written: the name of its file in the client's folder, or where the task does not
see that folder, the file's content."""


def ddl(schema: Any) -> str:
    """Return an Arrow schema in Spark's type syntax."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return str(from_arrow_schema(schema).simpleString())
