"""Progress on stderr: lines that keep moving in a terminal, nothing in a pipe.

The first line appears before Kafka's client is imported, so nothing slow may be imported here.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from kretain import BEGAN
from kretain.system import stdio
from retention_cli.core.printable import printable
from retention_cli.core.progress import Progress

FIRST_S: Final = 0.1
"""No line before the process has run this long (s): most commands without a cluster are done by then."""
EVERY_S: Final = 0.1
_BAR: Final = 20
_MOST_LINES: Final = 15
_WORKING: Final = "working"


class _Task(NamedTuple):
    phase: str
    done: int
    total: int | None
    began: float


class _Screen:
    """Lines at the end of what the terminal shows, one per name; erased before anything else is written there."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._tasks: dict[str, _Task] = {}
        self._lines = 0
        self._hidden = False
        """stdout has its result: draw nothing until there is more to wait for."""
        self._in_line = False
        """A question waits in the last line."""
        self._ended = threading.Event()

    def report(self, name: str, phase: str, done: int = 0, total: int | None = None) -> None:
        before = self._tasks.get(name)
        self._tasks[name] = _Task(
            phase, done, total, (before.began if before is not None and before.phase == phase else time.monotonic())
        )
        self._hidden = False

    @contextlib.contextmanager
    def named(self, name: str) -> Iterator[Progress]:
        """Yield the progress of one of several clusters, which has a line of its own."""
        self.report(name, "connecting")
        try:
            yield functools.partial(self.report, name)
        finally:
            self._tasks.pop(name, None)

    def run(self) -> None:
        self._ended.wait(FIRST_S - (time.monotonic() - BEGAN))
        while not self._ended.is_set():
            self._draw()
            self._ended.wait(EVERY_S)

    def end(self) -> None:
        with self._lock:
            self._ended.set()
            self._replace([])

    def make_room(self, number: int, some: bytes) -> None:
        """Erase the lines before something is written (:data:`stdio.before_write`): a pipe may end in this terminal."""
        with self._lock:
            self._replace([])
            self._hidden = self._hidden or number == 1
            self._in_line = not some.endswith(b"\n")

    def _draw(self) -> None:
        with self._lock:
            if self._hidden or self._in_line or self._ended.is_set():
                return
            columns, rows = shutil.get_terminal_size()
            tasks = list(self._tasks.items())
            shown = [(name, one) for name, one in tasks if name] or tasks
            most = max(1, min(rows - 2, _MOST_LINES))
            now = time.monotonic()
            frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if (sys.stderr.encoding or "").lower() in ("utf-8", "utf8") else "|/-\\"
            frame = frames[int(now / EVERY_S) % len(frames)]
            lines = [f"{frame} {_text(name, one, now)}"[: columns - 1] for name, one in shown[:most]]
            if len(shown) > most:
                lines[-1] = f"{frame} and {len(shown) - most + 1:,} more"
            self._replace(lines)

    def _replace(self, lines: Sequence[str]) -> None:
        """Erase the lines, and draw these in their place: without wrapping, so that a wide character adds no line."""
        drawn = "\x1b[?7l" + "\n".join(lines) + "\x1b[?7h" if lines else ""
        if self._lines or lines:
            erased = "\r" + "\x1b[A" * (self._lines - 1) + "\x1b[J"
            with contextlib.suppress(OSError):  # the terminal was closed: SIGHUP ends the command
                os.write(2, (erased + drawn).encode(sys.stderr.encoding or "utf-8", "kretain"))
        self._lines = len(lines)


def _text(name: str, task: _Task, now: float) -> str:
    """Return a line: a cluster's name, the phase, a bar and the count, the rate, and the time so far and to go."""
    done, total, seconds = task.done, task.total or 0, now - task.began
    full = min(_BAR, _BAR * done // total) if total else 0
    timed = seconds >= 1
    return "  ".join(
        text
        for text in (
            printable(f"{name}: {task.phase}" if name else task.phase),
            total and "━" * full + "╌" * (_BAR - full),
            f"{done:,}/{total:,}" if total else done and f"{done:,}",
            timed and done and f"{done / seconds:,.0f}/s",
            timed and _clock(seconds),
            timed and 0 < done < total and f"{_clock(seconds / done * (total - done))} left",
        )
        if text
    )


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


_screen: Final = _Screen()
"""A process has one terminal. What is reported before :func:`begin` or after :func:`still` is not drawn."""


def begin() -> None:
    """Show that kretain is at work, if stderr is a terminal: once in a process, and not with ``--quiet``."""
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        doing(_WORKING)
        stdio.before_write = _screen.make_room
        threading.Thread(target=_screen.run, name="kretain-progress", daemon=True).start()


def still() -> None:
    """Show no progress from here on: the command prints lines of its own, or has ended."""
    _screen.end()
    stdio.before_write = None


def doing(phase: str) -> None:
    """Show what the command does now."""
    _screen.report("", phase)


@contextlib.contextmanager
def shown() -> Iterator[Progress]:
    """Yield a progress that shows its reports, if the process has begun to show any."""
    yield functools.partial(_screen.report, "")
    doing(_WORKING)


@contextlib.contextmanager
def shown_by_name() -> Iterator[Callable[[str], contextlib.AbstractContextManager[Progress]]]:
    """Yield a function that returns, for a cluster's name, a context manager with a progress line of its own."""
    yield _screen.named
    doing(_WORKING)
