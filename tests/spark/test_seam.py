"""What lies between the tasks that read commits and those that trim by them: nothing is lost, and no group is missed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Reason
from retention_cli.engines.spark import commits, engine, preparing
from retention_cli.engines.spark.cluster_plans import SparkPlans
from retention_cli.engines.spark.commits import CommitsRead
from retention_cli.engines.spark.engine import plan_in_parts
from retention_cli.engines.spark.prepare import Prepared, Target, open_memory
from retention_cli.memory.stores import Memories
from retention_cli.observe.floors.kafka_groups import Doubt, changed_since
from retention_cli.plan.value import Plan
from tests.kafka.world import HOUR, World, consumed, now_ms, reader_for
from tests.spark.engines import Engines, past_day, reasons_of


@pytest.fixture
def engines(local_spark: Any, world: World, tmp_path: Path) -> Engines:
    return Engines(local_spark, world, tmp_path, in_parts=True)


@pytest.mark.thorough
def test_rows_that_spark_loses_hold_the_partitions_that_they_speak_of(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F3: here those of a deleted group, whose floor is the lowest (F6). Nobody else's commit would stop a trim."""
    world = engines.world
    topic = _topic(world, slow=3, quick=8)
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


def test_commits_that_spark_loses_and_reads_again_hold(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """F3: nobody checks any more whether coordinators moved meanwhile (F9). Here a group is gone that was read (F6)."""
    world, read = engines.world, commits.read_commits
    topic = _topic(world, quick=8, slow=2)

    @contextlib.contextmanager
    def then_lost(*given: Any, **named: Any) -> Iterator[CommitsRead]:
        with read(*given, **named) as found:
            world.delete_group(f"{topic}-slow")
            engines.session.catalog.clearCache()
            yield found

    monkeypatch.setattr(engine, "read_commits", then_lost)
    plan = engines.spark(consumed(topic), now_ms())
    assert (plan.decisions[0].action, plan.decisions[0].trim_to) == ("hold", None)
    assert "but Spark lost them" in reasons_of(plan, topic)


def test_a_group_that_first_commits_while_spark_starts_counts(engines: Engines) -> None:
    """F1: that takes many seconds, in which this process has read all else that it reads of the cluster."""
    world = engines.world
    topic = _topic(world, quick=8)
    [decision] = _planned(engines, topic, lambda: world.commit(f"{topic}-new", topic, 2)).decisions
    assert (decision.trim_to, decision.min_commit_by) == (2, f"group:{topic}-new")


def test_a_group_that_another_run_has_seen_come_and_go_while_spark_starts_counts(engines: Engines) -> None:
    """F6: it is in no listing, and was in no ledger when this process opened it."""
    world, others = engines.world, replace(engines, local_state="spark")
    topic = _topic(world, quick=8)

    def meanwhile() -> None:
        world.commit(f"{topic}-new", topic, 2)
        assert others.local(consumed(topic), now_ms()).decisions[0].trim_to == 2
        world.delete_group(f"{topic}-new")

    [decision] = _planned(engines, topic, meanwhile).decisions
    assert (decision.trim_to, decision.min_commit_by) == (2, f"group:{topic}-new")


def test_a_group_that_is_gone_when_commits_are_read_again_counts(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F6: coordinators have moved (F9), and this run itself has seen it before."""
    world = engines.world
    topic = _topic(world, quick=8, slow=2)
    checked: list[ClusterMetadata] = []

    def moved_once(reader: ClusterReader, before: ClusterMetadata) -> Doubt | None:
        checked.append(before)
        if len(checked) > 1:
            return changed_since(reader, before)
        world.delete_group(f"{topic}-slow")
        return Doubt(Reason("F9", "moved"), "while patience lasts")

    monkeypatch.setattr(commits, "changed_since", moved_once)
    plan = engines.spark(consumed(topic), now_ms())
    assert (plan.decisions[0].action, len(checked)) == ("hold", 2)
    assert f"{topic}-slow is gone since it committed 2 here" in reasons_of(plan, topic)


def _topic(world: World, **positions: int) -> str:
    """Return a new topic of ten records that may go, and let groups commit these offsets on it."""
    topic = world.topic()
    world.produce(topic, [5 * HOUR] * 10)
    for name, offset in positions.items():
        world.commit(f"{topic}-{name}", topic, offset)
    return topic


def _planned(engines: Engines, topic: str, meanwhile: Callable[[], None]) -> Plan:
    """Return a plan by Spark; this happens once the client has opened its ledger."""

    def opened(one: Prepared) -> None:
        open_memory(one)
        meanwhile()

    with reader_for(engines.world.bootstrap) as reader, pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "open_memory", opened)
        selection, memories = engines.world.selection(consumed(topic)), Memories(engines.folder / "spark")
        target = Target("", reader, selection, engines.connection, past_day, memories)
        made = SparkPlans()
        plan_in_parts(engines.sender, [target], now_ms(), made)
    memories.close()
    return made.plans[""]
