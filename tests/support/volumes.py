"""Brokers on volumes of their own, whose deleted files stay for an hour."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from retention_cli.brokers.log_offsets import LogDirState
from tests.support.clusters import EmbeddedKafka
from tests.support.facts import known
from tests.support.world import HOUR, MIB, Cli, World, now_ms, reader_for, run_cli, wait_until, written

RECORD = 10_000


@contextmanager
def volume(folder: Path, room_mib: int) -> Iterator[Path]:
    """A volume of its own; the test is skipped where none can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={room_mib}m", "kretain-test", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


@dataclass
class Filled:
    """A broker whose swept and deleted files stay for an hour."""

    kafka: EmbeddedKafka
    world: World
    root: Path
    topics: dict[str, str] = field(default_factory=dict)
    """By their stems."""

    def starts(self) -> dict[str, int]:
        return {stem: self.world.ends(name)[0] for stem, name in self.topics.items()}

    def topic(self, stem: str, mib: int, age_h: int, replicas: int = 1, **config: Any) -> str:
        usual = {"segment_bytes": str(MIB), "file_delete_delay_ms": str(HOUR)}
        name = self.topics[stem] = self.world.topic(stem, 1, replicas, **usual | config)
        first = now_ms() - age_h * HOUR
        stamps = [first + 1000 * n for n in range(mib * MIB // RECORD)]
        self.world.produce_at(name, stamps, value=lambda: os.urandom(RECORD), batch=50)
        return name

    def described(self) -> tuple[int, int, int]:
        """Total, used, and the replicas' bytes of all dirs on the first one's volume."""
        [dirs] = log_dirs_of(self.world).values()
        total = known(dirs[0].total_bytes)
        in_use = total - known(dirs[0].usable_bytes)
        return total, in_use, sum(replica.size_bytes for one in dirs for replica in one.replicas)

    def scan(self, name: str) -> str:
        return str(scan_all(self.kafka, self.root / name) / "1.parquet")

    def policy(self, percent: float, *entries: str) -> Path:
        """A ceiling for these entries, or for all topics."""
        path = self.root / f"{percent}-{len(list(self.root.glob('*.yaml')))}.yaml"
        ceiling = f"disks: {{log.retention.disk.usage.percent: {percent}, shared: true}}"
        lines = "".join(f"  - {{{entry}, unconsumed: trim}}\n" for entry in entries or ['match: "*"'])
        return written(path, f"version: 1\n{ceiling}\ntopics:\n{lines}")

    def plan(self, policy: Path, *more: str, fresh: str | None = None) -> Cli:
        world = self.world if fresh is None else World(self.world.bootstrap, self.root / fresh)
        return world.cli("plan", "-p", str(policy), "-o", "json", *more, check=0)


@contextmanager
def filled(root: Path, room_mib: int = 64, check_ms: int = 500) -> Iterator[Filled]:
    settings = {
        "log.retention.check.interval.ms": str(check_ms),
        "log.initial.task.delay.ms": str(check_ms),
        "log.segment.delete.delay.ms": str(HOUR),
        "log.index.size.max.bytes": "65536",
    }
    with ExitStack() as stack:
        folder = stack.enter_context(volume(root / "volume", room_mib))
        kafka = stack.enter_context(EmbeddedKafka(1, log_dirs=[[folder / "logs"]], settings=settings))
        yield Filled(kafka, World(kafka.bootstrap, root / "state"), root)


def scan_all(kafka: EmbeddedKafka, folder: Path, check: int | None = 0) -> Path:
    """Make an inventory of each broker in a folder, as an operator would on each; ``check`` is the exit code."""
    folder.mkdir(exist_ok=True)
    for node in kafka.nodes:
        out = str(folder / f"{node.node_id}.parquet")
        run_cli("segments", "scan", *map(str, node.log_dirs), "--out", out, "--no-tiered", check=check)
    return folder


def log_dirs_of(world: World) -> dict[int, list[LogDirState]]:
    """Return what each broker says of its dirs; all of them answer."""
    with reader_for(world.bootstrap) as reader:
        answers: Any = reader.log_dirs(reader.brokers())
    return answers  # type: ignore[no-any-return]


def used(world: World) -> dict[int, tuple[str, int]]:
    """Each broker's only dir, and its replicas' bytes."""
    return {
        broker: (one.path, sum(replica.size_bytes for replica in one.replicas))
        for broker, [one] in log_dirs_of(world).items()
    }


def await_copies(world: World, topics: Collection[str], least_bytes: int = 1) -> None:
    """Wait until all replicas of each topic's partition take as much."""

    def copied() -> bool:
        replicas = [one for dirs in log_dirs_of(world).values() for one in dirs[0].replicas]
        sizes = [{one.size_bytes for one in replicas if one.tp.topic == name} for name in topics]
        return all(len(found) == 1 and min(found) >= least_bytes for found in sizes)

    wait_until(copied, "followers that have caught up")


def trimmed(plan: Cli) -> dict[str, int]:
    return {row["topic"]: row["trim_to"] for row in plan.json()["partitions"] if row["action"] == "trim"}


def disk_in(plan: Cli) -> Any:
    [disk] = plan.json()["disks"]
    return disk


def percent_of(filled: Filled, bytes_below: int) -> float:
    """A ceiling that is exceeded by so many bytes by what is in use now."""
    total, in_use, _ = filled.described()
    return round(100 * (in_use - bytes_below) / total, 2)
