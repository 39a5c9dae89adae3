"""Jobs of Spark: tasks that yield rows as Arrow batches, several jobs at once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Final, TypeVar

import pyarrow as pa

from retention_cli.core.grouping import in_batches
from retention_cli.engines.spark.session import SparkError, last_words

T = TypeVar("T")
Row = dict[str, Any]
ArrowTask = Callable[[Iterator[Any]], Iterator[Any]]
"""A function for ``mapInArrow``."""
ROWS_A_BATCH: Final = 5_000
_ASKED_EVERY_S: Final = 0.25


def batches_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow batches, as they arrive; none is empty."""
    for some in in_batches(rows, ROWS_A_BATCH):
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def ddl(schema: Any) -> str:
    """Return an Arrow schema in Spark's type syntax."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return str(from_arrow_schema(schema).simpleString())


def run_tasks(session: Any, task: ArrowTask, schema: pa.Schema, count: int, failed: str) -> list[Row]:
    """Run a task for each number below ``count``; return their rows.

    Raises:
        SparkError: a task failed, or was interrupted; the text begins with ``failed``.
    """
    try:
        frame = session.range(0, count, 1, count).mapInArrow(task, ddl(schema))
        return [row.asDict() for row in frame.collect()]
    except Exception as error:  # noqa: BLE001  (PySpark's own, Py4J's, gRPC's: all mean the same here)
        raise SparkError(f"{failed}: {last_words(error)}") from None


def as_they_end(
    session: Any, jobs: Iterable[Callable[[], T]], most: int, stop: Callable[[], bool] = lambda: False
) -> Generator[Future[T], None, None]:
    """Run jobs, at most ``most`` at a time, and yield each when it has ended, until ``stop`` returns true.

    Close it (``contextlib.closing``) if it may be left early, e.g. by Ctrl-C: jobs still running on Spark are then
    interrupted, and waited for.
    """
    with ThreadPoolExecutor(most, "kretain-spark") as pool:
        waiting: set[Future[T]] = set()
        try:
            for job in jobs:
                waiting.add(pool.submit(job))
            while waiting and not stop():
                done, waiting = wait(waiting, _ASKED_EVERY_S, FIRST_COMPLETED)
                yield from done
        finally:
            running = {one for one in waiting if not one.cancel()}
            while running:  # repeated while any is running: an interrupt does not affect jobs about to begin
                session.interruptAll()
                running = wait(running, _ASKED_EVERY_S).not_done
