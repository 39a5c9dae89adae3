"""Real Spark on this machine, as processes of the tests' own: a standalone cluster, and a Spark Connect server.

Everything listens on loopback, on ports that were free. Whatever happens to the tests, the processes end: each is the
head of a group of its own, and is ended by its own id; a reaper does it where the tests were killed. The fixtures are
session-scoped; a conftest that imports them by name offers them to its folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from kretain.embedded import reaper
from kretain.embedded.cluster import free_ports

HOST = "127.0.0.1"
READY_SECONDS = 180
STOP_SECONDS = 20
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""For a JVM that does little: what it runs is compiled once, and not well."""


@dataclass
class Process:
    """One of Spark's: its name, what it says, and the id of its group."""

    name: str
    log: Path
    popen: subprocess.Popen[bytes]
    killed: bool = False

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def last_lines(self) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])

    def kill(self) -> None:
        """SIGKILL to it and to whom it started, as a power cut would."""
        self.killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait()


@dataclass
class SparkProcesses:
    """Starts processes by ``spark-class`` and ends them all. A context manager."""

    folder: Path
    processes: list[Process] = field(default_factory=list)
    _reaper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._reaper = subprocess.Popen(
            [sys.executable, reaper.__file__], stdin=subprocess.PIPE, start_new_session=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        for one in reversed(self.processes):
            if one.alive:
                with contextlib.suppress(ProcessLookupError):
                    one.popen.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for one in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.popen.wait(max(0.1, deadline - time.monotonic()))
            one.kill()  # and what of its group is left
        if self._reaper is not None and self._reaper.stdin is not None:
            self._reaper.stdin.close()
            self._reaper.wait()

    def start(self, name: str, *arguments: str, environ: Mapping[str, str] | None = None) -> Process:
        """Start a class of Spark's; what it says goes to ``name.log``."""
        return self.run(name, [str(spark_home() / "bin" / "spark-class"), *arguments], environ)

    def run(self, name: str, command: Sequence[str], environ: Mapping[str, str] | None = None) -> Process:
        """Start a process that Spark is to work with; what it says goes to ``name.log``."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as said:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.folder,
                start_new_session=True,
                env={**environment(self.folder), **(environ or {})},
            )
        one = Process(name, log, popen)
        self.processes.append(one)
        if self._reaper is not None and self._reaper.stdin is not None:
            self._reaper.stdin.write(f"{one.pid} {reaper.start_time(one.pid)}\n".encode())
            self._reaper.stdin.flush()
        return one

    def wait_until(self, ready: Callable[[], bool], what: str, seconds: float = READY_SECONDS) -> None:
        """Ask until it is so. A process that ended, or too long a wait, raises with what was said last."""
        deadline = time.monotonic() + seconds
        while not ready():
            for one in self.processes:
                assert one.alive or one.killed, f"{one.name} ended before {what}:\n{one.last_lines()}"
            assert time.monotonic() < deadline, "\n".join(
                [f"not within {seconds:.0f} s: {what}", *(f"{one.name}:\n{one.last_lines()}" for one in self.processes)]
            )
            time.sleep(0.1)


def spark_home() -> Path:
    """The wheel's own Spark."""
    import pyspark

    return Path(pyspark.__file__).parent


def environment(folder: Path) -> dict[str, str]:
    """What Spark's processes, and clients of theirs, are given: nothing that somebody set for a Spark of their own.

    ``PYTHONPATH`` is not among it: what executors need of ours must be shipped.
    """
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_")) and k != "PYTHONPATH"},
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@dataclass
class SparkServer:
    """A standalone cluster and its workers, or a Spark Connect server. ``url`` is what ``--master`` takes."""

    url: str
    folder: Path
    workers: list[Process]

    def environment(self) -> dict[str, str]:
        return environment(self.folder)


@contextlib.contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[SparkServer]:
    """Run a standalone cluster of workers of one core and 1 GiB each.

    Workers may be killed (``workers[0].kill()``) by tests that have one of their own.
    """
    port, status_port, *ports = free_ports(2 + workers)
    url, status = f"spark://{HOST}:{port}", f"http://{HOST}:{status_port}/json/"
    with SparkProcesses(folder) as processes:
        # A master's status page can't be turned off, and is how one learns who has joined.
        processes.start(
            "master",
            "org.apache.spark.deploy.master.Master",
            *("--host", HOST, "--port", str(port), "--webui-port", str(status_port)),
            environ={"SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"},  # it would listen on a fixed port
        )
        processes.wait_until(lambda: bool(asked(status)), "the master answers")
        started = [
            processes.start(
                f"worker-{one}",
                "org.apache.spark.deploy.worker.Worker",
                *("--host", HOST, "--port", str(one), "--webui-port", "0"),
                *("-c", "1", "-m", "1g", "-d", str(folder / f"work-{one}")),
                url,
            )
            for one in ports
        ]

        def joined() -> bool:
            return {one["port"] for one in asked(status).get("workers", ()) if one["state"] == "ALIVE"} == {*ports}

        processes.wait_until(joined, "the workers have joined")
        yield SparkServer(url, folder, started)


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[SparkServer]:
    """Run a Spark Connect server, its tasks on this machine."""
    port = free_ports(1)[0]
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
    }
    with SparkProcesses(folder) as processes:
        server = processes.start(
            "connect",
            "org.apache.spark.deploy.SparkSubmit",
            *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
            environ={"SPARK_DAEMON_MEMORY": "1g"},  # to Spark it is a daemon, and the driver at once
        )
        processes.wait_until(lambda: _listens(port), "the Connect server listens")
        yield SparkServer(f"sc://{HOST}:{port}", folder, [server])


def asked(url: str) -> dict[str, Any]:
    """Return a status page's JSON, nothing where there is none yet."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  (our own, on loopback)
            return dict(json.load(answer))
    except (OSError, ValueError):
        return {}


def _listens(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


@pytest.fixture(scope="session")
def spark_standalone() -> Iterator[SparkServer]:
    """A master and two workers that no test may harm."""
    with own_folder() as folder, standalone(folder) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark_connect() -> Iterator[SparkServer]:
    """A Connect server that no test may harm."""
    with own_folder() as folder, connect_server(folder) as server:
        yield server


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Give a folder that goes with the cluster, its logs and its workers' copies of what was shipped."""
    with tempfile.TemporaryDirectory(prefix="kretain-spark-", ignore_cleanup_errors=True) as name:
        yield Path(name)
