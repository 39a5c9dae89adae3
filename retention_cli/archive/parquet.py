"""Convert records to Parquet and back without loss: the same values and order, null distinct from empty."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from retention_cli.archive.errors import ArchiveError, DamagedError
from retention_cli.archive.layout import Source
from retention_cli.archive.store import Store
from retention_cli.brokers.content import Record
from retention_cli.core.extras import arrow
from retention_cli.core.file_problems import parquet_problem

ROW_GROUP_BYTES: Final = 8 * 2**20
"""The approximate content of a row group: reading back holds one in memory at a time."""
_ROWS_AT_ONCE: Final = 10_000
_COLUMNS: Final = ("offset", "leader_epoch", "timestamp", "timestamp_type", "key", "value", "headers")


def schema() -> Any:
    """Return the files' schema. ``timestamp`` is Unix ms, as on the broker."""
    pa = arrow()
    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("leader_epoch", pa.int32()),
            pa.field("timestamp", pa.int64()),
            pa.field("timestamp_type", pa.string()),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(header), nullable=False),
            pa.field("topic_id", pa.string(), nullable=False),
        ]
    )


def as_batch(records: Sequence[Record], source: Source) -> Any:
    """Return records as one Arrow batch."""
    pa = arrow()
    count = len(records)
    columns = {
        "offset": [one.offset for one in records],
        "partition": [source.partition] * count,
        "leader_epoch": [one.leader_epoch for one in records],
        "timestamp": [one.timestamp for one in records],
        "timestamp_type": [one.timestamp_type for one in records],
        "key": [one.key for one in records],
        "value": [one.value for one in records],
        "headers": [[{"key": name, "value": value} for name, value in one.headers] for one in records],
        "topic_id": [source.topic_id] * count,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in schema()], schema=schema()
    )


def as_file(batches: Sequence[Any], content_bytes: int) -> Any:
    """Return batches as the bytes of one Parquet file; ``content_bytes`` is the approximate size of their content."""
    pa, pq = arrow(), arrow("pyarrow.parquet")
    table = pa.Table.from_batches(batches, schema=schema())
    groups = max(1, -(-content_bytes // ROW_GROUP_BYTES))
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        row_group_size=max(1, -(-table.num_rows // groups)),
        use_dictionary=["partition", "leader_epoch", "timestamp_type", "topic_id"],
        write_statistics=["offset", "timestamp"],
        store_schema=False,
        write_page_checksum=True,
    )
    return sink.getvalue()


def read_file(store: Store, path: str) -> Iterator[Record]:
    """Read a file's records in file order, a few thousand at a time.

    Raises:
        DamagedError: the file is missing, or is not a file that kretain wrote.
    """
    pa, pq = arrow(), arrow("pyarrow.parquet")
    if store.size(path) is None:
        raise DamagedError(f"{store.shown(path)} is missing")
    with _damage(store.shown(path), pa), store.opened(path) as opened:
        file = pq.ParquetFile(opened, page_checksum_verification=True)
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=list(_COLUMNS)):
            yield from _records(batch)


def _records(batch: Any) -> Iterator[Record]:
    columns = {name: batch.column(name).to_pylist() for name in _COLUMNS}
    for offset, epoch, stamp, kind, key, value, headers in zip(*(columns[name] for name in _COLUMNS), strict=True):
        told = tuple((one["key"], one["value"]) for one in headers)
        yield Record(offset, epoch, stamp, kind, key, value, told)


@contextlib.contextmanager
def _damage(shown: str, pa: Any) -> Iterator[None]:
    """Raise pyarrow's errors, and those of unexpected column types, as a DamagedError."""
    try:
        yield
    except ArchiveError as error:  # the store's: a read that fails midway may mean a damaged file, too
        raise DamagedError(str(error)) from None
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise DamagedError(f"{shown} is damaged: {parquet_problem(error)}") from None
