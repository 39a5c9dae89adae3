"""What a plan makes Spark move between tasks: one exchange, each task's share into its own, nothing else."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from retention_cli.engines.spark.commit_tasks import commit_reader, read_batch
from retention_cli.engines.spark.commits import CommitsRead, task_rows
from retention_cli.engines.spark.fact_tasks import slice_reader
from retention_cli.engines.spark.frames import as_frame
from retention_cli.engines.spark.packing import Piece
from retention_cli.engines.spark.schemas import READ, WRITTEN, ddl
from retention_cli.engines.spark.shuffle_keys import keys
from retention_cli.engines.spark.write import Outbox, plan_writer

TASKS = [(Piece("c", broker, 0, 1, 2_000),) for broker in range(3)]


@pytest.mark.parametrize("tasks", [1, 3, 7, 64])
def test_sparks_hash_puts_each_task_into_its_own_partition(local_spark: Any, tasks: int) -> None:
    """Three leaders hashed by their names would share partitions three times out of four."""
    numbers = list(range(tasks))
    rows = read_batch(tasks, task=numbers, key=keys(tasks))
    frame = as_frame(local_spark, pa.Table.from_batches([rows])).repartition(tasks, "key")
    found = frame.selectExpr("task", "spark_partition_id() AS at").collect()
    assert sorted((row["task"], row["at"]) for row in found) == [(number, number) for number in numbers]


def queries(session: Any) -> dict[str, Any]:
    """The two queries, planned and not run: docs/spark.md has them."""
    outbox = Outbox("/nowhere", "")
    folded = task_rows(session, TASKS).mapInArrow(commit_reader({}, {}, TASKS, TASKS), ddl(READ)).persist()
    commits = CommitsRead(session, {}, TASKS, 2, frames=[folded.where(folded.cluster.isin("c"))])
    read = slice_reader({}, {}, TASKS, {})
    folded.unpersist()
    return {
        "commits": folded,
        "plan": commits.arrived().mapInArrow(plan_writer(read, outbox), ddl(WRITTEN)),
    }


@pytest.mark.parametrize(("query", "exchanges", "python"), [("commits", 0, 1), ("plan", 1, 2)])
def test_a_plan_is_moved_once(
    local_spark: Any, capsys: pytest.CaptureFixture[str], query: str, exchanges: int, python: int
) -> None:
    """No sort, no join, no aggregate: commits are folded where they are read, and added up where they are needed."""
    queries(local_spark)[query].explain("simple")
    plan = capsys.readouterr().out
    assert len(re.findall(r"\bExchange\b", plan)) == exchanges, plan
    assert len(re.findall(r"\bMapInArrow\b", plan)) == python, plan
    assert not re.search("Sort|Join|Aggregate|Window", plan), plan
