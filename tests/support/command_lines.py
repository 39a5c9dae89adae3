"""Command lines as the command parses them, without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from kretain.app import app


def parse(words: Sequence[str]) -> None:
    """Parse what comes after ``kretain``: unknown commands and options, and missing arguments, raise."""
    command: Any = typer.main.get_command(app)
    name, context = "kretain", None
    while hasattr(command, "resolve_command"):
        context = command.make_context(name, list(words), parent=context)
        _, rest, _ = command.make_parser(context).parse_args(list(words))
        if not rest and command.invoke_without_command:
            return
        name, command, words = command.resolve_command(context, rest)
    command.make_context(name, list(words), parent=context)
