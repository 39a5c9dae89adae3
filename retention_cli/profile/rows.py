"""Convert a profile to rows, for scripts and Parquet (``kretain.profile/v1``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from retention_cli.core.extras import arrow
from retention_cli.core.grouping import in_batches
from retention_cli.core.units import format_time, timestamp
from retention_cli.profile.reading import Profile, TopicHours

FORMAT: Final = "kretain.profile/v1"
COLUMNS: Final = (
    "topic",
    "partition",
    "kind",
    "hour",
    "records",
    "bytes",
    "tombstones",
    "first_offset",
    "last_offset",
    "oldest_ms",
    "newest_ms",
    "newest_offset",
    "out_of_order",
    "out_of_order_ms",
    "future",
    "no_event_time",
)
"""The columns of a row, in order; docs/profile.md describes them."""


_ROWS_AT_ONCE: Final = 50_000


def all_rows(topics: Iterable[TopicHours]) -> Iterator[dict[str, Any]]:
    """Yield every row as a dict, by topic, partition and hour.

    ``hour`` is the hour's start in Unix ms, None for kinds without an hour. Event times that are missing are counted
    where they were read at all.
    """
    for topic in topics:
        for partition, hours in sorted(topic.partitions.items()):
            for kind, hour, row in hours.items():
                timeless = kind == "no-time"
                yield {
                    "topic": topic.name,
                    "partition": partition,
                    "kind": kind,
                    "hour": hour,
                    "records": row.records,
                    "bytes": row.size_bytes,
                    "tombstones": row.tombstones,
                    "first_offset": row.first_offset,
                    "last_offset": row.last_offset,
                    "oldest_ms": None if timeless else row.oldest_ms,
                    "newest_ms": None if timeless else row.newest_ms,
                    "newest_offset": None if timeless else row.newest_offset,
                    "out_of_order": row.late,
                    "out_of_order_ms": row.late_ms,
                    "future": row.records if kind == "future" else 0,
                    "no_event_time": None if topic.source is None else row.unreadable,
                }


def as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for JSON and CSV, with its hour as ISO 8601."""
    hour = row["hour"]
    return {**row, "hour": None if hour is None else timestamp(hour)}


def head(profile: Profile) -> dict[str, Any]:
    """Return the profile's header: everything but the rows."""
    wanted = profile.wanted
    from_at, to_at = (None if ms is None else format_time(ms) for ms in (wanted.from_ms, wanted.to_ms))
    return {
        "format": FORMAT,
        "read_at": timestamp(wanted.now_ms),
        "cluster": {"id": profile.cluster_id, "bootstrap": profile.bootstrap},
        "from": from_at,
        "to": to_at,
        "complete": not profile.unread and not profile.interrupted,
        "unread": [
            {
                "topic": one.tp.topic,
                "partition": one.tp.partition,
                "reached": one.reached,
                "end": one.end,
                "reason": one.text,
            }
            for one in profile.unread
        ],
        "notes": list(profile.notes),
    }


def schema(about: Mapping[str, Any] | None = None) -> Any:
    """Return the Arrow schema of the rows; its metadata has ``about`` as JSON, under the format's name.

    Raises:
        MissingPartError: pyarrow is not installed.
    """
    pa = arrow()
    kinds = {"topic": pa.string(), "partition": pa.int32(), "kind": pa.string(), "hour": pa.timestamp("ms", tz="UTC")}
    maybe = {"hour", "oldest_ms", "newest_ms", "newest_offset", "no_event_time"}
    fields = [pa.field(name, kinds.get(name, pa.int64()), nullable=name in maybe) for name in COLUMNS]
    return pa.schema(fields, metadata=None if about is None else {FORMAT: json.dumps(about, ensure_ascii=False)})


def write_parquet(path: Path, about: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as Parquet.

    Raises:
        MissingPartError: pyarrow is not installed.
        OSError: the file can't be written.
    """
    pa, wanted = arrow(), schema(about)
    with arrow("pyarrow.parquet").ParquetWriter(path, wanted, compression="zstd") as writer:
        for batch in in_batches(rows, _ROWS_AT_ONCE):
            writer.write_table(pa.Table.from_pylist(batch, schema=wanted))
