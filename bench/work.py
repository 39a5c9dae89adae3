"""What a piece of work takes: wall and CPU seconds of this process and all below it, and Spark's jobs and stages."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


class Work:
    """Counts from one call of :meth:`since` to the next.

    Args:
        session: a local or standalone session: its jobs are counted.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._last = self._now()

    def since(self) -> dict[str, float]:
        """Return what was used since the last call, or since this was made."""
        now = self._now()
        found = {name: value - self._last[name] for name, value in now.items()}
        self._last = now
        return found

    def _now(self) -> dict[str, float]:
        store = self._session.sparkContext._jsc.sc().statusStore()  # noqa: SLF001  (PySpark has no other way)
        return {
            "seconds": time.perf_counter(),
            "cpu_s": tree_cpu_s(os.getpid()),
            "jobs": store.jobsList(None).size(),
            "stages": _stages_run(store),
        }


def _stages_run(store: Any) -> int:
    """Return how many stages ran: those whose shuffle files were still there are skipped."""
    jobs = store.jobsList(None)
    return sum(jobs.apply(n).numCompletedStages() for n in range(jobs.size()))


def tree_cpu_s(root: int) -> float:
    """Return the CPU seconds of a process and all below it, ended ones included."""
    parents, used = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat[1])
            used[int(folder.name)] = sum(map(int, stat[11:15]))  # its own, and those of children that have ended
    ticks, waiting = 0, [root]
    while waiting:
        one = waiting.pop()
        ticks += used.get(one, 0)
        waiting += [child for child, parent in parents.items() if parent == one]
    return ticks / os.sysconf("SC_CLK_TCK")
