"""Let a Ctrl-C stop work cleanly, keeping what was done until then. A second one stops it at once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

from kretain.errors import tell
from retention_cli.core.units import format_duration


@contextlib.contextmanager
def ended_after(milliseconds: int | None) -> Iterator[None]:
    """Ask this process to stop, like SIGTERM, if the block takes longer than ``milliseconds``; None: no limit."""
    if milliseconds is None:
        yield
        return

    def ask(_number: int, _frame: object) -> None:
        tell(f"kretain: --deadline {format_duration(milliseconds)} is over")
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGALRM, ask)
    signal.setitimer(signal.ITIMER_REAL, max(1, milliseconds) / 1000)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT or SIGTERM was received."""
    asked = False

    def ask(_number: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # the parent process has the signal ignored
            signal.signal(number, ask)
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
