"""Let a Ctrl-C stop work cleanly, keeping what was done until then. A second one stops it at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from kretain.errors import tell, warn
from retention_cli.core.units import format_duration

_TOGETHER_S: Final = 0.02
"""Signals within this time are one: less than until one that was lost is sent again."""
_LOST_S: Final = 1.0
"""How long the end of :meth:`Ending.heard` waits for a signal that is sent again."""


@contextlib.contextmanager
def ended_after(milliseconds: int | None) -> Iterator[None]:
    """Ask this process to stop, like SIGTERM, if the block takes longer than ``milliseconds``; None: no limit."""
    if milliseconds is None:
        yield
        return

    def ask(_number: int, _frame: object) -> None:
        warn(f"--deadline {format_duration(milliseconds)} has passed")
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGALRM, ask)
    signal.setitimer(signal.ITIMER_REAL, max(1, milliseconds) / 1000)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def end_if_stuck(alive: Callable[[], bool], code: Callable[[], int], every_s: float = 5.0) -> None:
    """End this process as by kill −9, from a thread, once it is no longer alive: a supervisor restarts it.

    A process that hangs can be neither asked to stop nor waited for.
    """

    def watch() -> None:
        while alive():
            time.sleep(every_s)
        tell("kretain: stuck for too long; exiting so that it can be restarted")
        os._exit(int(code()))

    threading.Thread(target=watch, name="kretain-watchdog", daemon=True).start()


class Together:
    """Tells two signals that come at once, as SIGTERM and SIGHUP from a supervisor, from two that someone sent.

    Of two at once Python would lose both where it ignores exceptions: the second one is raised in what handles that.
    """

    def __init__(self) -> None:
        self._at = -_TOGETHER_S

    def is_second(self) -> bool:
        """Return whether another signal came right before this one."""
        before, self._at = self._at, time.monotonic()
        return self._at - before < _TOGETHER_S


class Ending:
    """A daemon's end: the first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt, but not in what must be finished.

    There it waits until that is done. A second one always raises it at once. ``signal`` is the name of the last one.
    With ``holding``, everything within :meth:`heard` must be finished.

    One that was raised where Python ignores exceptions is sent again (``__main__.send_again``). It is still the first.
    """

    def __init__(self, *, holding: bool = False) -> None:
        self.signal = ""
        self._requested = False
        self._holding = holding
        self._lost = False
        self._noticed = False
        self._together = Together()

    @property
    def requested(self) -> bool:
        """Whether it is to end. For who has read that, no signal is sent again."""
        self._noticed |= self._requested
        return self._requested

    @contextlib.contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Finish this block before a signal takes effect."""
        if self.requested:  # by one that Python could not raise
            raise KeyboardInterrupt
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self.requested:  # not in place of an error
            raise KeyboardInterrupt

    def _hear(self, number: int, _frame: object) -> None:
        if self._together.is_second():
            return
        again, self._lost = self._lost, False
        if again and self._noticed:
            return
        before, self._requested = self._requested and not again, True
        if not again:
            self.signal = signal.Signals(number).name
        if before or not self._holding:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def heard(self) -> Iterator[Ending]:
        """Listen for SIGINT, SIGTERM and SIGHUP in this block, unless the parent process has them ignored."""
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        ignored = sys.unraisablehook

        def lose(lost: Any) -> None:
            self._lost |= issubclass(lost.exc_type, KeyboardInterrupt)
            ignored(lost)

        for number, was in before.items():
            if was != signal.SIG_IGN:
                signal.signal(number, self._hear)
        sys.unraisablehook = lose
        try:
            yield self
        finally:
            self._noticed = True
            until = time.monotonic() + _LOST_S
            while self._lost and time.monotonic() < until:
                time.sleep(0.01)
            sys.unraisablehook = ignored
            for number, was in before.items():
                signal.signal(number, was)
