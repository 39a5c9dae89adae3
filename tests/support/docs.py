"""What the code says that the docs must have."""

from __future__ import annotations

import ast
from pathlib import Path

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
