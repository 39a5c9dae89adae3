"""What errors of all packages share: a base class, and hints."""

from __future__ import annotations

from typing import TypeVar

_Error = TypeVar("_Error", bound=Exception)


class Refusal(Exception):  # noqa: N818  (what it is, not what went wrong)
    """The operation must not proceed, and was not begun: nothing was changed (exit 6)."""


def hinted(error: _Error, hint: str) -> _Error:
    """Return an error with a hint of its own for terminals, unless it has one. Empty: its text says what to do."""
    vars(error).setdefault("hint", hint)
    return error
