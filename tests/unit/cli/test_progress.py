"""What scripts and terminals see meanwhile and at last: progress, and errors as one line of JSON (docs/errors.md)."""

from __future__ import annotations

import ast
import json
import re
import sys
import time
from pathlib import Path
from typing import Any, get_args

import html5lib
import pytest

import kretain
from kretain import errors as exits
from kretain.api.errors import ErrorCode, translated
from kretain.api.values import Origin, Result, plan_value
from kretain.config import ConfigError
from kretain.error_codes import CODES, choose, code_of
from retention_cli import __version__
from retention_cli.archive.layout import DamagedError
from retention_cli.brokers.errors import (
    BrokerError,
    RequestFailedError,
    SettingsError,
    UnauthorizedError,
    UnreachableError,
)
from retention_cli.core.extras import MissingPartError
from retention_cli.core.files import FileError
from retention_cli.core.model import Reason
from retention_cli.core.state_dir import LockedError, StateError
from retention_cli.disks.inventory.format import InventoryError
from retention_cli.engines.spark.session import SparkError
from retention_cli.plan.saved import SavedPlanError
from retention_cli.policy.errors import PolicyError, PolicyProblem
from retention_cli.policy.fleet_file import FleetFileError
from retention_cli.policy.load import load_policy
from retention_cli.policy.selection import NothingMatchesError
from retention_cli.reports.ledger import NotRememberedError
from retention_cli.trim.batches import RefusedError
from retention_cli.trim.run import PlanRefusedError
from tests.support.plans import HOLD, KEEP, plan as plan_of
from tests.support.says import says
from tests.support.terminal import Terminal
from tests.support.world import run_cli

NOWHERE = ("-b", "127.0.0.1:1", "--timeout", "30s")
DOCTOR = ("-m", "kretain", "doctor", "-b", "127.0.0.1:1", "--timeout", "1s")
COMMANDS = {
    "plan": ("plan", "x", "--older-than", "1d"),
    "trim": ("trim", "x", "--older-than", "1d"),
    "offsets": ("offsets",),
    "doctor": ("doctor",),
    "explain": ("explain", "x:0", "--older-than", "1d"),
    "profile": ("profile", "x"),
    "groups": ("groups",),
    "disk": ("disk",),
    "restore": ("restore", "x", "--to", "y", "--from", "."),
    "archive": ("archive", "list", "./"),
    "report": ("report", "--out", "/dev/null"),
}
FRAME = re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] ([a-z][^\x1b]*)")


def environ(tmp_path: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}


def ended(where: Path, *words: str, code: int = 1, columns: int = 80, **variables: str) -> Terminal:
    """Run Python with these arguments in a terminal; return it once it has ended with this exit code."""
    command = [sys.executable, *words]
    with Terminal(command, environ={**environ(where), **variables}, columns=columns) as terminal:
        assert terminal.wait() == code, terminal.text
    return terminal


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_terminal_shows_progress_before_anything_slow(command: tuple[str, ...], tmp_path: Path) -> None:
    with Terminal([sys.executable, "-m", "kretain", *command, *NOWHERE], environ=environ(tmp_path)) as terminal:
        assert "127.0.0.1" not in terminal.read_until("working"), "before it connects"


def test_refused_cluster_fails_within_seconds_while_progress_moves(tmp_path: Path) -> None:
    began = time.monotonic()
    shown = ended(tmp_path, "-m", "kretain", "doctor", *NOWHERE).shown
    assert 3 <= time.monotonic() - began < 29, "it neither gave up at once nor waited for the time-out"
    assert len([one for one in FRAME.findall(shown) if one.startswith("connecting to 127.0.0.1:1")]) > 10
    end = shown.rpartition("\x1b[J")[2]
    assert end.startswith("kretain: 127.0.0.1:1 could not be reached within 3 s: connection refused\r\n")
    assert FRAME.search(end) is None, "nothing is drawn over the error"


def test_quiet_terminal_shows_no_progress(tmp_path: Path) -> None:
    assert ended(tmp_path, *DOCTOR, "--quiet").shown.startswith("kretain: 127.0.0.1:1 could not be reached within 1 s")


def test_pipe_shows_no_progress() -> None:
    done = run_cli("doctor", "-b", "127.0.0.1:1", "--timeout", "1s")
    assert done.err == "kretain: 127.0.0.1:1 could not be reached within 1 s: connection refused\n"


DRAWN = """
import sys, time
from kretain.system import stdio
stdio.prepare()
from kretain.render import progress
progress.begin()
with progress.shown(quiet=False) as report:
    report("reading offsets", 500, 2000)
    time.sleep(1.5)
    print("a warning", file=sys.stderr)
    time.sleep(0.3)
    print("question? ", end="", file=sys.stderr, flush=True)
    time.sleep(0.4)
    print(file=sys.stderr)
with progress.shown_by_name(quiet=False) as named, named("eu") as eu, named("us"):
    eu("groups", 3)
    time.sleep(0.4)
print("result")
time.sleep(0.4)
progress.still()
"""


def test_progress_makes_room_for_output_and_questions(tmp_path: Path) -> None:
    shown = ended(tmp_path, "-c", DRAWN, code=0).shown
    says(
        shown,
        "reading offsets  ━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  500/2,000",
        "\r\x1b[Ja warning\r\n",  # the line is erased before a warning
        "question? \r\n",  # nothing is drawn behind a question
    )
    assert re.search(r"500/2,000  \d+/s  0:0[1-9]  0:\d\d left", shown)
    assert re.search(r"eu: groups  3\r\n. us: connecting", shown), "a line for each cluster"
    assert shown.endswith("\x1b[Jresult\r\n"), "after the result nothing is drawn"


def test_progress_without_utf8_is_ascii(tmp_path: Path) -> None:
    shown = ended(tmp_path, *DOCTOR, LANG="C", PYTHONIOENCODING="ascii").shown
    assert shown.isascii()
    assert re.search(r"[|/\\-] connecting to", shown)


PAGE = Path(__file__).parents[3] / "docs" / "errors.md"
PROBLEMS = [PolicyProblem("p.yaml", 1, "key", "is wrong"), PolicyProblem("p.yaml", 2, "", "so\nis this")]


def of_json(text: str) -> dict[str, Any]:
    """Return the one error of a text, which is its one line."""
    assert text.count("\n") == 1, text
    found: dict[str, Any] = json.loads(text)["error"]
    return found


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
    found = of_json(capsys.readouterr().err)
    assert found["text"]
    kind = CODES[code]
    assert list(found.items()) == [
        ("exit", int(exits.exit_code_for(error))),
        ("code", code),
        ("text", found["text"]),
        ("hint", kind.hint),
        ("docs", kind.docs),
    ]
    assert code_of(error) == code


def test_error_after_a_delete_has_the_commands_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    choose([], {"KRETAIN_ERRORS": "json"})
    exits.report(UnreachableError("gone"), 0, exit_code=exits.Exit.PARTIAL, deletions="run r: 3 records trimmed")
    found = of_json(capsys.readouterr().err)
    said = (5, "unreachable", "gone; before that: run r: 3 records trimmed")
    assert (found["exit"], found["code"], found["text"]) == said


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
        (["plan", "--errors", "json", "--no-policy"], "usage", "no policy: give"),
        (["policy", "check", "--errors", "json", "nowhere.yaml"], "policy", "nowhere.yaml: cannot be read"),
        (["plan", "-p", "nowhere.yaml", "--errors", "json", "-b", "x:1"], "policy", "nowhere.yaml: cannot be read"),
        (["show", "--errors", "json", "nowhere.json"], "plan-file", "nowhere.json cannot be read"),
        (["context", "show", "no", "--errors", "json"], "config", "no context"),
    ],
    ids=str,
)
def test_commands_print_errors_as_json(arguments: list[str], code: str, text: str) -> None:
    done = run_cli(*arguments)
    found = of_json(done.err)
    assert (done.out, found["exit"], found["code"]) == ("", done.code, code)
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
    ("arguments", "code", "lines"),
    [
        (["plan", "--bogus"], 2, ["kretain: no such option: --bogus", "  hint: see kretain plan --help"]),
        (["plan"], 2, ["kretain: no policy: give -p FILE", "  hint: see kretain plan --help"]),
        (["policy", "show"], 2, ["kretain: missing argument 'TOPIC'", "  hint: see kretain policy show --help"]),
        (
            ["policy", "check", "nowhere.yaml"],
            1,
            ["kretain: nowhere.yaml: cannot be read", "kretain policy check lists them again · docs/policy.md"],
        ),
        (["history", "--run", "x"], 1, ["kretain: there is no run 'x'", "  hint: check --state-dir · docs/memory.md"]),
    ],
    ids=lambda one: " ".join(one[:2]) if isinstance(one, list) else None,
)
def test_terminal_shows_a_hint_and_a_page(arguments: list[str], code: int, lines: list[str], tmp_path: Path) -> None:
    says(ended(tmp_path, "-m", "kretain", *arguments, code=code, columns=200).text, *lines)


# -- the Python API without a cluster: its names, its errors by kind, and a plan in a notebook --

STUB = Path(kretain.__file__).with_suffix(".pyi")


def test_module_lists_its_api_and_nothing_private() -> None:
    names = dir(kretain)
    assert [name for name in names if name.startswith("_")] == ["__version__"]
    assert kretain.__version__ == __version__
    assert [name for name in names if getattr(kretain, name) is None] == []
    stub = {
        alias.asname
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert stub == {*names} - {"__version__"}
    assert not hasattr(kretain, "no_such_name")


def test_error_codes_are_those_of_the_command() -> None:
    assert set(get_args(ErrorCode)) == CODES.keys()


@pytest.mark.parametrize(
    ("error", "kind", "code", "exit_code"),
    [
        (UnreachableError("x"), kretain.UnreachableError, "unreachable", 1),
        (UnauthorizedError("x"), kretain.UnauthorizedError, "unauthorized", 1),
        (StateError("x"), kretain.StateError, "state", 1),
        (LockedError("x"), kretain.LockedError, "locked", 6),
        (RefusedError([Reason("G6", "x")]), kretain.RefusedError, "refused", 6),
        (MissingPartError("x"), kretain.KretainError, "missing-part", 1),
    ],
)
def test_error_is_raised_by_its_kind_with_code_and_cause(
    error: Exception, kind: type[kretain.KretainError], code: str, exit_code: int
) -> None:
    with pytest.raises(kretain.KretainError) as raised, translated():
        raise error
    assert (type(raised.value), raised.value.code, raised.value.exit_code, raised.value.__cause__) == (
        kind,
        code,
        exit_code,
        error,
    )


def test_every_problem_of_a_policy_is_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\nnonsense: 1\nmore: 2\ntopics: [{match: t}]\n")
    with pytest.raises(kretain.PolicyError) as raised, translated():
        load_policy(tmp_path / "p.yaml")
    assert len(raised.value.problems) == 2


def test_bug_is_not_disguised_as_an_error_of_the_api() -> None:
    with pytest.raises(ZeroDivisionError), translated():
        raise ZeroDivisionError


def test_plan_is_iterable_and_a_notebook_shows_it_escaped() -> None:
    reason = Reason("F2", "group <script>alert(1)</script> & \x1b[2J has no commit")
    rows = [HOLD._replace(partition=number, reasons=(reason,)) for number in range(50)]
    rows += [KEEP._replace(partition=number) for number in range(50, 53)]
    plan = plan_value(Origin(plan_of(*rows), None, None))
    assert ([row.action for row in plan], len(plan)) == (["hold"] * 50 + ["keep"] * 3, 53)
    html = plan._repr_html_()
    root = html5lib.parse(html, treebuilder="etree", namespaceHTMLElements=False)
    tags = [one.tag for one in root.iter()]
    assert ({name for one in root.iter() for name in one.attrib}, tags.count("tr")) == (set(), 41)
    assert "script" not in tags
    says("".join(root.itertext()), "<script>alert(1)</script> & ", "and 10 more", "0 trim, 3 keep, 50 hold, 0 skip")
    assert "\x1b" not in html


def test_result_is_a_sequence_of_read_only_rows_with_exact_integers() -> None:
    rows: list[dict[str, object]] = [{"topic": "t", "offset": 2**53 + 1}, {"topic": "u", "offset": None}]
    found = Result({"format": "kretain.offsets/v1"}, "partitions", rows, [Reason("F6", "x")])
    assert ([row["offset"] for row in found], len(found), found[-1]["topic"], found.notes[0].code) == (
        [2**53 + 1, None],
        2,
        "u",
        "F6",
    )
    with pytest.raises(TypeError):
        found[0]["topic"] = "v"  # type: ignore[index]
    assert found.to_dict() == {"format": "kretain.offsets/v1", "partitions": rows}
    offsets = found.to_pandas()["offset"]
    assert (str(offsets.dtype), int(offsets[0])) == ("Int64", 2**53 + 1)
    assert repr(found) == "<kretain.Result kretain.offsets/v1: 2 partitions>"
