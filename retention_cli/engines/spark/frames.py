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


def batches_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow batches, as they arrive; none is empty."""
    waiting = iter(rows)
    while some := list(itertools.islice(waiting, ROWS_A_BATCH)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def ddl(schema: Any) -> str:
    """Return an Arrow schema in Spark's type syntax."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return str(from_arrow_schema(schema).simpleString())
