"""The contract on a real YARN: the command's own plan, byte for byte, and nothing of a secret in what YARN keeps."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from retention_cli.embedded import EmbeddedKafka
from tests.kafka.archiving import archived, policy, whole
from tests.kafka.fleet import Fleet
from tests.kafka.world import HOUR, World, consumed, wait_until
from tests.spark.test_archive import filled, whole_and_tidy
from tests.spark.test_remote import SECRET, SMALL, Command
from tests.spark.yarn import Yarn, spark_yarn

__all__ = ["spark_yarn"]
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # 100 MB of Hadoop, and a session each
FAKE = "hush-9d27ee"
ON_YARN = (
    *("--spark", "--master", "yarn", *SMALL),
    # As where each machine has what executors need: the tests' own Python.
    *("--spark-conf", f"spark.pyspark.python={sys.executable}"),
)


@pytest.fixture(scope="module")
def fleet(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(World(kafka.bootstrap, tmp_path_factory.mktemp("fleet") / "state"), 13, topics=10)
    try:
        fleet.build()
        fleet.commit_somewhere()
        fleet.trim_somewhere()
        yield fleet
    finally:
        fleet.close()


def command(world: World, folder: Path, cluster: Yarn, name: str = "plan") -> Command:
    return Command(world, folder, cluster.folder, name, cluster.environ)


def busy_containers(cluster: Yarn, application: str) -> int:
    """How many of an application's executors have run tasks."""
    return sum("Running task" in said for said in cluster.logs(application).values())


def test_the_same_plan(fleet: Fleet, tmp_path: Path, spark_yarn: Yarn) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(fleet.policy()[0])
    run = command(fleet.world, tmp_path, spark_yarn)
    before = run.plan(file, state="local")
    plan = run.plan(file, *ON_YARN, state="spark")
    assert plan == before or run.plan(file, state="local") != before  # brokers sweep as they like
    [done] = spark_yarn.applications()
    assert (done["applicationType"], done["finalStatus"]) == ("SPARK", "SUCCEEDED")
    assert busy_containers(spark_yarn, done["id"]) == 2
