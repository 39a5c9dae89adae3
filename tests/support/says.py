"""What a text must say, and what it must not."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.world import Cli


def says(text: str, *parts: str, never: Iterable[str] = ()) -> None:
    """Fail where a text lacks one of these parts, or has one that it must never have."""
    missing, wrong = [one for one in parts if one not in text], [one for one in never if one in text]
    assert (missing, wrong) == ([], []), f"lacks {missing}, has {wrong}:\n{text}"


def refuses(done: Cli, *parts: str, never: Iterable[str] = ()) -> None:
    """Fail unless a command printed nothing, exited with 1, and gave its reason in one line, of which these are parts."""
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1), f"exit {done.code}\n{done.out}\n{done.err}"
    says(done.err, *parts, never=never)
