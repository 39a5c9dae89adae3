"""The contract on a real YARN: the command's own plan, byte for byte, and nothing of a secret in what YARN keeps."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from tests.support.archives import archived, filled, policy, whole, whole_and_tidy
from tests.support.fleet import Fleet
from tests.support.secured import show_none
from tests.support.spark.commands import (
    INSTALLED,
    ON_YARN,
    SECRET,
    SMALL,
    Command,
    cluster_with_a_password,
)
from tests.support.spark.hadoop import Yarn
from tests.support.world import HOUR, World, consumed, wait_until, written

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # 100 MB of Hadoop, and a session each
FAKE = "hush-9d27ee"


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
    assert {partition: world.ends(topic, partition)[0] for partition in range(3)} == {0: 1_200, 1: 1_200, 2: 700}
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
            *("--spark-conf", f"spark.executorEnv.AWS_SECRET_ACCESS_KEY={FAKE}"),
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
    show_none((f"{place}: {text}" for place, text in shown.items()), SECRET, FAKE)
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
    """Nobody told where YARN is; and executors with a Python that has nothing: exit 1, one line, nothing planned."""
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
