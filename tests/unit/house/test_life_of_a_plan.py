"""docs/architecture.md, The life of a plan: each function that it names exists, and the code leads from one to the next."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
FUNCTION: Final = re.compile(r"^[0-9]+\. `(?P<file>[a-z_/]+\.py):(?P<name>[\w.]+)`", re.MULTILINE)
SIDEWAYS: Final = {
    "PlanJob": "plan_now",
    "LocalPlanner.plan": "planner",
    "decide_all": "LocalPlanner.plan",
    "plan_of": "LocalPlanner.plan",
    "wanted": "Trimmer._round",
    "Trimmer._keep": "Trimmer._round",
    "Trimmer._send_all": "Trimmer._round",
    "carry_out": "trim",
}
"""Steps that are not reached from the step before, but from this one: it calls them one after the other."""


def section() -> str:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return page.partition("### The life of a plan")[2].partition("\n## ")[0]


def definition(file: str, name: str) -> ast.AST:
    found: ast.AST = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    for part in name.split("."):
        inside = [
            one
            for one in ast.iter_child_nodes(found)
            if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == part
        ]
        assert len(inside) == 1, f"{file} has no {name}"
        found = inside[0]
    return found


def names_in(node: ast.AST) -> set[str]:
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return names | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def walks() -> list[list[tuple[str, str]]]:
    """Return the lists of steps: each begins at a command."""
    lists: list[list[tuple[str, str]]] = []
    for step in FUNCTION.finditer(section()):
        if step["file"].startswith("cli/kretain/commands/"):
            lists.append([])
        lists[-1].append((step["file"], step["name"]))
    return lists


def test_documented_walk_leads_from_the_command_to_decide_and_delete() -> None:
    assert [(one[0][1], one[-1]) for one in walks()] == [
        ("plan", ("retention_cli/plan/make.py", "plan_of")),
        ("trim", ("retention_cli/brokers/deleter.py", "Deleter.delete")),
    ]
    assert ("retention_cli/decide/decision.py", "decide") in walks()[0]


def test_each_step_of_the_documented_walk_calls_the_next_one() -> None:
    planner = ("cli/kretain/flows/spark.py", "planner")
    for steps in walks():
        known = {name: definition(file, name) for file, name in [*steps, planner]}
        for (_, before), (_, name) in pairwise(steps):
            caller = SIDEWAYS.get(name, before)
            wanted = "LocalPlanner" if caller == "planner" else name.rpartition(".")[2]
            assert wanted in names_in(known[caller]), f"{caller} does not lead to {name}"


def test_every_caller_trims_a_plan_through_carry_out() -> None:
    for file in (
        "cli/kretain/commands/trim.py",
        "cli/kretain/flows/fleet_trim.py",
        "cli/kretain/api/cluster.py",
        "retention_cli/watch/one_pass.py",
    ):
        assert {"TrimJob", "carry_out"} <= names_in(ast.parse((ROOT / file).read_text(encoding="utf-8"))), file
