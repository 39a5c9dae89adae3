"""A line of the loop's log: its text, and what programs read of it (docs/watch.md, The log as JSON)."""

from __future__ import annotations

from typing import Protocol


class Say(Protocol):
    """Prints a line. ``event`` is what kind of line it is, ``facts`` are the other keys that it has as JSON."""

    def __call__(self, text: str, event: str = "note", /, **facts: object) -> None:
        """Print it."""
