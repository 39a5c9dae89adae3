"""Errors for scripts: one line of JSON, for every kind of error, with a code that docs/errors.md lists."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from kretain import errors as exits
from kretain.config import ConfigError
from kretain.error_codes import CODES, choose, code_of
from retention_cli.archive.layout import DamagedError
from retention_cli.audit.lock import LockedError
from retention_cli.brokers.errors import (
    BrokerError,
    RequestFailedError,
    SettingsError,
    UnauthorizedError,
    UnreachableError,
)
from retention_cli.core.extras import MissingPartError
from retention_cli.core.files import FileError
from retention_cli.core.state_dir import StateError
from retention_cli.disks.inventory.format import InventoryError
from retention_cli.engines.spark.session import SparkError
from retention_cli.plan.saved import SavedPlanError
from retention_cli.policy.errors import PolicyError, PolicyProblem
from retention_cli.policy.fleet_file import FleetFileError
from retention_cli.policy.selection import NothingMatchesError
from retention_cli.reports.ledger import NotRememberedError
from retention_cli.trim.run import PlanRefusedError
from tests.support.terminal import Terminal
from tests.support.world import run_cli

PAGE = Path(__file__).parents[3] / "docs" / "errors.md"
PROBLEMS = [PolicyProblem("p.yaml", 1, "key", "is wrong"), PolicyProblem("p.yaml", 2, "", "so\nis this")]


@pytest.fixture(autouse=True)
def _text_again() -> object:
    yield
    choose([], {})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (exits.UsageError("x"), "usage"),
        (PolicyError(PROBLEMS), "policy"),
        (FleetFileError(PROBLEMS), "fleet-file"),
        (ConfigError("x"), "config"),
        (SettingsError("x"), "settings"),
        (NothingMatchesError("x"), "nothing-matches"),
        (UnreachableError("x"), "unreachable"),
        (UnauthorizedError("x"), "unauthorized"),
        (BrokerError("x"), "request"),
        (RequestFailedError("x", retriable=True), "request"),
        (SavedPlanError("x"), "plan-file"),
        (InventoryError("x"), "inventory"),
        (DamagedError("x"), "archive"),
        (StateError("x"), "state"),
        (LockedError("x"), "locked"),
        (PlanRefusedError("x"), "refused"),
        (exits.RefusedError("x"), "refused"),
        (MissingPartError("x"), "missing-part"),
        (SparkError("x"), "spark"),
        (FileError("x"), "output"),
        (NotRememberedError("x"), "failed"),
        (KeyboardInterrupt(), "interrupted"),
        (ZeroDivisionError("x"), "internal"),
        (PermissionError("x"), "internal"),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_every_error_is_reported_in_one_line_with_its_code(
    error: BaseException, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    choose(["plan", "--errors", "json"], {})
    exits.report(error, 0)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    found = json.loads(said)["error"]
    assert list(found) == ["exit", "code", "text", "hint", "docs"]
    assert (found["exit"], found["code"]) == (int(exits.exit_code_for(error)), code)
    assert found["text"]
    assert (found["hint"], found["docs"]) == (CODES[code].hint, CODES[code].docs)
    assert code_of(error) == code


def test_error_after_a_delete_has_the_commands_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    choose([], {"KRETAIN_ERRORS": "json"})
    exits.report(UnreachableError("gone"), 0, exit_code=exits.Exit.PARTIAL, deeds="run r: 3 records trimmed")
    found = json.loads(capsys.readouterr().err)["error"]
    assert (found["exit"], found["code"]) == (5, "unreachable")
    assert found["text"] == "gone; before that: run r: 3 records trimmed"


@pytest.mark.parametrize(
    ("arguments", "variable", "wanted"),
    [
        (["plan", "--errors", "json"], None, True),
        (["--errors=json", "plan"], None, True),
        (["plan"], "json", True),
        (["plan", "--errors", "text"], "json", False),
        (["plan", "--", "--errors", "json"], None, False),
        (["plan", "--errors"], None, False),
    ],
)
def test_error_format_is_found_on_an_invalid_command_line(
    arguments: list[str], variable: str | None, wanted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    choose(arguments, {} if variable is None else {"KRETAIN_ERRORS": variable})
    exits.report(StateError("x"), 0)
    assert capsys.readouterr().err.startswith('{"error"') is wanted


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["plan", "--bogus", "--errors", "json"], "usage", "no such option: --bogus"),
        (["--errors", "json", "plam"], "usage", "no such command 'plam'; did you mean plan?"),
        (["plan", "--errors", "json", "--no-policy"], "usage", "there is no policy"),
        (["policy", "check", "--errors", "json", "nowhere.yaml"], "policy", "nowhere.yaml: cannot be read"),
        (["plan", "-p", "nowhere.yaml", "--errors", "json", "-b", "x:1"], "policy", "nowhere.yaml: cannot be read"),
        (["show", "--errors", "json", "nowhere.json"], "plan-file", "nowhere.json cannot be read"),
        (["context", "show", "no", "--errors", "json"], "config", "there is no context"),
    ],
    ids=str,
)
def test_commands_print_errors_as_json(arguments: list[str], code: str, text: str) -> None:
    done = run_cli(*arguments)
    assert done.out == ""
    assert done.err.count("\n") == 1, done.err
    found = json.loads(done.err)["error"]
    assert (found["exit"], found["code"]) == (done.code, code)
    assert text in found["text"]
    assert found["hint"]


def test_errors_page_lists_every_code() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d+) \| (.+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(code, str(kind.exit), kind.what, kind.hint) for code, kind in CODES.items()]


def test_every_page_that_an_error_names_exists() -> None:
    for page in {kind.docs for kind in CODES.values()} - {None}:
        file, _, anchor = str(page).partition("#")
        titles = re.findall(r"^#+ (.+)$", (PAGE.parents[1] / file).read_text(encoding="utf-8"), re.MULTILINE)
        assert not anchor or anchor in {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in titles}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["plan", "x", "--older-than", "1d"], 2),
        (["doctor"], 2),
        (["plan"], 2),
        (["explain", "x"], 2),
        (["watch"], 2),
        (["policy", "show", "x"], 2),
        (["plan", "-p", "nowhere.yaml", "-b", "x:1"], 1),
        (["policy", "check", "nowhere.yaml"], 1),
        (["trim", "-p", "nowhere.yaml", "-b", "x:1"], 1),
        (["plan", "--context", "no"], 1),
        (["context", "show", "no"], 1),
        (["show", "nowhere.json"], 1),
    ],
    ids=str,
)
def test_same_kind_of_error_has_the_same_exit_code_everywhere(arguments: list[str], code: int) -> None:
    """What is not named at all is a usage error, a cluster like a policy; a name that leads nowhere is a failure."""
    done = run_cli(*arguments)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1), done.err
    assert done.err.startswith("kretain: ")


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["plan", "--bogus"], ["kretain: no such option: --bogus", "  hint: see kretain plan --help"]),
        (["plan"], ["kretain: there is no policy: give -p FILE", "  hint: see kretain plan --help"]),
        (["policy", "show"], ["kretain: missing argument 'TOPIC'", "  hint: see kretain policy show --help"]),
        (
            ["policy", "check", "nowhere.yaml"],
            ["kretain: nowhere.yaml: cannot be read", "kretain policy check lists them again · docs/policy.md"],
        ),
        (["history", "--run", "x"], ["kretain: there is no run 'x'", "  hint: check --state-dir · docs/memory.md"]),
    ],
    ids=lambda one: " ".join(one[:2]) if isinstance(one, list) else None,
)
def test_terminal_shows_a_hint_and_a_page(arguments: list[str], lines: list[str], tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(tmp_path)}
    with Terminal([sys.executable, "-m", "kretain", *arguments], environ=environ, columns=200) as terminal:
        assert terminal.wait() in (1, 2)
    assert all(line in terminal.text for line in lines), terminal.text
