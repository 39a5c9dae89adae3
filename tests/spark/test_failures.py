"""Spark that goes away while it works: one line that says so and what to do, exit 1, and nothing is trimmed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.spark.clusters import connect_server, standalone
from tests.support.spark.commands import SMALL, Command
from tests.support.world import HOUR, World, consumed, wait_until

pytestmark = pytest.mark.long  # a Spark of its own, killed


class Held:
    """``kretain trim --spark``, of which a task waits for the settings of the connection."""

    def __init__(self, world: World, folder: Path, spark_folder: Path) -> None:
        self.world, self.topic = world, world.topic()
        world.produce(self.topic, [5 * HOUR] * 9)
        world.commit(f"{self.topic}-g", self.topic, 7)
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
            except OSError:  # nobody reads it yet
                return False
            return True

        wait_until(opened, "a task that runs", 240)
        return running

    def said(self, running: subprocess.Popen[str]) -> str:
        """Return the one line that it ends with; nothing is trimmed."""
        out, err = running.communicate(timeout=240)
        assert (running.returncode, out) == (1, ""), err
        assert self.world.ends(self.topic) == (0, 9)
        assert err.count("\n") == 1, err
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
