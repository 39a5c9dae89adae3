"""The columns of every frame, as Arrow schemas: those that readers yield and notebooks show.

Times are Unix ms, sizes bytes. A null is never a number: if a value could not be read, ``unknown`` names the
column with the reason's code and text.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

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


def ddl(schema: Any) -> str:
    """Return an Arrow schema in Spark's type syntax."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return str(from_arrow_schema(schema).simpleString())
