"""``kretain plan --fleet … --spark --out`` as a user types it, on synthetic clusters that stand in for brokers.

``python -m bench.spark_fleet`` prints wall and CPU seconds and peak memory for 2 and 20 million commits, and how they
grow: of as many clusters, ten times as large. ``--partitions``, ``--groups`` (of a cluster) and ``--clusters`` give two
other sizes, ``--master`` chooses where.
The clusters' own CPU is told beside: on one machine they take it from what is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil

from bench.harness import POLICY
from bench.seed import Shape
from bench.synthetic.start import Synthetic, synthetic

PARTITIONS_A_TOPIC: Final = 100
TOPICS_A_GROUP: Final = 8


@contextlib.contextmanager
def fleet(folder: Path, partitions: int, groups: int, clusters: int, *, moving: bool) -> Iterator[list[Synthetic]]:
    """Serve clusters of so many partitions and groups each, and write the file of the fleet that they are.

    ``moving``: between two plans all groups commit anew, as those of live clusters do.
    """
    shape = Shape(partitions // PARTITIONS_A_TOPIC, PARTITIONS_A_TOPIC, groups, TOPICS_A_GROUP)
    (folder / "policy.yaml").write_text(POLICY)
    with contextlib.ExitStack() as stack:
        served = [stack.enter_context(synthetic(shape, number=number, moving=moving)) for number in range(clusters)]
        entries = "".join(f"  - {{name: c{n}, bootstrap-server: '{one.bootstrap}'}}\n" for n, one in enumerate(served))
        (folder / "fleet.yaml").write_text(f"version: 1\npolicy: policy.yaml\nclusters:\n{entries}")
        yield served


class Watch(threading.Thread):
    """Watches a process and all below it: the peak of their resident memory (MiB), and their CPU seconds."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._cpu: dict[psutil.Process, tuple[str, float]] = {}
        self.peak = self.client_mib = 0.0
        self.done = threading.Event()

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds of the client, of Spark's own processes, and of their Python workers."""
        found = {"client": 0.0, "java": 0.0, "python": 0.0}
        for one, (name, seconds) in self._cpu.items():
            found["client" if one.pid == self._pid else "java" if name == "java" else "python"] += seconds
        return {name: round(seconds, 1) for name, seconds in found.items()}

    def run(self) -> None:
        """Look ten times a second."""
        while not self.done.wait(0.1):
            resident = 0.0
            with contextlib.suppress(psutil.NoSuchProcess):
                client = psutil.Process(self._pid)
                for one in (client, *client.children(recursive=True)):
                    with contextlib.suppress(psutil.NoSuchProcess), one.oneshot():
                        spent, mib = one.cpu_times(), one.memory_info().rss / (1 << 20)
                        self._cpu[one] = one.name(), spent.user + spent.system
                        resident += mib
                        if one == client:
                            self.client_mib = max(self.client_mib, mib)
            self.peak = max(self.peak, resident)


def planned(folder: Path, clusters: list[Synthetic], *flags: str) -> dict[str, Any]:
    """Run the command, and return what it took."""
    command = [sys.executable, "-m", "kretain", "plan", "--fleet", str(folder / "fleet.yaml"), *flags]
    command += ["--state-dir", str(folder / "state"), "--out", str(folder / "plan.parquet")]
    began, before = time.perf_counter(), sum(one.cpu_s() for one in clusters)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        watch = Watch(process.pid)
        watch.start()
        code = process.wait(timeout=1800)
        seconds = time.perf_counter() - began
        watch.done.set()
        watch.join()
    if code:
        raise RuntimeError(f"exit {code}")
    return {
        "seconds": round(seconds, 1),
        "cpu_s": round(sum(watch.cpu().values()), 1),
        "of": watch.cpu(),
        "peak_mib": round(watch.peak),
        "client_mib": round(watch.client_mib),
        "brokers_cpu_s": round(sum(one.cpu_s() for one in clusters) - before, 1),
    }


def main() -> None:
    """Plan each fleet twice: a first plan fills the ledgers, another finds what it knows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--groups", type=int, nargs=2, default=[500, 5_000])
    parser.add_argument("--partitions", type=int, nargs=2, default=[20_000, 200_000])
    parser.add_argument("--clusters", type=int, nargs=2, default=[5, 5])
    parser.add_argument("--moving", action="store_true", help="all groups commit anew between two plans")
    given = parser.parse_args()
    second = []
    for partitions, groups, clusters in zip(given.partitions, given.groups, given.clusters, strict=True):
        commits = clusters * groups * TOPICS_A_GROUP * PARTITIONS_A_TOPIC
        with (
            tempfile.TemporaryDirectory() as name,
            fleet(Path(name), partitions, groups, clusters, moving=given.moving) as served,
        ):
            for which in ("first", "second"):
                found = planned(Path(name), served, "--spark", "--master", given.master)
                print(
                    f"{commits:>12,} commits of {clusters * partitions:,} partitions, {which} plan: {found}", flush=True
                )
            second.append((commits, found))
    (few, less), (many, more) = second
    ratios = ", ".join(f"{name} x {more[name] / less[name]:.2f}" for name in ("seconds", "cpu_s", "client_mib"))
    print(f"the second plans, of {many / few:.0f} times as many commits: {ratios}")


if __name__ == "__main__":
    main()
