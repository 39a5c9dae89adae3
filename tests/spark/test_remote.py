"""The contract on a real standalone cluster and over Spark Connect: the command's own plan, byte for byte."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retention_cli.brokers.errors import BrokerError
from retention_cli.engines.spark.shipping import ConnectionRef, SentFile, reader_of
from tests.support.clusters import EmbeddedKafka
from tests.support.fleet import Fleet
from tests.support.secured import show_none
from tests.support.spark.clusters import SparkServer, standalone
from tests.support.spark.commands import SECRET, SMALL, Command, cluster_with_a_password, normal, packed_environment
from tests.support.world import HOUR, World, consumed, reader_for, wait_until, written

pytestmark = pytest.mark.long  # standalone and Connect

STORE_KEY = "hush-s3-9c41"


@pytest.mark.parametrize("where", ["spark_standalone", "spark_connect"])
def test_remote_spark_plan_equals_the_local_one(
    where: str, fleet: Fleet, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    spark = request.getfixturevalue(where)
    policy = written(tmp_path / "policy.yaml", fleet.policy())
    command = Command(fleet.world, tmp_path, spark.folder)
    plan = command.same(policy, spark.url, *(SMALL if where == "spark_standalone" else ()))
    assert min(plan["totals"][one] for one in ("trim", "hold")) > 0, plan["totals"]


def test_password_reaches_executors_only_in_a_file(tmp_path: Path, spark_standalone: SparkServer) -> None:
    """Not into Spark's event log, which has every plan, job and setting; nor into any log or output."""
    with cluster_with_a_password(tmp_path) as (world, client):
        topic = world.filled([5 * HOUR] * 4, {"g": 3})
        policy, events = written(tmp_path / "policy.yaml", consumed(topic)), tmp_path / "events"
        events.mkdir()
        told = Command(world, tmp_path, spark_standalone.folder).run(
            *("-p", str(policy), "-c", str(client), "--spark", "--master", spark_standalone.url, *SMALL),
            *("--spark-conf", "spark.eventLog.enabled=true", "--spark-conf", f"spark.eventLog.dir={events.as_uri()}"),
            *("--spark-conf", f"spark.executorEnv.AWS_SECRET_ACCESS_KEY={STORE_KEY}"),
            state="spark",
        )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["totals"]["trim"] == 1
    show_none([told.stdout, told.stderr], SECRET, STORE_KEY)
    events_of = [file for file in events.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in events_of) > 10_000
    logs = [file for name in ("*.log", "stderr", "stdout") for file in spark_standalone.folder.rglob(name)]
    assert logs
    show_none((f"{file}: {file.read_bytes().decode('latin-1')}" for file in (*events_of, *logs)), SECRET, STORE_KEY)


class OneOutOfReach(EmbeddedKafka):
    """Three nodes; whoever comes by the second listener is sent to a port where node 2 does not listen."""

    def _properties(self, node_id: int, *others: Any) -> dict[str, str]:
        found = super()._properties(node_id, *others)
        if node_id == 2:
            found["advertised.listeners"] = re.sub(
                r"SECURE://[^,]*", "SECURE://127.0.0.1:1", found["advertised.listeners"]
            )
        return found


@pytest.fixture(scope="module")
def partly_reached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Path]]:
    """A cluster of which executors do not reach node 2, and their client's file."""
    with cluster_with_a_password(tmp_path_factory.mktemp("far"), OneOutOfReach, 3) as found:
        yield found


@pytest.mark.parametrize("in_parts", [False, True], ids=["one task", "in parts"])
def test_executor_that_cannot_reach_a_broker_holds_its_partitions(
    partly_reached: tuple[World, Path], tmp_path: Path, spark_standalone: SparkServer, in_parts: bool
) -> None:
    """All partitions: that broker did not list its groups (F9)."""
    world, far = partly_reached
    topic = world.topic(partitions=6)
    for partition in range(6):
        world.produce(topic, [5 * HOUR] * 4, partition)
    group = next(name for n in range(50) if coordinator(world, name := f"{topic}-{n}") in (1, 3))
    world.commit(group, topic, dict.fromkeys(range(6), 3))
    policy = written(tmp_path / "policy.yaml", consumed(topic))
    with reader_for(world.bootstrap) as reader:
        leaders = {n: one.leader for n, one in reader.metadata([topic]).topics[topic].partitions.items()}
    plan = Command(world, tmp_path, spark_standalone.folder).json(
        *("-p", str(policy), "--spark", "--master", spark_standalone.url, *SMALL),
        *("--executor-command-config", str(far), "--timeout", "8s"),
        *(("--partitions-per-task", "0") if in_parts else ()),
        state="far",
    )
    assert set(leaders.values()) == {1, 2, 3}
    for row in plan["partitions"]:
        assert (row["action"], row["trim_to"]) == ("hold", None), row["reasons"]
        assert row["reasons"][0]["code"] in ("F9", "offsets")
        assert re.search("broker 2 |connection refused", row["reasons"][0]["text"]), row["reasons"]


def test_executor_that_reaches_another_cluster_reads_nothing(world: World, tmp_path: Path) -> None:
    """An address may mean another cluster there, whose groups are not those that count (F1)."""
    file = written(tmp_path / "client.properties", f"bootstrap.servers={world.bootstrap}\n")
    connection = ConnectionRef(SentFile(str(file)), "where.the.client.is:9092")
    with pytest.raises(BrokerError, match="from here, not elsewhere"), reader_of("elsewhere", connection, 30.0):
        pass


def coordinator(world: World, group: str) -> int:
    """Its broker, once there is one: the first question makes the topic of the groups' offsets."""
    found: dict[str, int] = {}

    def known() -> bool:  # asked again, another broker may not know it yet
        found.update(reader.coordinators([group]))
        return group in found

    with reader_for(world.bootstrap) as reader:
        wait_until(known, f"a coordinator of {group}")
    return found[group]


def test_missing_spark_requirement_is_reported_in_one_line(
    world: World, tmp_path: Path, spark_standalone: SparkServer
) -> None:
    """A master that nobody listens at, and executors without Python: exit 1, one line, nothing planned."""
    policy = written(tmp_path / "policy.yaml", consumed(world.filled([5 * HOUR] * 3)))
    command = Command(world, tmp_path, spark_standalone.folder)
    lost = ["--spark-conf", "spark.pyspark.python=/nowhere/python3", *SMALL]
    done = command.run("-p", str(policy), "--spark", "--master", spark_standalone.url, *lost, state="spark")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("kretain: Spark's executors can't run Python")
    assert done.stderr.count("\n") == 1


def test_executors_run_in_a_packed_environment(world: World, tmp_path: Path, spark_standalone: SparkServer) -> None:
    """As docs/spark.md says."""
    policy = written(tmp_path / "policy.yaml", consumed(world.filled([5 * HOUR] * 3, {"g": 2})))
    archive = ("--spark-conf", f"spark.archives={packed_environment(tmp_path)}#environment")
    python = ("--spark-conf", "spark.pyspark.python=./environment/bin/python")
    command = Command(world, tmp_path, spark_standalone.folder)
    flags = ("-p", str(policy), "--spark", "--master", spark_standalone.url, *archive, *python, *SMALL)
    assert command.json(*flags, state="spark")["partitions"][0]["trim_to"] == 2


@pytest.mark.parametrize("cut", [(), ("--partitions-per-task", "0")], ids=["one task", "giant"])
@pytest.mark.parametrize("after_s", [0.0, 1.0, 3.0])
def test_killed_worker_holds_nothing_in_a_plan(
    fleet: Fleet, tmp_path: Path, after_s: float, cut: tuple[str, ...]
) -> None:
    """Its task runs again elsewhere: it reads, and nothing else."""
    policy = written(tmp_path / "policy.yaml", fleet.policy())
    with standalone(tmp_path, workers=2) as spark:
        command = Command(fleet.world, tmp_path, tmp_path)
        before = command.plan(policy, state="before")
        running = command.start("-p", str(policy), "--spark", "--master", spark.url, *SMALL, *cut, state="spark")

        kill_one(spark, after_s)
        out, err = running.communicate(timeout=600)
        assert running.returncode == 0, err
        after = command.plan(policy, state="after")
    if before == after:  # brokers sweep as they like
        assert normal(out).splitlines() == before.splitlines()
    rows = [[one["action"] for one in json.loads(text)["partitions"]] for text in (before, out)]
    assert rows[0] == rows[1]


def kill_one(spark: SparkServer, after_s: float) -> None:
    """Kill the worker that was busy last, some seconds after tasks of a plan have begun."""

    def busy() -> bool:
        """Whether a worker has the plan's task: executors are asked what they lack before, by three tasks each."""
        logs = spark.folder.glob("work-*/app-*/*/stderr")
        return sum(log.read_text(errors="replace").count("Running task") for log in logs) > 2

    wait_until(busy, "a task on a worker", 240)
    time.sleep(after_s)
    theirs = [(one, spark.folder / one.name.replace("worker", "work")) for one in spark.workers]
    last = max(theirs, key=lambda one: max((log.stat().st_mtime for log in one[1].glob("app-*/*/stderr")), default=0))
    last[0].kill()
