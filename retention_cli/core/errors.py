"""What every room's errors may be, besides their own kind."""

from __future__ import annotations


class Refusal(Exception):  # noqa: N818  (what it is, not what went wrong)
    """What was asked for must not go ahead, and was not begun: nothing was changed (exit 6)."""
