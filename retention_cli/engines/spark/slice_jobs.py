"""Slices of records, read by tasks: some jobs at a time, their rows as each job ends."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa

from retention_cli.engines.spark.at_once import as_they_end
from retention_cli.engines.spark.fact_rows import Row
from retention_cli.engines.spark.schemas import ddl
from retention_cli.engines.spark.session import SparkError, last_words

T = TypeVar("T")
Task = Callable[[Iterator[Any]], Iterator[Any]]
"""For ``mapInArrow``: batches of slices' numbers to batches of rows."""

SLICES_A_JOB: Final = 64
JOBS_AT_ONCE: Final = 4
"""So that no core waits for a job's last task; and no more than so many times 64 tasks read at a time."""


def read_slices(
    session: Any,
    slices: Sequence[T],
    task_of: Callable[[Sequence[T]], Task],
    schema: pa.Schema,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Row]:
    """Have all slices read, and yield the rows of each job as it ends, until somebody stops it.

    Args:
        session: an open one.
        slices: what is to be read, a task each.
        task_of: returns what reads some of them, by their numbers among these.
        schema: of the rows.
        stop: says whether to leave off.

    Raises:
        SparkError: Spark could not carry it out.
    """
    some = [slices[first : first + SLICES_A_JOB] for first in range(0, len(slices), SLICES_A_JOB)]
    jobs = [functools.partial(_job, session, len(one), task_of(one), schema) for one in some]
    with contextlib.closing(as_they_end(session, jobs, JOBS_AT_ONCE, stop)) as ended:
        for one in ended:
            if one.exception() is not None and stop():
                return  # a Ctrl-C reaches the tasks on this machine, too
            yield from one.result()


def _job(session: Any, count: int, task: Task, schema: pa.Schema) -> list[Row]:
    try:
        frame = session.range(0, count, 1, count).mapInArrow(task, ddl(schema))
        return [row.asDict() for row in frame.collect()]
    except Exception as error:  # noqa: BLE001  (PySpark's own, Py4J's, gRPC's: all mean the same here)
        raise SparkError(f"Spark could not read the records: {last_words(error)}") from None
