"""Start a synthetic cluster in a process of its own, which ends with this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.seed import Shape


@dataclass(frozen=True, slots=True)
class Synthetic:
    """A synthetic cluster that is served: the address to bootstrap from, and the server's process."""

    bootstrap: str
    pid: int

    def cpu_s(self) -> float:
        """Return the CPU seconds that its brokers have taken so far."""
        stat = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def synthetic(shape: Shape, *, moving: bool = False, number: int = 0) -> Iterator[Synthetic]:
    """Serve a shape on three brokers, as the cluster of this number."""
    given = {
        "number": number,
        "topics": shape.topics,
        "partitions-a-topic": shape.partitions_a_topic,
        "groups": shape.groups,
        "topics-a-group": shape.topics_a_group,
        "prefix": shape.prefix,
        "empty-share": shape.empty_share,
    }
    command = [sys.executable, "-m", "bench.synthetic", *(f"--{name}={value}" for name, value in given.items())]
    command += ["--moving"] if moving else []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("its streams are pipes")
        yield Synthetic(json.loads(process.stdout.readline())["bootstrap"], process.pid)
        process.stdin.close()
