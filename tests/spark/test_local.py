"""``--spark`` gives the plan that this process gives by itself, byte for byte (docs/architecture.md's second promise)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kretain.render.history import print_replayed
from retention_cli.core.state_dir import StateError
from retention_cli.decide.guards.limits import Amount
from retention_cli.engines.spark.plans import Target, make_plans
from retention_cli.engines.spark.replay import replay_over
from retention_cli.engines.spark.session import DRIVER_MEMORY, SparkError, probe
from retention_cli.engines.spark.shipping import Sender
from retention_cli.evidence.replay import recorded, replay
from retention_cli.plan import value
from retention_cli.plan.make import PlanJob
from retention_cli.state.memories import Memories
from tests.support.evidence import several_runs
from tests.support.facts import policy
from tests.support.fleet import Fleet
from tests.support.spark.clusters import QUICK_START
from tests.support.spark.engines import Engines
from tests.support.world import DAY, HOUR, World, now_ms, reader_for


@pytest.fixture(params=[True, pytest.param(False, marks=pytest.mark.long)], ids=["in parts", "one task"])
def engines(local_spark: Any, world: World, tmp_path: Path, request: pytest.FixtureRequest) -> Engines:
    return Engines(local_spark, world, tmp_path, in_parts=request.param)


@pytest.mark.parametrize(("seed", "in_memory"), [pytest.param(11, 50_000, marks=pytest.mark.long), (12, 0)])
def test_spark_plan_of_random_topics_equals_the_local_one(
    engines: Engines, seed: int, in_memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the client keeps its rows in a file, as it does with many."""
    monkeypatch.setattr(value, "IN_MEMORY", in_memory)
    fleet = Fleet(engines.world, seed, topics=12)
    try:
        fleet.build()
        fleet.commit_somewhere()
        fleet.trim_somewhere()
        with fleet.members():
            plan = engines.same(fleet.policy(), now_ms)
        assert {one.action for one in plan.decisions} == {"trim", "keep", "hold", "skip"}
    finally:
        fleet.close()


def test_spark_plan_reads_event_times_from_headers(engines: Engines) -> None:
    """R2: a scan in a task goes on where the last one ended."""
    world = engines.world
    topic = world.topic(message_timestamp_type="LogAppendTime")
    stamps = [now_ms() - (20 - n) * HOUR for n in range(20)]
    world.produce_at(topic, stamps, headers=lambda n: [("at", str(stamps[n]).encode())])
    policy = (
        f"version: 1\ntopics:\n  - match: {topic}\n    retention.max.eventtime.ms: {5 * HOUR}\n"
        "    retention.eventtime.source: header:at\n    unconsumed: trim\n"
    )
    plan = engines.same(policy, now_ms)
    assert plan.decisions[0].rule == "event-time"
    assert engines.same(policy, now_ms).decisions == plan.decisions


def test_spark_plan_counts_unread_records_by_group(engines: Engines) -> None:
    """G2: and a limit that the plan breaks is a refusal, whoever counted (G6)."""
    world = engines.world
    topic = world.topic(partitions=2)
    for partition in (0, 1):
        world.produce(topic, [40 * DAY] * 9, partition)
    world.commit(f"{topic}-g", topic, {0: 4, 1: 7})
    policy = f"version: 1\nlimits: {{max.records: 3}}\ntopics:\n  - match: {topic}\n    retention.ms: {DAY}\n"
    plan = engines.same(policy, now_ms)
    assert plan.unconsumed_by == {f"group:{topic}-g": 5 + 2}
    assert plan.refusals
    assert replace(engines, named=(f"{topic}:0",)).same(policy, now_ms).unconsumed_by == {f"group:{topic}-g": 5}
    world.commit(f"{topic}-gone", topic, {0: 8, 1: 8})
    engines.same(policy, now_ms)
    world.delete_group(f"{topic}-gone")
    assert engines.same(policy, now_ms).unconsumed_by == {f"group:{topic}-g": 5 + 2, f"group:{topic}-gone": 2}


def test_broken_audit_log_fails_only_its_cluster(engines: Engines) -> None:
    """G6: the plans of a fleet's other clusters are made all the same."""

    def broken(_cluster: str) -> Amount:
        raise StateError("its chain is broken")

    topic = engines.world.topic()
    selection = engines.world.selection(f"version: 1\ntopics:\n  - match: {topic}\n    retention.ms: {DAY}\n")
    memories = Memories(engines.folder / "broken")
    with reader_for(engines.world.bootstrap) as reader:
        target = Target("eu", PlanJob(reader, selection, now_ms(), broken, memories))
        [(_name, failure)] = make_plans(lambda _: engines.sender, [target])
        assert str(failure) == "its chain is broken"
    memories.close()


def test_executor_check_keeps_the_warm_python(local_spark: Any) -> None:
    """Spark ends a worker that leaves input unread: each check, and each plan after it, imported all for seconds."""

    def where(batches: Iterator[Any]) -> Iterator[Any]:
        for found in probe(batches):
            yield found.set_column(0, "host", pa.array([str(os.getpid())]))

    schema = "host string, python string, missing string"
    checked = [local_spark.range(0, 1, 1, 1).mapInArrow(where, schema).collect()[0] for _ in range(6)]
    assert {one["missing"] for one in checked} == {""}
    assert len({one["host"] for one in checked}) < len(checked)


def test_session_has_kretains_settings_and_keeps_the_users(local_spark: Any) -> None:
    """Rows are not summed up by Spark, which takes ten times the work for rows as wide as ours.

    By Spark's default a standalone cluster's driver has 1 GiB: it must be set before its JVM starts.
    """
    conf = local_spark.conf
    assert conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == str(2**31 - 1)
    assert conf.get("spark.driver.memory") == DRIVER_MEMORY == "2g"
    jvm = local_spark.sparkContext._jvm  # noqa: SLF001  (nothing else tells what the JVM was started with)
    assert jvm.java.lang.Runtime.getRuntime().maxMemory() > 1.9 * 2**30
    options = conf.get("spark.driver.extraJavaOptions")
    assert "-Dlog4j2.configurationFile=" in options
    assert options.endswith(QUICK_START)


# -- ``kretain replay --spark`` finds what this process finds by itself, byte for byte --

POLICY = policy("version: 1\ntopics:\n- match: '*'\n  retention.ms: 1h\n")


def test_replay_over_spark_prints_the_same_bytes(
    local_spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    several_runs(tmp_path)
    runs = recorded(tmp_path)
    for output in ("table", "json", "csv"):
        for found in (replay(runs, POLICY), replay_over(Sender(local_spark, tmp_path), runs, POLICY)):
            print_replayed(found, "policy.yaml", output)
            assert found.totals["earlier"] > 0
        shown = capsys.readouterr().out
        assert shown[: len(shown) // 2] == shown[len(shown) // 2 :] != ""


def test_evidence_that_executors_can_not_read_is_an_error(tmp_path: Path) -> None:
    several_runs(tmp_path)
    elsewhere = Sender(SimpleNamespace(_jsc=None), tmp_path)
    with pytest.raises(SparkError, match=r"cluster-0/evidence is on this machine: copy it to"):
        replay_over(elsewhere, recorded(tmp_path), POLICY)
