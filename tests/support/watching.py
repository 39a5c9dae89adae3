"""``kretain watch`` as a process that tests start, look at and end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from retention_cli.watch.measured import Series
from tests.support.facts import known
from tests.support.trims import audit_of
from tests.support.world import World, consumed, wait_until, written

PLAIN = """
import faulthandler, signal
import retention_cli.watch.loop as loop
faulthandler.register(signal.SIGUSR1)
loop.pause_s = lambda interval_s, *_: interval_s / 5
from kretain.__main__ import main
main()
"""
"""The command, with an interval that passes five times as fast."""
ONE_A_BATCH = f"import retention_cli.trim.narrow as reconcile\nreconcile.PARTITIONS_A_LEADER = 1\n{PLAIN}"
"""Each partition is a batch of its own."""
PLAN_SERIES: dict[str, Series] = {
    "partitions": {("trim",): 1},
    "trimmable_records": {(): 5},
    "trimmable_bytes": {(): 100},
    "holds": {("F2",): 2},
    "group_lag_records": {("group:a",): 3, ('group:"\\\n',): 1},
    "group_seconds_to_loss": {("group:a", "t"): 60.0},
    "disk_usage_ratio": {("1", "/data"): 0.5},
    "disk_ceiling_ratio": {(): 0.8},
}
"""What metrics tell of a plan: every one of its series."""


@dataclass
class Watcher:
    process: subprocess.Popen[bytes]
    log: Path
    ended: bool = False

    @property
    def text(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def passes(self) -> list[str]:
        return re.findall(r"^\S+Z (pass .*)$", self.text, re.MULTILINE)

    def wait_for(self, words: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while words not in self.text and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if words not in self.text and self.process.poll() is None:  # where does it hang?
            self.send(signal.SIGUSR1)
            time.sleep(0.5)
        assert words in self.text, self.text

    def wait_passes(self, more: int) -> list[str]:
        """Wait for so many more passes; return their lines."""
        there = len(self.passes())
        wait_until(lambda: len(self.passes()) >= there + more, f"{more} more passes in:\n{self.text}", 30)
        return self.passes()[there:]

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self, number: signal.Signals | None = signal.SIGTERM, seconds: float = 20) -> int:
        """Send it a signal, if any, and return its exit code."""
        self.ended = True
        if number is not None:
            self.send(number)
        return self.process.wait(seconds)

    def get(self, path: str, accept: str = "application/openmetrics-text") -> tuple[int, str]:
        self.wait_for("/healthz")
        found = known(re.search(r"http://([^/]+)/metrics", self.text))
        request = urllib.request.Request(f"http://{found[1]}{path}", headers={"Accept": accept})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self) -> dict[tuple[str, ...], float]:
        """Return each sample's value by its name, and its labels' values but for the cluster."""
        return samples(self.get("/metrics")[1])


def samples(text: str) -> dict[tuple[str, ...], float]:
    found = {}
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for one in family.samples:
            key = (one.name, *(value for label, value in sorted(one.labels.items()) if label != "cluster"))
            assert key not in found, "a series twice"
            found[key] = one.value
    return found


@contextmanager
def watching(
    world: World, policy: Path, *arguments: str, code: str = PLAIN, state: Path | None = None
) -> Iterator[Watcher]:
    """Start it. If the test does not end it, it must end well on SIGTERM; kill it where something fails."""
    where = state or world.state_dir
    where.parent.mkdir(parents=True, exist_ok=True)
    log = where.with_name(f"{where.name}-{len(list(where.parent.glob('*.log')))}.log")
    command = [sys.executable, "-c", code, "watch", "-b", world.bootstrap, "-p", str(policy), "--state-dir", str(where)]
    given = [*arguments] if "--listen" in arguments else [*arguments, "--listen", "127.0.0.1:0"]
    with log.open("wb") as stream:
        process = subprocess.Popen([*command, *given], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
    watcher = Watcher(process, log)
    try:
        yield watcher
        assert watcher.ended or watcher.end() == 0, watcher.text
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def policy_of(world: World, *topics: str, more: str = "") -> Path:
    path = world.state_dir.parent / "policy.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = "\n".join(consumed(topic).partition("topics:\n")[2] for topic in topics)
    return written(path, f"version: 1\n{more}topics:\n{entries}\n")


@contextmanager
def trimming(world: World, topic: str, *arguments: str, more: str = "", **how: Any) -> Iterator[Watcher]:
    """Watch a topic with a pass a second that trims; ``more`` stands in the policy before its topics."""
    policy = policy_of(world, topic, more=more)
    with watching(world, policy, "--trim", "--interval", "1s", *arguments, **how) as watcher:
        yield watcher


def batches_of(state: Path) -> int:
    return sum(one["event"] == "batch" for one in audit_of(state))


SLOW = f"""
import time
from retention_cli.brokers.deleter import Deleter
honest = Deleter.delete
def slowly(self, *arguments, **more):
    time.sleep(0.3)
    honest(self, *arguments, **more)
Deleter.delete = slowly
{ONE_A_BATCH}"""
