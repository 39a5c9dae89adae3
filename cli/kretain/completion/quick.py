"""Groups of commands that load quickly. This module is light, since ``kretain --help`` waits for it."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class QuickGroup(TyperGroup):
    """A group of commands whose own --help option costs nothing where it isn't given."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return it with a default: otherwise Typer loads pydantic only to convert None to None."""
        found = super().get_help_option(ctx)
        if found is not None:
            found.default = False
        return found
