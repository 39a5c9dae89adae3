"""The base class of errors that any package may raise."""

from __future__ import annotations


class Refusal(Exception):  # noqa: N818  (what it is, not what went wrong)
    """The operation must not proceed, and was not begun: nothing was changed (exit 6)."""
