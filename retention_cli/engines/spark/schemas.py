"""The columns of every frame, as Arrow schemas: what readers yield and notebooks see.

Times are Unix ms, sizes bytes. A null is never a number: where a value could not be read, ``unknown`` names the
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
"""One row a group and partition; ``kind`` as :class:`retention_cli.observe.floors.rows.CommitRow` has it."""

EPOCH_COMMIT: Final = pa.struct([("leader_epoch", pa.int32()), ("offset", pa.int64()), ("group", pa.string())])

STANDING: Final = pa.schema(
    [
        ("low", pa.int64()),
        ("low_by", pa.string()),
        ("high", pa.int64()),
        ("high_by", pa.string()),
        ("bare", pa.bool_()),
        ("epochs", pa.list_(EPOCH_COMMIT)),
        ("refused", pa.list_(EPOCH_COMMIT)),
        ("gone", pa.list_(pa.struct([*EPOCH_COMMIT, ("seen", pa.string())]))),
        ("unproven", pa.struct([("offset", pa.int64()), ("group", pa.string()), ("seen", pa.string())])),
        ("ends", pa.list_(pa.struct([("leader_epoch", pa.int32()), ("end", pa.int64()), ("text", pa.string())]))),
        ("cut", pa.struct([("offset", pa.int64()), ("leader_epoch", pa.int32())])),
        ("missing", pa.list_(pa.struct([("group", pa.string()), ("text", pa.string())]))),
        ("missing_count", pa.int64()),
        ("present", pa.list_(pa.string())),
        ("failed", pa.list_(REASON)),
        ("failed_topic", pa.list_(REASON)),
    ]
)
"""What a partition's commits come to (:class:`retention_cli.observe.floors.standing.Standing`).

``ends`` and ``cut`` are null until the partition's leader was asked. An end of null is an epoch that it does not know;
with a ``text``, one that could not be asked about. A cut without an offset could not be asked about either.
"""

MEMORY: Final = pa.struct(
    [
        ("packed", pa.binary()),
        ("newest_time", pa.int64()),
        ("newest_offset", pa.int64()),
        ("newest_exact", pa.bool_()),
        ("data_at", pa.list_(pa.int64())),
        ("scan", pa.binary()),
        ("replicas", pa.binary()),
        ("leader_epoch", pa.int32()),
        ("last_epoch", pa.int32()),
        ("earlier", pa.binary()),
        ("log_start", pa.int64()),
        ("created", pa.bool_()),
        ("created_below", pa.int64()),
        ("front", pa.int64()),
        ("front_append", pa.bool_()),
    ]
)

PROOF: Final = pa.struct(
    [
        ("leader_epoch", pa.int32()),
        ("last_epoch", pa.int32()),
        ("earlier", pa.binary()),
        ("log_start", pa.int64()),
        ("high_watermark", pa.int64()),
    ]
)
"""Where a partition stood when it was last looked at: by that it is told whether its log was cut (M2)."""

DISK_FACTS: Final = pa.struct(
    [
        (
            "usage",
            pa.struct(
                [
                    ("disk", pa.string()),
                    ("percent", pa.float64()),
                    ("mark", pa.float64()),
                    ("factor", pa.float64()),
                    ("minimum_ms", pa.int64()),
                ]
            ),
        ),
        ("usage_reasons", pa.list_(REASON)),
        (
            "tails",
            pa.list_(
                pa.struct(
                    [
                        ("key", pa.string()),
                        ("offset", pa.int64()),
                        ("exact", pa.bool_()),
                        ("by", pa.string()),
                        ("reasons", pa.list_(REASON)),
                    ]
                )
            ),
        ),
    ]
)
"""What the client has seen of disks, for a partition's own rules (R5, R7). Null where no rule speaks of disks."""

BASES: Final = [("bases", pa.list_(pa.int64())), ("bases_reasons", pa.list_(REASON))]
"""The base offsets of the leader's segments by an inventory; both null where none is wanted."""

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
        ("memory", MEMORY),
        ("proof", PROOF),
        ("disk_facts", DISK_FACTS),
        *BASES,
    ]
)
"""The partitions as the first metadata read named them, and which slice reads each."""

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
"""One row a partition: S, H, L and look-ups. ``lookups.offset`` is ``offset_at(time)``; null where it is unknown."""

FACTS: Final = pa.schema(
    [*OFFSETS, ("memory", MEMORY), ("doubt", pa.bool_()), ("note", pa.string()), ("disk_facts", DISK_FACTS), *BASES]
)

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
"""Where the other rules trim a partition to, and how far its guards let R6 go; ``limit_reasons`` where they don't."""

DISK_ASKED: Final = pa.struct([("bound", pa.int64()), ("why", pa.string()), ("reasons", pa.list_(REASON))])
"""What R6 asks of a partition, and why; ``reasons`` where it is unknown."""

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
"""One row a partition: :func:`retention_cli.reports.offsets.floor_row`."""

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
"""One row a replica in a log dir; a dir with none, one that is offline and a broker that says nothing are one, too."""

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
"""One row a data record. A time that it does not have, or that can't be read, is null."""

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
"""One row a piece of a partition that was read for a profile (:class:`retention_cli.brokers.record_columns.Ended`)."""

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
"""One row a piece of a log that was read for its bytes (:class:`retention_cli.brokers.wire.runs.Runs`)."""

PLAN: Final = pa.schema([one.with_nullable(True) for one in plan_schema((CLUSTER, *SAVED))])
"""The plan's rows (docs/plan.md, The plan)."""

DECIDED: Final = pa.schema(
    [
        *(one.with_nullable(True) for one in plan_schema((CLUSTER, *COLUMNS))),
        ("read_ms", pa.int64()),
        ("memory", MEMORY),
        ("doubt", pa.bool_()),
        ("ends", STANDING.field("ends").type),
        ("cut", STANDING.field("cut").type),
        ("note", pa.string()),
    ]
)
"""The plan's rows, with what goes between our own processes alone, and what the client remembers of each."""


def ddl(schema: Any) -> str:
    """Return an Arrow schema as Spark's own type string."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return str(from_arrow_schema(schema).simpleString())
