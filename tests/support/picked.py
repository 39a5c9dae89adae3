"""What tests look at in decisions, outcomes and rows: some of the fields at once, and why something is held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retention_cli.core.model import Decision
from tests.support.world import World, codes


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
    """Return what a command prints as JSON."""
    return world.cli(*arguments, "-o", "json", check=check, **environ).json()


def rows_of(world: World, *arguments: str, check: int | None = 0, **environ: str) -> dict[str, Any]:
    """Return the last partition's row of each topic, as a command prints it."""
    return {row["topic"]: row for row in json_of(world, *arguments, check=check, **environ)["partitions"]}
