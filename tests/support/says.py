"""What a test looks at: what a text, an error or a decision says, and rows that a command prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import pytest

from retention_cli.core.model import Decision
from tests.support.world import Cli, World, codes


def says(text: str, *parts: str, never: Iterable[str] = ()) -> None:
    """Fail where a text lacks one of these parts, or has one that it must never have."""
    missing, wrong = [one for one in parts if one not in text], [one for one in never if one in text]
    assert (missing, wrong) == ([], []), f"lacks {missing}, has {wrong}:\n{text}"


def refuses(done: Cli, *parts: str, never: Iterable[str] = ()) -> None:
    """Fail unless a command printed nothing, exited with 1, and gave its reason in one line, of which these are parts."""
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1), f"exit {done.code}\n{done.out}\n{done.err}"
    says(done.err, *parts, never=never)


E = TypeVar("E", bound=Exception)


def raised(kind: type[E], call: Callable[..., object], /, *arguments: Any, **named: Any) -> E:
    """Call with these arguments, which must raise such an error; return it."""
    with pytest.raises(kind) as caught:
        call(*arguments, **named)
    return caught.value


def refusal(kind: type[Exception], call: Callable[..., object], /, *arguments: Any, **named: Any) -> str:
    """Call with these arguments, which must raise such an error; return its text."""
    return str(raised(kind, call, *arguments, **named))


def pick(value: Any, *names: str) -> tuple[Any, ...]:
    """Return these attributes of a value, or what a row has under these keys."""
    return tuple(value[name] if isinstance(value, Mapping) else getattr(value, name) for name in names)


def held(decision: Decision, *expected: str) -> str:
    """Assert that a decision holds for exactly these codes; return its first reason."""
    assert (decision.action, codes(decision)) == ("hold", set(expected)), decision
    return decision.reasons[0].text


def said(row: Mapping[str, Any]) -> str:
    """Return the codes and texts of a row's reasons."""
    return " | ".join(f"{reason['code']} {reason['text']}" for reason in row["reasons"])


def json_of(world: World, *arguments: str, check: int | None = 0, **environ: str) -> Any:
    return world.cli(*arguments, "-o", "json", check=check, **environ).json()


def rows_of(world: World, *arguments: str, check: int | None = 0, **environ: str) -> dict[str, Any]:
    """Return the last partition's row of each topic, as a command prints it."""
    return {row["topic"]: row for row in json_of(world, *arguments, check=check, **environ)["partitions"]}
