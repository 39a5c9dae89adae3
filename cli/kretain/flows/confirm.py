"""Ask the user: before something is forgotten, changed or trimmed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence

from kretain.errors import RefusedError, tell


def must_confirm(
    question: Callable[[], str],
    what: str,
    nothing: str,
    *,
    yes: bool = False,
    show: Callable[[], None] | None = None,
    typed: Sequence[str] = (),
) -> None:
    """Ask before something is done that a script must allow by ``--yes``.

    Args:
        question: makes the question, if it is asked.
        what: what ``--yes`` is needed for without a terminal.
        nothing: what was not done if the answer is no.
        yes: don't ask.
        show: prints what the question is about, before an empty line; on stderr if stdout is redirected, as the result
            goes there.
        typed: names of clusters that want to be typed: their contexts say ``confirm: name``.

    Raises:
        RefusedError: the answer is not yes, or stdin or stderr is not a terminal.
    """
    if yes:
        return
    if not on_terminal():
        raise RefusedError(f"no terminal to ask on: pass --yes to {what}; {nothing}")
    if show is not None:
        with contextlib.nullcontext() if sys.stdout.isatty() else contextlib.redirect_stdout(sys.stderr):
            show()
        print(file=sys.stderr)
    try:
        if typed:
            tell(question())
            answered = all(answer(f"To continue, type the cluster's name, {name}:") == name for name in typed)
        else:
            answered = answer(f"{question()} [y/N] ").lower() in ("y", "yes")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(nothing) from None
    finally:
        print(file=sys.stderr)
    if not answered:
        raise RefusedError(f"not confirmed; {nothing}")


def on_terminal() -> bool:
    """Return whether there is a terminal to ask on."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def answer(prompt: str) -> str:
    """Ask on stderr; return the line that was typed."""
    tell(prompt, end=" ")
    return sys.stdin.readline().strip()
