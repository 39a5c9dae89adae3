"""Check an inventory's rows where Spark reads them: a task returns one row per run of a replica's segments.

A run is a sequence of adjacent rows in one batch. Errors within a run are found here; runs are compared with each
other by :mod:`retention_cli.engines.spark.inventory`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from retention_cli.disks.inventory import doubts
from retention_cli.disks.inventory.table import COLUMNS

READ: Final = ("file", "row", "file_broker", *(name for name, _, null in COLUMNS if not null), "next_offset")
"""The required columns: the inventory's, and the file's number, the row's number in it, and the file's broker."""

RUNS: Final = pa.schema(
    [
        ("file", pa.int32()),
        ("broker", pa.int32()),
        ("dir", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("first_row", pa.int64()),
        ("last_row", pa.int64()),
        ("first_base", pa.int64()),
        ("last_base", pa.int64()),
        ("last_next", pa.int64()),
        ("rank", pa.int32()),
        ("problem", pa.string()),
    ]
)
"""``last_next`` is null if unknown. ``problem`` is what is wrong with one of the rows; problems of a smaller ``rank``
are reported first, in the same order as if one process reads the file."""

LACKING, WRONG, DISORDERED, APART = range(4)


def runs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the runs (:data:`RUNS`) of rows (:data:`READ`)."""
    for batch in batches:
        if batch.num_rows:
            yield _runs(pa.Table.from_batches([batch]))


def _runs(table: Any) -> pa.RecordBatch:
    row = table["row"].to_numpy()
    file = table["file"].to_numpy()
    if (what := doubts.lacking(table)) is not None:
        return _problem(file, row, 0, LACKING, what)
    if (found := doubts.wrong(table, table["file_broker"].to_numpy())) is not None:
        return _problem(file, row, found[0], WRONG, f"{doubts.row_name(table, found[0])} {found[1]}")
    for name in ("dir", "topic"):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].dictionary_encode())
    begins = np.zeros(len(table), dtype=bool)
    begins[doubts.starts(table)] = True
    begins[1:] |= (np.diff(row) != 1) | (np.diff(file) != 0)
    starts = np.flatnonzero(begins)
    if (found := doubts.disordered(table, starts)) is not None:
        return _problem(file, row, found[0], DISORDERED, f"{doubts.row_name(table, found[0])} {found[1]}")
    ends = np.append(starts[1:], len(table)) - 1
    first, last = table.take(pa.array(starts)), table.take(pa.array(ends))
    columns = {
        **{name: first[name] for name in ("file", "broker", "partition")},
        **{name: first[name].cast(pa.string()) for name in ("dir", "topic")},
        "first_row": first["row"],
        "last_row": last["row"],
        "first_base": first["base_offset"],
        "last_base": last["base_offset"],
        "last_next": last["next_offset"],
    }
    return _batch(columns, len(starts))


def _problem(file: Any, row: Any, at: int, rank: int, what: str) -> pa.RecordBatch:
    return _batch({"file": [file[at]], "first_row": [row[at]], "rank": [rank], "problem": [what]}, 1)


def _batch(columns: dict[str, Any], rows: int) -> pa.RecordBatch:
    arrays = []
    for field in RUNS:
        column = columns.get(field.name, [None] * rows)
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else pa.array(column, field.type)
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        arrays.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=RUNS)
