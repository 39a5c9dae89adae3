"""What the code says that the docs must have, and command lines as the command parses them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from kretain.app import app
from retention_cli.core.model import Code
from retention_cli.decide.guards import GUARDS

ROOT = Path(__file__).parents[2]


def reason_codes() -> set[str]:
    """Return the codes that the engine gives reasons: literals, and the codes of guards that limit."""
    found: set[str] = {guard.code for guard in GUARDS}
    for path in (ROOT / "retention_cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] not in ("Reason", "because"):
                continue
            match node.args[:1]:
                case [ast.Constant(str(code))]:
                    found.add(code)
                case [ast.Attribute(ast.Name("Code"), code)]:
                    found.add(Code[code])
    return found


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
