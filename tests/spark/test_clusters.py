"""The tests' own Spark: it starts, counts, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.spark.clusters import (
    Connect,
    SparkNotReadyError,
    SparkProcesses,
    Standalone,
    spark_connect,
    spark_standalone,
    standalone,
)
from tests.support.world import wait_until

__all__ = ["spark_connect", "spark_standalone"]

pytestmark = pytest.mark.thorough  # a master and workers

COUNT = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder
url = sys.argv[1]
builder = builder.remote(url) if url.startswith("sc:") else builder.master(url)
for setting in ("spark.ui.enabled=false", "spark.executor.memory=512m", "spark.driver.host=127.0.0.1"):
    builder = builder if url.startswith("sc:") else builder.config(*setting.split("="))
spark = builder.getOrCreate()
count = spark.range(10).count()
spark.stop()
print("counted", count)
"""


def counted(url: str, environ: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", COUNT, url], env=environ, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.long  # as a plan does (test_remote.py)
def test_standalone_client_counts_on_two_workers(spark_standalone: Standalone) -> None:
    assert len(spark_standalone.alive_workers()) == 2
    assert counted(spark_standalone.url, spark_standalone.environment()) == "counted 10"


@pytest.mark.long  # likewise
def test_connect_client_counts(spark_connect: Connect) -> None:
    assert counted(spark_connect.url, spark_connect.environment()) == "counted 10"


def group_is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def test_killed_worker_is_replaced_and_nothing_remains_after_an_error(tmp_path: Path) -> None:
    groups: list[int] = []

    def fail() -> None:
        with standalone(tmp_path, workers=1) as cluster:
            cluster.workers[0].kill()
            assert not cluster.workers[0].alive
            cluster.add_workers(1)
            groups.extend(one.pid for one in (cluster.master, *cluster.workers))
            raise RuntimeError("of the test")

    with pytest.raises(RuntimeError, match="of the test"):
        fail()
    assert len(groups) == 3
    for group in groups:
        wait_until(partial(group_is_gone, group), f"the end of {group}")


def test_failed_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with SparkProcesses(tmp_path) as processes:
        processes.start("nothing", "no.such.Class")
        with pytest.raises(SparkNotReadyError, match=r"nothing ended before it starts:[\s\S]*no.such.Class"):
            processes.wait_until(lambda: False, "it starts")


ORPHANED = """
import os, sys, signal
from pathlib import Path
from tests.support.spark.clusters import SparkProcesses, free_ports
with SparkProcesses(Path(sys.argv[1])) as processes:
    port = str(free_ports(1)[0])
    one = processes.start("m", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", port)
    print(one.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_test_run_leaves_no_spark_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ORPHANED, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    wait_until(lambda: group_is_gone(int(done.stdout)), "the end of an orphan")
