"""Where code of the tests lies: helpers in tests/support, and no test module behind another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[2]
PROGRAMS = {"simulation", "kafka/faults", "mutants.py", "clients/python_client.py"}
"""What has tests, but runs by itself too: it keeps its modules together."""


def modules() -> list[Path]:
    return [path.relative_to(TESTS) for path in TESTS.rglob("*.py")]


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse((TESTS / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{one.name}" for one in node.names)


def test_helper_module_of_tests_lives_only_in_support() -> None:
    helpers = [
        str(path)
        for path in modules()
        if path.parts[0] != "support"
        and not path.name.startswith(("test_", "conftest", "__init__"))
        and not PROGRAMS & {str(path), *map(str, path.parents)}
    ]
    assert helpers == []


def test_test_module_is_never_imported_by_another_module() -> None:
    found = {
        str(path): name
        for path in modules()
        for name in imported(path)
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split("."))
    }
    assert found == {}
