"""The contract on a real standalone cluster, over Spark Connect and on YARN: the command's own plan, byte for byte.

Spark that goes away while it works: one line that says so and what to do, exit 1, and nothing is trimmed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from retention_cli.brokers.errors import BrokerError
from retention_cli.engines.spark.shipping import ConnectionRef, SentFile, reader_of
from tests.support.archives import archived, filled, policy, whole, whole_and_tidy
from tests.support.clusters import EmbeddedKafka
from tests.support.fleet import Fleet
from tests.support.secured import show_none
from tests.support.spark.clusters import SparkServer, connect_server, standalone
from tests.support.spark.commands import (
    INSTALLED,
    ON_YARN,
    SECRET,
    SMALL,
    Command,
    cluster_with_a_password,
    normal,
    packed_environment,
)
from tests.support.spark.hadoop import Yarn
from tests.support.world import HOUR, World, consumed, coordinator_of, reader_for, wait_until, written

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # some are killed; Hadoop's jars have 100 MB

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
    topic = world.filled([5 * HOUR] * 4, None, 6)
    group = next(name for n in range(50) if coordinator_of(world.bootstrap, name := f"{topic}-{n}") in (1, 3))
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


def test_missing_spark_requirement_is_reported_in_one_line(
    world: World, tmp_path: Path, spark_standalone: SparkServer
) -> None:
    """A master that nobody listens at, and executors without Python: exit 1, one line, nothing planned."""
    policy = written(tmp_path / "policy.yaml", consumed(world.filled([5 * HOUR] * 3)))
    command = Command(world, tmp_path, spark_standalone.folder)
    lost = ["--spark-conf", "spark.pyspark.python=/nowhere/python3", *SMALL]
    done = command.run("-p", str(policy), "--spark", "--master", spark_standalone.url, *lost, state="spark")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done
    assert done.stderr.startswith("kretain: Spark's executors can't run Python")


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


# -- Spark that goes away ----------------------------------------------------------------------


class Held:
    """``kretain trim --spark``, of which a task waits for the settings of the connection."""

    def __init__(self, world: World, folder: Path, spark_folder: Path) -> None:
        self.world, self.topic = world, world.filled([5 * HOUR] * 9, {"g": 7})
        self.policy, self.pipe = folder / "policy.yaml", folder / "settings"
        self.policy.write_text(consumed(self.topic))
        os.mkfifo(self.pipe)
        self._command = Command(world, folder, spark_folder, "trim", own_group=True)
        self.running: subprocess.Popen[str] | None = None

    def start(self, url: str, *more: str) -> subprocess.Popen[str]:
        """Start it and wait until the task opens the file."""
        flags = ("-p", str(self.policy), "--yes", "--spark", "--master", url, *more)
        self.running = running = self._command.start(*flags, "--executor-command-config", str(self.pipe), state="s")

        def opened() -> bool:
            assert running.poll() is None, running.communicate()
            try:
                os.close(os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:  # it has no reader yet
                return False
            return True

        wait_until(opened, "a task that runs", 240)
        return running

    def said(self, running: subprocess.Popen[str]) -> str:
        """Return the one line that it ends with; nothing is trimmed."""
        out, err = running.communicate(timeout=240)
        assert (running.returncode, out, err.count("\n")) == (1, "", 1), err
        assert self.world.ends(self.topic) == (0, 9)
        return err


@pytest.fixture
def held(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    one = Held(world, tmp_path, tmp_path)
    yield one
    if one.running is not None and one.running.poll() is None:
        one.running.kill()
        one.running.wait()


def processes(sign: str, within: Callable[[psutil.Process], bool]) -> list[int]:
    return [one.pid for one in psutil.process_iter(["cmdline"]) if sign in str(one.info["cmdline"]) and within(one)]


def test_killed_local_spark_is_reported_in_one_line(
    held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no folder of ours is left behind."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    running = held.start("local[2]")
    (java,) = processes("pyspark-shell", lambda one: one.ppid() == running.pid)
    assert list(scratch.glob("kretain-spark-*"))
    os.kill(java, signal.SIGKILL)
    said = held.said(running)
    assert said.startswith("kretain: Spark could not carry it out: its process on this machine is gone (")
    assert "check that Spark is up, then run again" in said
    assert not list(scratch.glob("kretain-*"))


@pytest.mark.parametrize("all_of_it", [False, True], ids=["this process", "its group"])
def test_ctrl_c_during_spark_is_reported_in_one_line(held: Held, all_of_it: bool) -> None:
    """In a terminal the whole group gets it: Spark's JVM and its Python workers, too."""
    running = held.start("local[2]")
    if all_of_it:
        os.killpg(running.pid, signal.SIGINT)
    else:
        running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, out, err) == (130, "", "kretain: interrupted\n")
    assert held.world.ends(held.topic) == (0, 9)


def test_killed_executors_are_reported_in_one_line(held: Held, tmp_path: Path) -> None:
    with standalone(tmp_path, workers=1) as spark:
        running = held.start(spark.url, *SMALL, "--spark-conf", "spark.task.maxFailures=1")
        for pid in processes("CoarseGrainedExecutorBackend", lambda one: os.getpgid(one.pid) == spark.workers[0].pid):
            os.kill(pid, signal.SIGKILL)
        said = held.said(running)
    assert "ExecutorLostFailure" in said
    assert "give it more memory" in said


def test_killed_connect_server_is_reported_in_one_line(held: Held, tmp_path: Path) -> None:
    with connect_server(tmp_path) as spark:
        running = held.start(spark.url)
        spark.workers[0].kill()
        said = held.said(running)
    assert said.startswith("kretain: Spark could not carry it out: failed to connect to all addresses")
    assert "check that Spark is up, then run again" in said


# -- YARN: nothing of a secret in what it keeps ---------------------------------------------------


def command(world: World, folder: Path, cluster: Yarn, name: str = "plan") -> Command:
    return Command(world, folder, cluster.folder, name, cluster.environ)


def busy_containers(cluster: Yarn, application: str) -> int:
    """How many of an application's executors have run tasks."""
    return sum("Running task" in said for said in cluster.said(application))


def test_yarn_plan_equals_the_local_one(fleet: Fleet, tmp_path: Path, spark_yarn: Yarn) -> None:
    file = written(tmp_path / "policy.yaml", fleet.policy())
    plan = command(fleet.world, tmp_path, spark_yarn).same(file, "yarn", *INSTALLED)
    assert min(plan["totals"][one] for one in ("trim", "hold")) > 0, plan["totals"]
    done = spark_yarn.applications()[0]
    assert (done["applicationType"], done["finalStatus"]) == ("SPARK", "SUCCEEDED")
    assert busy_containers(spark_yarn, done["id"]) == 2


def test_yarn_trim_archives_on_executors(world: World, tmp_path: Path, spark_yarn: Yarn) -> None:
    topic = filled(world, 3)
    world.commit(f"{topic}-g", topic, {2: 700})
    before = {partition: whole(world, topic, partition) for partition in range(3)}
    place = tmp_path / "archive"
    file = written(tmp_path / "policy.yaml", policy(topic, place))
    done = command(world, tmp_path, spark_yarn, "trim").json("-p", str(file), "--yes", *ON_YARN, state="state")
    assert {one["outcome"] for one in done["partitions"]} == {"trimmed"}
    assert [world.ends(topic, partition)[0] for partition in range(3)] == [1_200, 1_200, 700]
    for partition, records in before.items():
        assert archived(place, topic, partition) + whole(world, topic, partition) == records
    assert whole_and_tidy(place)


def test_yarn_secret_is_only_in_the_executors_file(tmp_path: Path, spark_yarn: Yarn) -> None:
    """Not in what containers say or are started with, what YARN stages, Spark's event log, or the driver's own page."""
    earlier = {one["id"] for one in spark_yarn.applications()}
    with cluster_with_a_password(tmp_path) as (world, client):
        topic = world.filled([5 * HOUR] * 4, {"g": 3})
        file, events = written(tmp_path / "policy.yaml", consumed(topic)), tmp_path / "events"
        events.mkdir()
        running = command(world, tmp_path, spark_yarn).start(
            *("-p", str(file), "-c", str(client), *ON_YARN),
            *("--spark-conf", f"spark.executorEnv.AWS_SECRET_ACCESS_KEY={STORE_KEY}"),
            *("--spark-conf", "spark.eventLog.enabled=true", "--spark-conf", f"spark.eventLog.dir={events.as_uri()}"),
            state="spark",
        )
        pages: list[str] = []

        def looked() -> bool:
            new = [one for one in spark_yarn.applications() if one["id"] not in earlier]
            pages.extend(page for one in new if (page := own_page(spark_yarn, one["id"])))
            return bool(pages) or running.poll() is not None

        wait_until(looked, "Spark's own page", 300)
        out, err = running.communicate(timeout=600)
    assert running.returncode == 0, err
    assert json.loads(out)["totals"]["trim"] == 1
    assert "spark.executorEnv.AWS_SECRET_ACCESS_KEY" in pages[0]
    [one] = [one["id"] for one in spark_yarn.applications() if one["id"] not in earlier]
    logs = "\n".join(spark_yarn.said(one))
    assert "Running task" in logs
    event_logs = [file for file in events.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in event_logs) > 10_000
    shown = {"what it printed": out + err, "its page": pages[0], "containers": logs}
    shown |= {str(file): file.read_text(errors="replace") for file in event_logs}
    show_none((f"{place}: {text}" for place, text in shown.items()), SECRET, STORE_KEY)
    holding = {file for file in spark_yarn.files() if SECRET.encode() in file.read_bytes()}
    assert {file.name.rpartition("-")[0] for file in holding} == {"kretain-connection"}
    assert not [file for file in holding if file.stat().st_mode & 0o044], "others may read it"


def own_page(cluster: Yarn, application: str) -> str:
    """What the driver's page says of the application's environment, as YARN's proxy shows it; "" where there is none."""
    address = f"{cluster.web}/proxy/{application}/api/v1/applications/{application}/environment"
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310  (our own, on loopback)
            text = str(answer.read().decode())
    except OSError:
        return ""
    return text if '"sparkProperties"' in text else ""


def test_missing_yarn_requirement_is_reported_in_one_line(world: World, tmp_path: Path, spark_yarn: Yarn) -> None:
    """No YARN address, and executors whose Python has no packages: exit 1, one line, nothing planned."""
    file = written(tmp_path / "policy.yaml", consumed(world.topic()))
    flags = ("-p", str(file), "--spark", "--master", "yarn", *SMALL)
    nowhere = Command(world, tmp_path, tmp_path).run(*flags, state="spark")
    assert "HADOOP_CONF_DIR or YARN_CONF_DIR must be set" in nowhere.stderr
    lost = ("--spark-conf", "spark.pyspark.python=/nowhere/python3")
    bare = command(world, tmp_path, spark_yarn).run(*flags, *lost, state="spark")
    assert bare.stderr.startswith("kretain: Spark's executors can't run Python")
    for done in (nowhere, bare):
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr


def test_killed_yarn_application_is_reported_in_one_line(world: World, tmp_path: Path, spark_yarn: Yarn) -> None:
    file = written(tmp_path / "policy.yaml", consumed(world.topic()))
    earlier = {one["id"] for one in spark_yarn.applications()}
    running = command(world, tmp_path, spark_yarn).start("-p", str(file), *ON_YARN, state="spark")

    def busy() -> list[str]:
        new = [one["id"] for one in spark_yarn.applications() if one["id"] not in earlier]
        return [one for one in new if busy_containers(spark_yarn, one)]

    wait_until(lambda: running.poll() is not None or bool(busy()), "a first task", 300)
    spark_yarn.end(busy()[0])
    out, err = running.communicate(timeout=300)
    assert (running.returncode, out, err.count("\n")) == (1, "", 1), err
    assert "SparkContext was shut down; check that Spark is up" in err
