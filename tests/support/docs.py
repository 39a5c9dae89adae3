"""What the code says that the docs must have."""

from __future__ import annotations

import ast
from pathlib import Path

from retention_cli.decide.guards import GUARDS

ROOT = Path(__file__).parents[2]


def reason_codes() -> set[str]:
    """Return the codes that the engine gives reasons: literals, and the codes of guards that limit."""
    found: set[str] = {guard.code for guard in GUARDS}
    for path in (ROOT / "retention_cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                called = ast.unparse(node.func)
                if called.rpartition(".")[2] in ("Reason", "because") and isinstance(node.args[0].value, str):
                    found.add(node.args[0].value)
    return found
