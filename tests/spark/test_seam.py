"""What lies between the tasks that read commits and those that trim by them: nothing is lost, and no group is missed."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import pytest

from retention_cli.engines.spark.commits import CommitsRead
from retention_cli.engines.spark.engine import make_plans
from retention_cli.engines.spark.prepare import Target
from retention_cli.memory.interface import Memory
from retention_cli.memory.stores import Memories
from tests.kafka.world import HOUR, World, consumed, now_ms, reader_for
from tests.spark.engines import Engines, past_day, reasons_of


@pytest.fixture
def engines(local_spark: Any, world: World, tmp_path: Path) -> Engines:
    return Engines(local_spark, world, tmp_path)


def test_rows_that_spark_loses_hold_the_partitions_that_they_speak_of(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F3: here those of a deleted group, whose floor is the lowest (F6). Nobody else's commit would stop a trim."""
    world = engines.world
    topic = world.topic()
    world.produce(topic, [5 * HOUR] * 10)
    world.commit(f"{topic}-slow", topic, 3)
    world.commit(f"{topic}-quick", topic, 8)
    assert engines.spark(consumed(topic), now_ms()).decisions[0].trim_to == 3
    world.delete_group(f"{topic}-slow")

    def without_the_clients(read: CommitsRead) -> Any:
        return functools.reduce(lambda one, other: one.unionByName(other), read.frames)

    with monkeypatch.context() as patch:
        patch.setattr(CommitsRead, "rows", without_the_clients)
        plan = engines.spark(consumed(topic), now_ms())
    assert (plan.decisions[0].action, plan.decisions[0].trim_to) == ("hold", None)
    assert "deleted groups and of consumers outside Kafka were read, but Spark lost them" in reasons_of(plan, topic)
    assert engines.spark(consumed(topic), now_ms()).decisions[0].trim_to == 3


def test_a_group_that_first_commits_while_spark_starts_counts(engines: Engines) -> None:
    """F1: that takes many seconds, in which this process has read all else that it reads of the cluster."""
    world = engines.world
    topic = world.topic()
    world.produce(topic, [5 * HOUR] * 10)
    world.commit(f"{topic}-quick", topic, 8)
    prepared = threading.Event()

    class Opened(Memories):
        def __call__(self, cluster: str) -> Memory:
            prepared.set()
            return super().__call__(cluster)

    def spark() -> Any:
        assert prepared.wait(60)
        world.commit(f"{topic}-new", topic, 2)
        return engines.sender

    with reader_for(world.bootstrap) as reader:
        selection, memories = world.selection(consumed(topic)), Opened(engines.folder / "spark")
        made = make_plans(spark, [Target("", reader, selection, engines.connection, past_day, memories)], now_ms())
    memories.close()
    [decision] = made.plans[""].decisions
    assert (decision.trim_to, decision.min_commit_by) == (2, f"group:{topic}-new")
