"""Progress on stderr: a bar in a terminal, nothing in a pipe, and nothing for what takes less than a second."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from retention_cli.progress import Progress, silent

_QUIET_SECONDS = 1.0


@contextlib.contextmanager
def shown(*, quiet: bool) -> Iterator[Progress]:
    """Give a progress whose reports are drawn, where somebody looks."""
    if quiet or not sys.stderr.isatty():
        yield silent
        return
    bar = _Bar()
    try:
        yield bar.report
    finally:
        bar.close()


class _Bar:
    """Draws the newest report. Nothing is imported or drawn within the first second."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._live: Any = None
        self._task: Any = None
        self._phase = ""
        self._closed = False

    def report(self, phase: str, done: int = 0, total: int | None = None) -> None:
        if self._live is None and time.monotonic() - self._began < _QUIET_SECONDS:
            return
        with self._lock:
            if self._closed:
                return
            if self._live is None:
                self._open()
            if phase != self._phase:  # another phase has a rate and an end of its own
                self._phase = phase
                self._live.reset(self._task, description=phase, completed=done, total=total)
            self._live.update(self._task, completed=done, total=total)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._live is not None:
                self._live.stop()

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            ProgressColumn,
            SpinnerColumn,
            Task,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress
        from rich.text import Text

        class Rate(ProgressColumn):
            """How many a second."""

            def render(self, task: Task) -> Text:
                return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="progress.data.speed")

        self._live = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            Rate(),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._live.add_task("", total=None)
        self._live.start()
