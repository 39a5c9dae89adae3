"""How long work tells how far it is, without knowing who looks."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Is told what is being done, and how much of how much is done (None: how much is not known)."""

    def __call__(self, phase: str, done: int = 0, total: int | None = None) -> None:
        """Take one report. Called often, from any thread; it must be cheap."""
        ...


def silent(phase: str, done: int = 0, total: int | None = None) -> None:
    """Tell nobody."""
    del phase, done, total
