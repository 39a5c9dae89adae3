"""Progress on stderr: a bar in a terminal, nothing in a pipe, and nothing for work of less than a second."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from retention_cli.core.printable import printable
from retention_cli.core.progress import Progress, silent

_QUIET_SECONDS = 1.0


@contextlib.contextmanager
def shown(*, quiet: bool) -> Iterator[Progress]:
    """Yield a progress that draws its reports if stderr is a terminal and ``quiet`` is false."""
    with _bar(quiet=quiet) as bar:
        yield silent if bar is None else functools.partial(bar.report, "")


@contextlib.contextmanager
def shown_by_name(*, quiet: bool) -> Iterator[Callable[[str], contextlib.AbstractContextManager[Progress]]]:
    """Yield a function that returns, for a cluster's name, a context manager with a progress line of its own."""
    with _bar(quiet=quiet) as bar:
        if bar is None:
            yield lambda _name: contextlib.nullcontext(silent)
            return
        late = threading.Timer(_QUIET_SECONDS, bar.draw)  # a cluster that does not answer reports no progress
        late.daemon = True
        late.start()
        try:
            yield bar.named
        finally:
            late.cancel()


@contextlib.contextmanager
def _bar(*, quiet: bool) -> Iterator[_Bar | None]:
    if quiet or not sys.stderr.isatty():
        yield None
        return
    bar = _Bar()
    try:
        yield bar
    finally:
        bar.close()


class _Bar:
    """Draws the latest report of each name. Nothing is imported or drawn within the first second."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._live: Any = None
        self._latest: dict[str, tuple[str, int, int | None]] = {}
        self._tasks: dict[str, Any] = {}
        self._closed = False

    @contextlib.contextmanager
    def named(self, name: str) -> Iterator[Progress]:
        def report(phase: str, done: int = 0, total: int | None = None) -> None:
            self.report(name, f"{name}: {phase}", done, total)

        try:
            report("connecting")
            yield report
        finally:
            with self._lock:
                self._latest.pop(name, None)
                if (task := self._tasks.pop(name, None)) is not None and not self._closed:
                    self._live.remove_task(task)

    def report(self, name: str, phase: str, done: int = 0, total: int | None = None) -> None:
        phase = printable(phase)
        with self._lock:
            before, self._latest[name] = self._latest.get(name), (phase, done, total)
            if before is not None and before[0] != phase and name in self._tasks:  # it has its own rate and end
                self._live.reset(self._tasks[name])
        if self._live is not None or time.monotonic() - self._began >= _QUIET_SECONDS:
            self.draw(name)

    def draw(self, *names: str) -> None:
        """Draw the latest reports of these names, of all by default."""
        with self._lock:
            if self._closed:
                return
            if self._live is None:
                self._open()
            for name in self._latest.keys() & names if names else self._latest:
                phase, done, total = self._latest[name]
                if name not in self._tasks:
                    self._tasks[name] = self._live.add_task(phase, total=None)
                self._live.update(self._tasks[name], description=phase, completed=done, total=total)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._live is not None:
                self._live.stop()

    def _open(self) -> None:
        from rich import console, progress, text

        class Rate(progress.ProgressColumn):
            """The rate per second."""

            def render(self, task: progress.Task) -> text.Text:
                return text.Text(f"{task.speed:,.0f}/s" if task.speed else "", style="progress.data.speed")

        self._live = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=30),
            progress.MofNCompleteColumn(),
            Rate(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(compact=True),
            console=console.Console(stderr=True),
            transient=True,
        )
        self._live.start()
