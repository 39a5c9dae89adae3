"""Parcels: tables as bytes, one row of Spark's each, with a key by which Spark brings them together.

What numpy computes from millions of segments, Spark only has to carry. As rows of their own it would turn their numbers
into rows and back, and compile code for that, for longer than they take to compute; parcels it copies.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from retention_cli.disks.solve.dictionary import words
from retention_cli.disks.solve.segments import Flags, Ints
from retention_cli.engines.spark.schemas import ddl
from retention_cli.engines.spark.worker import settle

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What ``mapInArrow`` runs on a partition of a frame."""
PARCELS: Final = pa.schema([("key", pa.int32()), ("payload", pa.binary())])
_GOLDEN: Final = np.uint64(0x9E3779B1)
_LOW: Final = np.uint64(0xFFFFFFFF)


def slab_numbers(topic: Any, partition: Ints, slabs: int) -> Ints:
    """Return the slab of each partition, by its topic (a pyarrow column) and number: the same in every process."""
    names, number = words(topic)
    seeds = np.array([zlib.crc32(name.encode()) for name in names], dtype=np.uint64)
    mixed = (seeds[number] + partition.astype(np.uint64) * _GOLDEN) & _LOW
    return (mixed * np.uint64(slabs) >> np.uint64(32)).astype(np.int64)


def to_bytes(table: Any) -> bytes:
    """Return a table, or a batch, as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as file:
        file.write(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def from_bytes(payload: Any) -> Any:
    """Return a table that :func:`to_bytes` made; it reads the bytes where they lie."""
    return pa.ipc.open_stream(pa.py_buffer(payload)).read_all()


def opened(payloads: Iterable[Any]) -> Any:
    """Return the tables in payloads (a pyarrow column), of which there is at least one, as one."""
    return pa.concat_tables([from_bytes(one.as_buffer()) for one in payloads])


def cut(table: Any, group: Ints, numbers: Ints) -> Iterator[tuple[int, Any]]:
    """Yield a table's rows by group, with the group's number of ``numbers``; groups without rows are left out."""
    order = np.argsort(group, kind="stable")
    table = table.take(pa.array(order))
    for one, start, end in stretches(group[order]):
        yield int(numbers[one]), table.slice(start, end - start)


def parcels(parts: Iterable[tuple[int, Any]]) -> pa.RecordBatch:
    """Return tables with their keys as parcels (:data:`PARCELS`)."""
    some = list(parts)
    rows = [[key for key, _ in some], [to_bytes(table) for _, table in some]]
    return pa.RecordBatch.from_arrays([pa.array(*one) for one in zip(rows, PARCELS.types, strict=True)], schema=PARCELS)


def joined(parts: Any, count: int, join: Task, schema: Any) -> Any:
    """Return parcels joined by tasks as one table.

    Args:
        parts: a frame of parcels.
        count: how many keys they have.
        join: a task from all parcels of some keys to parcels.
        schema: of the table.
    """
    found = parts.repartition(count, "key").mapInArrow(join, ddl(PARCELS)).toArrow()
    return opened(found["payload"]) if len(found) else schema.empty_table()


def whole(batches: Iterable[pa.RecordBatch]) -> Any | None:
    """Return a task's rows as one table; None if it has none."""
    settle()
    some = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(some) if some else None


def begins(*columns: Ints) -> Flags:
    """Return a mask of the rows that differ from the row before them."""
    found = np.ones(len(columns[0]), dtype=np.bool_)
    if len(found):
        found[1:] = False
        for column in columns:
            found[1:] |= column[1:] != column[:-1]
    return found


def stretches(column: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield each value of a sorted column, with the row where it begins and the one before which it ends."""
    first = np.flatnonzero(begins(column))
    ends = np.append(first, len(column))[1:]
    yield from zip(column[first].tolist(), first.tolist(), ends.tolist(), strict=True)


def rows_of(schema: Any, count: int, **columns: Any) -> Any:
    """Return columns (numpy or pyarrow) as a table of a schema; columns that are not given are null."""
    arrays = []
    for field in schema:
        column = columns.get(field.name)
        column = pa.nulls(count, field.type) if column is None else column
        arrays.append((column if isinstance(column, pa.ChunkedArray) else pa.array(column)).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)
