"""Groups of commands that load fast. This module imports little, as ``kretain --help`` waits for it."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class QuickGroup(TyperGroup):
    """A group of commands whose own --help option costs nothing if it is not given."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option with a default: otherwise Typer loads pydantic only to convert None to None."""
        found = super().get_help_option(ctx)
        if found is not None:
            found.default = False
        return found
