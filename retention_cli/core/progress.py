"""The interface by which long work reports its progress, independent of the display."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """Receives reports: the phase, how much of it is done, and the total (None: unknown)."""

    def __call__(self, phase: str, done: int = 0, total: int | None = None) -> None:
        """Receive one report. Called often, from any thread; it must be cheap."""
        ...


def silent(phase: str, done: int = 0, total: int | None = None) -> None:
    """Discard a report."""
    del phase, done, total


def adding(progress: Progress, phase: str, total: int) -> Callable[[int], None]:
    """Return what adds to the work done, and shows it; at most the total."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        progress(phase, min(done, total), total)

    add(0)
    return add
