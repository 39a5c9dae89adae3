"""Whole processes on one cluster, timed and compared: what each measurement of :mod:`bench.run` stands on."""

from __future__ import annotations

import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.seed import Shape, commit
from retention_cli.core.model import TopicPartition
from tests.support.clusters import EmbeddedKafka, kafka_tool
from tests.support.world import reader_for, wait_until

POLICY = """version: 1
topics:
  - match: "bench-*"
    retention.commitoffset.enable: true
    retention.commitoffset.hours: 1
"""
stock_tool = functools.partial(kafka_tool, options=("-Xmx1g",))
"""Kafka's own command line tools, as their scripts start them."""


@dataclass
class Timed:
    """One finished process: wall seconds, peak MiB and the processor's seconds."""

    seconds: float
    peak_mib: float
    cpu_seconds: float
    out: str
    err: str


_APART: Final = """
import json, os, sys, time
began = time.perf_counter()
child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_child, status, used = os.wait4(child, 0)
told = time.perf_counter() - began, used.ru_maxrss / 1024, used.ru_utime + used.ru_stime
with open(sys.argv[1], "w") as file:
    json.dump(told, file)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Runs a process from a small one: its peak memory counts that of its parent when it was started."""


def run(command: list[str], checkout: Path | None = None) -> Timed:
    """Run a process to its end and account for it alone; ``checkout`` is whose kretain it is, if not ours."""
    environ = {} if checkout is None else {"PYTHONPATH": f"{checkout}{os.pathsep}{checkout / 'cli'}"}
    with tempfile.NamedTemporaryFile("r") as told:
        apart = [sys.executable, "-IS", "-c", _APART, told.name, *command]
        done = subprocess.run(
            apart,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=checkout,  # python -m looks there first
            env={**os.environ, **environ},
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} … failed: {done.stderr[-2000:]}")
        seconds, peak_mib, cpu_seconds = json.load(told)
        return Timed(seconds, peak_mib, cpu_seconds, done.stdout, done.stderr)


class Bench:
    """The cluster, the commands, and the lines of the result."""

    def __init__(self, kafka: EmbeddedKafka, shape: Shape, scratch: Path, rounds: int) -> None:
        self.bootstrap = kafka.bootstrap
        self.shape = shape
        self.scratch = scratch
        self.rounds = rounds
        self.results: dict[str, float] = {}
        self.policy = scratch / "policy.yaml"
        self.policy.write_text(POLICY)

    def kretain(self, *arguments: str, policy: Path | None = None, state: Path | None = None) -> list[str]:
        return [
            str(Path(sys.executable).with_name("kretain")),
            *arguments,
            "-b",
            self.bootstrap,
            "-p",
            str(policy or self.policy),
            "--state-dir",
            str(state or self.scratch / "state"),
            "--timeout",
            "120s",
        ]

    def say(self, name: str, value: float, wanted: str = "") -> None:
        """Print a figure, and whether it is as ``wanted`` (``<= 2.0``)."""
        self.results[name] = value
        sign = ""
        if wanted:
            limit = float(wanted[3:])
            sign = "   reached" if (value <= limit if wanted.startswith("<=") else value >= limit) else "   NOT REACHED"
        print(f"{name:58} {value:9.2f}   {wanted}{sign}", flush=True)

    def check(self, plan: Timed) -> None:
        """Raise a RuntimeError if the plan does not trim every partition."""
        if f" from {self.shape.partitions:,} partitions." not in plan.out:
            raise RuntimeError(f"the plan does not trim every partition:\n{plan.out}")

    def plan_beside_the_yardstick(self, program: Path | None) -> None:
        """A B A B …: the machine's speed drifts, ratios of neighbours don't."""
        commands = [self.kretain("plan")]
        if program is not None:
            commands.append([str(program), "-bootstrap", self.bootstrap, "-prefix", self.shape.prefix, "-reads", "all"])
        ours, *others = zip(*([run(one) for one in commands] for _ in range(self.rounds + 1)), strict=True)
        ours, others = ours[1:], [one[1:] for one in others]  # the first ones warm the caches
        self.say("kretain plan, seconds", statistics.median(one.seconds for one in ours))
        self.say("kretain plan, peak MiB", max(one.peak_mib for one in ours), "<= 400")
        self.check(ours[-1])
        for theirs in others:  # the yardstick's, where there is one
            pairs = [one.seconds / other.seconds for one, other in zip(ours, theirs, strict=True)]
            self.say("yardstick -reads all, seconds", statistics.median(one.seconds for one in theirs))
            self.say("yardstick -reads all, peak MiB", max(one.peak_mib for one in theirs))
            self.say("plan / yardstick (median of pairs)", statistics.median(pairs), "<= 2.0")
            print(f"{'':58} pairs: {', '.join(f'{pair:.2f}' for pair in pairs)}")
        if program is None:
            print("plan / yardstick: left out (no yardstick folder, or no Go)")

    def plan_beside_the_stock_tool(self) -> None:
        """A B A: see :meth:`plan_beside_the_yardstick`."""
        before = run(self.kretain("plan"))
        stock = run(
            stock_tool(
                "consumer.group.ConsumerGroupCommand",
                *("--bootstrap-server", self.bootstrap, "--describe", "--all-groups", "--timeout", "300000"),
            )
        )
        ours = statistics.mean((before.seconds, run(self.kretain("plan")).seconds))
        self.say("kafka-consumer-groups --describe --all-groups, seconds", stock.seconds)
        self.say("kretain plan, right before and after it, seconds", ours)
        self.say("stock tool / plan", stock.seconds / ours, ">= 15")

    def plan_after_elections(self, kafka: EmbeddedKafka) -> None:
        """What a plan pays to prove what it remembers (M2): a broker dies, and what it led has another leader epoch.

        A B A B …: with the memory of before, so that leaders are asked, and again with what that run has proven.
        """
        remembered = self.scratch / "remembered"
        run(self.kretain("plan", state=remembered))
        before = leader_epochs(self.bootstrap)
        kafka.node(1).kill()
        wait_until(lambda: all(leader != 1 for leader, _ in leader_epochs(self.bootstrap).values()), "new leaders", 300)
        kafka.start_node(kafka.node(1))
        kafka.wait_until_ready()
        after = leader_epochs(self.bootstrap)
        moved = sum(epoch != after[tp][1] for tp, (_, epoch) in before.items())
        run(self.kretain("plan"))
        asked, proven = [], []
        for number in range(self.rounds):
            state = self.scratch / f"remembered-{number}"
            shutil.copytree(remembered, state)
            asked.append(run(self.kretain("plan", state=state)))
            proven.append(run(self.kretain("plan", state=state)))
        self.check(asked[-1])
        more = [one.seconds - other.seconds for one, other in zip(asked, proven, strict=True)]
        self.say("partitions with another leader epoch than remembered", moved)
        self.say("plan that asks about them (M2), more seconds", statistics.median(more))
        ratio = statistics.median(one.seconds / other.seconds for one, other in zip(asked, proven, strict=True))
        self.say("plan that asks about them / plan", ratio)

    def trim_beside_the_stock_tool(self) -> None:
        """Both delete on every partition, in turn: the stock tool first, then kretain a little further, twice."""
        ours, theirs = [], []
        for stock_to, floor in ((1, 3), (4, 6)):
            if floor != 3:
                commit(self.bootstrap, self.shape, floor)
            wanted = self.scratch / "delete.json"
            rows = [
                {"topic": name, "partition": n, "offset": stock_to}
                for name in self.shape.names()
                for n in range(self.shape.partitions_a_topic)
            ]
            wanted.write_text(json.dumps({"partitions": rows, "version": 1}))
            theirs.append(
                run(
                    stock_tool(
                        "DeleteRecordsCommand",
                        *("--bootstrap-server", self.bootstrap, "--offset-json-file", str(wanted)),
                    )
                )
            )
            done = run(self.kretain("trim", "--yes", "-v"))
            if f"{self.shape.partitions:,} trimmed" not in done.out:
                raise RuntimeError(f"not every partition was trimmed:\n{done.out}")
            ours.append(float(done.err.rpartition("read-backs ")[2].split()[0]))
            self.say("kretain trim, whole process, seconds", done.seconds)
        self.say("kafka-delete-records, seconds (median)", statistics.median(one.seconds for one in theirs))
        self.say("trim's deletes and reading back, seconds (median)", statistics.median(ours))
        ratio = statistics.median(one / other.seconds for one, other in zip(ours, theirs, strict=True))
        self.say("deletes and reading back / stock tool", ratio, "<= 1.0")


def build_yardstick(folder: Path, scratch: Path) -> Path | None:
    """Build the Go program outside of its own folder, None where that can't be."""
    if not (folder / "go.mod").exists() or shutil.which("go") is None:
        return None
    copy = scratch / "kadm"
    shutil.copytree(folder, copy)
    subprocess.run(["go", "build", "-o", "kadm", "."], cwd=copy, check=True, capture_output=True)
    return copy / "kadm"


def leader_epochs(bootstrap: str) -> dict[TopicPartition, tuple[int | None, int]]:
    """Return who leads each partition, and in which epoch."""
    with reader_for(bootstrap) as reader:
        return {tp: (one.leader, one.leader_epoch) for tp, one in reader.metadata().partitions_of().items()}
