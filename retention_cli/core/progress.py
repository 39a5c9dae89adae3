"""The interface by which long work reports its progress, independent of the display."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives reports: the phase, how much of it is done, and the total (None: unknown)."""

    def __call__(self, phase: str, done: int = 0, total: int | None = None) -> None:
        """Receive one report. Called often, from any thread; it must be cheap."""
        ...


def silent(phase: str, done: int = 0, total: int | None = None) -> None:
    """Discard a report."""
    del phase, done, total
