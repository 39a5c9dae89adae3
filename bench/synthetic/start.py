"""Start a synthetic cluster in a process of its own, which ends with this one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import psutil

from bench.seed import Shape


@dataclass(frozen=True, slots=True)
class Synthetic:
    """A synthetic cluster that is served: the address to bootstrap from, and the server's process."""

    bootstrap: str
    pid: int

    def cpu_s(self) -> float:
        """Return the CPU seconds that its brokers have taken so far."""
        spent = psutil.Process(self.pid).cpu_times()
        return float(spent.user + spent.system)


@contextmanager
def synthetic(shape: Shape, *, moving: bool = False, number: int = 0) -> Iterator[Synthetic]:
    """Serve a shape on three brokers, as the cluster of this number."""
    given = ["--number", str(number), "--shape", json.dumps(asdict(shape)), *["--moving"] * moving]
    command = [sys.executable, "-m", "bench.synthetic", *given]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("its streams are pipes")
        yield Synthetic(json.loads(process.stdout.readline())["bootstrap"], process.pid)
        process.stdin.close()
