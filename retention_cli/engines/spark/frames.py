"""Rows of Python's and Arrow's own as Spark's frames."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

Row = dict[str, Any]
ArrowTask = Callable[[Iterator[Any]], Iterator[Any]]
"""A function for ``mapInArrow``."""
ROWS_A_BATCH: Final = 5_000


def as_frame(session: Any, table: Any) -> Any:
    """Return a pyarrow table as a frame.

    Connect can't infer an empty table's columns; and after an empty batch PySpark loses all others.
    """
    if not len(table):
        return session.createDataFrame([], ddl(table.schema))
    some = [batch for batch in table.to_batches() if batch.num_rows]
    return session.createDataFrame(pa.Table.from_batches(some, table.schema))


def batches_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow batches, as they arrive; none is empty."""
    waiting = iter(rows)
    while some := list(itertools.islice(waiting, ROWS_A_BATCH)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def ddl(schema: Any) -> str:
    """Return an Arrow schema in Spark's type syntax."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return str(from_arrow_schema(schema).simpleString())
