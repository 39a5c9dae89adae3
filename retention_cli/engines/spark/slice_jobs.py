"""Read slices of records in tasks, a few jobs at a time, and yield rows as each job ends."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa

from retention_cli.engines.spark.at_once import as_they_end
from retention_cli.engines.spark.connections import ConnectionRef, Readers
from retention_cli.engines.spark.fact_rows import Row
from retention_cli.engines.spark.frames import ArrowTask, batches_of
from retention_cli.engines.spark.schemas import ddl
from retention_cli.engines.spark.session import SparkError, last_words

T = TypeVar("T")
ReadSlice = Callable[[Readers, T], Iterable[Row]]
"""Reads a slice in a task, and returns its rows."""

SLICES_A_JOB: Final = 64
JOBS_AT_ONCE: Final = 4
"""Several, so that no core waits for a job's last task; at most this many times 64 tasks read at a time."""


def read_slices(
    session: Any,
    cluster: tuple[str, ConnectionRef, float],
    slices: Sequence[T],
    read: ReadSlice[T],
    schema: pa.Schema,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Row]:
    """Read all slices, and yield the rows of each job as it ends, until ``stop`` returns true.

    Args:
        session: an open session.
        cluster: its id, where tasks find its settings, and the time-out of a request (seconds).
        slices: the slices to read, one task each.
        read: reads a slice.
        schema: the schema of the rows.
        stop: returns whether to stop.

    Raises:
        SparkError: Spark could not run it.
    """
    some = [slices[first : first + SLICES_A_JOB] for first in range(0, len(slices), SLICES_A_JOB)]
    jobs = [functools.partial(_job, session, len(one), _task(cluster, one, read, schema), schema) for one in some]
    with contextlib.closing(as_they_end(session, jobs, JOBS_AT_ONCE, stop)) as ended:
        for one in ended:
            if one.exception() is not None and stop():
                return  # a Ctrl-C reaches the tasks on this machine, too
            yield from one.result()


def _task(
    cluster: tuple[str, ConnectionRef, float], slices: Sequence[T], read: ReadSlice[T], schema: pa.Schema
) -> ArrowTask:
    """Return the task for ``mapInArrow``: from slice numbers to the slices' rows."""
    name, connection, timeout_s = cluster

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        with Readers({name: (connection, timeout_s)}) as readers:
            for number in (number for batch in batches for number in batch.column(0).to_pylist()):
                yield from batches_of(read(readers, slices[number]), schema)

    return run


def _job(session: Any, count: int, task: ArrowTask, schema: pa.Schema) -> list[Row]:
    try:
        frame = session.range(0, count, 1, count).mapInArrow(task, ddl(schema))
        return [row.asDict() for row in frame.collect()]
    except Exception as error:  # noqa: BLE001  (PySpark's own, Py4J's, gRPC's: all mean the same here)
        raise SparkError(f"Spark could not read the records: {last_words(error)}") from None
