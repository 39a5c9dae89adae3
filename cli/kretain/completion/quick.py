"""Groups of commands that open quickly. Light itself, since ``kretain --help`` waits for it."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class QuickGroup(TyperGroup):
    """A group of commands whose own --help option costs nothing where it isn't given."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return it with a default: Typer loads pydantic to make None of None."""
        found = super().get_help_option(ctx)
        if found is not None:
            found.default = False
        return found
