"""What scripts and terminals see: progress, errors as one line, and an exit code that says what was done."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import html5lib
import pytest
import yaml

import kretain
from kretain import errors as exits
from kretain.api.errors import ErrorCode, translated
from kretain.api.values import Origin, Result, plan_value
from kretain.config import ConfigError
from kretain.errors import CODES, Deletions, Exit, choose, code_of
from kretain.options.common import guarded
from kretain.render import output
from kretain.system import stdio
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
from tests.support.docs import ROOT
from tests.support.plans import HOLD, KEEP, plan as plan_of
from tests.support.says import pick, says
from tests.support.terminal import CLOSED, FULL, UNREAD, Terminal, run_into
from tests.support.world import run_cli, written

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
    terminal = Terminal([sys.executable, *words], environ={**environ(where), **variables}, columns=columns)
    terminal.end(code=code)
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
with progress.shown() as report:
    report("reading offsets", 500, 2000)
    time.sleep(1.5)
    print("a warning", file=sys.stderr)
    time.sleep(0.3)
    print("question? ", end="", file=sys.stderr, flush=True)
    time.sleep(0.4)
    print(file=sys.stderr)
with progress.shown_by_name() as named, named("eu") as eu, named("us"):
    eu("groups", 3)
    time.sleep(0.4)
print("result", flush=True)
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


def test_progress_makes_room_for_a_pipe_that_ends_in_the_same_terminal(tmp_path: Path) -> None:
    (tmp_path / "drawn.py").write_text(DRAWN)
    terminal = Terminal(["sh", "-c", f"{sys.executable} {tmp_path / 'drawn.py'} | cat"], environ=environ(tmp_path))
    terminal.end()
    assert terminal.shown.endswith("\x1b[Jresult\r\n"), "the lines are erased before the result, and drawn no more"


def test_progress_without_utf8_is_ascii(tmp_path: Path) -> None:
    shown = ended(tmp_path, *DOCTOR, LANG="C", PYTHONIOENCODING="ascii").shown
    assert shown.isascii()
    assert re.search(r"[|/\\-] connecting to", shown)


PROBLEMS = [PolicyProblem("p.yaml", 1, "key", "is wrong"), PolicyProblem("p.yaml", 2, "", "so\nis this")]


def of_json(text: str) -> dict[str, Any]:
    """Return the one error of a text, which is its one line."""
    assert text.count("\n") == 1, text
    return json.loads(text)["error"]  # type: ignore[no-any-return]


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
    assert pick(found, "exit", "code", "text") == (5, "unreachable", "gone; before that: run r: 3 records trimmed")


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
        (
            ["policy", "check", "--errors", "json", "nowhere.yaml"],
            "policy",
            "nowhere.yaml: cannot be read: No such file",
        ),
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
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \| (\d+) \| (.+) \| (.+) \|$", page, re.MULTILINE) == [
        (code, str(kind.exit), kind.what, kind.hint) for code, kind in CODES.items()
    ]


def test_every_page_that_an_error_names_exists() -> None:
    for page in {kind.docs for kind in CODES.values()} - {None}:
        file, _, anchor = str(page).partition("#")
        titles = re.findall(r"^#+ (.+)$", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
        assert not anchor or anchor in {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in titles}


@pytest.mark.parametrize(
    ("arguments", "code", "lines"),
    [
        (["plan", "--bogus"], 2, ["kretain: no such option: --bogus", "  hint: see kretain plan --help"]),
        (["plan"], 2, ["kretain: no policy: give -p FILE", "  hint: see kretain plan --help"]),
        (
            ["plan", "x", "--older-than", "1d", "-b", "host"],
            1,
            ["kretain: -b: 'host' is not HOST:PORT, such as host:9092"],
        ),
        (["policy", "show"], 2, ["kretain: missing argument 'TOPIC'", "  hint: see kretain policy show --help"]),
        (["plan", "--older-than"], 2, ["kretain: option '--older-than' requires", "  hint: see kretain plan --help"]),
        (["policy", "check", "{}/odd.yaml"], 1, ["  hint: fix what each problem names · docs/policy.md"]),
        (
            ["plan", "-b", "x:1", "-p", "{}/odd.yaml"],
            1,
            ["  hint: fix what each problem names; kretain policy check lists them again · docs/policy.md"],
        ),
        (
            ["plan", "--context", "lab"],
            1,
            [
                "kretain: ",
                "no context 'lab'",
                "  hint: kretain context add lab -b HOST:PORT adds it · docs/connecting.md",
            ],
        ),
        (["history", "--run", "x"], 1, ["kretain: there is no run 'x'", "  hint: check --state-dir · docs/memory.md"]),
    ],
    ids=lambda one: " ".join(one[:2]) if isinstance(one, list) else None,
)
def test_terminal_shows_a_hint_and_a_page(arguments: list[str], code: int, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text("version: 1\nodd: 1\n")
    words = [one.replace("{}", str(tmp_path)) for one in arguments]
    says(ended(tmp_path, "-m", "kretain", *words, code=code, columns=200).text, *lines)


@pytest.mark.parametrize("arguments", [["plan", "-b", "x:1", "-p"], ["policy", "check"]], ids=" ".join)
def test_missing_policy_has_no_hint_because_its_text_says_all(arguments: list[str], tmp_path: Path) -> None:
    text = ended(tmp_path, "-m", "kretain", *arguments, "nowhere.yaml", code=1, columns=200).text
    says(text, "kretain: nowhere.yaml: cannot be read", never=["hint"])


# -- the Python API without a cluster: its names, its errors by kind, and a plan in a notebook --


def test_module_lists_its_api_and_nothing_private() -> None:
    names = dir(kretain)
    assert [name for name in names if name.startswith("_")] == ["__version__"]
    assert kretain.__version__ == __version__
    assert [name for name in names if getattr(kretain, name) is None] == []
    stub = {
        alias.asname
        for node in ast.parse(Path(kretain.__file__).with_suffix(".pyi").read_text()).body
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


# -- a result that can't be printed, a Ctrl-C and a crash: one line, and an exit code that says what was done --


@pytest.mark.parametrize(
    ("outlet", "code", "said"),
    [
        pytest.param(FULL, 1, "kretain: the result could not be printed: No space left on device\n", id="a full disk"),
        pytest.param(CLOSED, 1, "kretain: the result could not be printed: stdout is closed\n", id="closed"),
        pytest.param(UNREAD, 0, "", id="a pipe whose reader ended"),
    ],
)
@pytest.mark.parametrize("command", [["--help"], ["history", "-o", "json"], ["policy", "schema"]], ids=" ".join)
def test_unprintable_result_is_an_error_unless_its_reader_ended(
    command: list[str], outlet: str, code: int, said: str
) -> None:
    done = run_into(outlet, *command)
    assert (done.code, done.err) == (code, said)


@pytest.mark.parametrize("outlet", [FULL, CLOSED, UNREAD])
def test_failure_keeps_its_code_and_message_if_stdout_is_unusable(outlet: str, tmp_path: Path) -> None:
    done = run_into(outlet, "policy", "check", str(tmp_path / "none.yaml"))
    assert (done.code, done.err.count("\n"), "none.yaml" in done.err) == (1, 1, True), done.err


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-", "2>&- <&-"])
def test_closed_or_full_stderr_changes_nothing(where: str) -> None:
    command = ["bash", "-c", f'exec "$@" {where}', "bash", sys.executable, "-m", "kretain", "history", "-q"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"No trims yet. kretain plan shows what a trim would delete.\n")


def test_file_opened_with_closed_standard_streams_gets_a_descriptor_above_2(tmp_path: Path) -> None:
    """What a library prints to 1 or 2 would be written into the ledger."""
    code = (
        "import sys; from kretain.system import stdio; stdio.prepare()\n"
        "with open(sys.argv[1], 'w') as handle: handle.write(str(handle.fileno()))"
    )
    command = ["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash", sys.executable, "-c", code, str(tmp_path / "n")]
    subprocess.run(command, check=True, timeout=60)
    assert int((tmp_path / "n").read_text()) > 2


@pytest.mark.parametrize(
    "environ",
    [
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.thorough),
        pytest.param({"LC_ALL": "C"}, marks=pytest.mark.thorough),
        pytest.param({"PYTHONIOENCODING": "latin-1"}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_character_outside_the_encoding_is_escaped_and_json_stays_utf_8(
    environ: dict[str, str], tmp_path: Path
) -> None:
    wanted = "größer ⚠ 😀"
    policy = written(tmp_path / "policy.yaml", f'version: 1\ntopics: [{{match: a, hold: "{wanted}"}}]\n')

    def shown(output: str) -> bytes:
        done = subprocess.run(
            [sys.executable, "-m", "kretain", "policy", "show", "a", "-p", str(policy), "-o", output],
            env={**os.environ, **environ},
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    for found in (json.loads(shown("json").decode("utf-8")), yaml.safe_load(shown("yaml").decode("utf-8"))):
        assert {one["key"]: one["value"] for one in found["settings"]}["hold"] == wanted
    for form in ("table", "csv"):
        text = shown(form).decode("latin-1" if "latin-1" in environ.values() else "utf-8")
        assert wanted in text or "\\u26a0" in text


def literals() -> Iterator[str]:
    """Yield each text in the sources that may be printed: every string but docstrings and patterns."""
    for file in [*(ROOT / "cli").rglob("*.py"), *(ROOT / "retention_cli").rglob("*.py")]:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
                yield node.value


def test_each_printed_sign_has_an_ascii_substitute() -> None:
    assert all(one.isascii() for one in stdio.PLAIN.values())
    assert len({stdio.PLAIN[sign] for sign in "█▒·"}) == len("█▒·"), "a disk's bar: Kafka, others, free"
    signs = {sign for text in literals() if text.isprintable() for sign in text if not sign.isascii()}
    assert len(signs) > 10
    assert signs <= stdio.PLAIN.keys()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_terminal_without_unicode_gets_ascii_signs_and_escaped_names(encoding: str) -> None:
    code = "from kretain.system import stdio; stdio.prepare(); print('3 → 5 … ≤ – “x” │─█▏ ⚠ 😀')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == b'3 > 5 ... <= - "x" |-## \\u26a0 \\U0001f600\n'


def test_lone_surrogate_in_a_path_is_written_as_its_escape() -> None:
    assert "\\udcff.yaml" in run_cli("policy", "check", "\udcff.yaml", check=1).err


def into_a_pipe(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    read, write = os.pipe()
    monkeypatch.setattr(sys, "stdout", stdio.stream_of(write, sys.stdout))
    return read, write


def test_closed_pipe_stops_an_endless_row_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = into_a_pipe(monkeypatch)
    os.close(read)
    endless = ({"number": number} for number in itertools.count())
    for form in ("jsonl", "json", "csv"):
        output.show(form, {"format": "x"}, "rows", endless, list, ("number",))
    assert (stdio.unprinted(), next(endless)["number"] < 10_000) == (None, True)
    os.close(write)


def test_nonblocking_pipe_gets_the_entire_output(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = into_a_pipe(monkeypatch)
    os.set_blocking(write, False)
    honest, reading = select.select, list[Future[bytes]]()
    with os.fdopen(read, "rb") as source, ThreadPoolExecutor(1) as pool:

        def wait(*what: Any) -> object:
            if not reading:
                reading.append(pool.submit(source.read))  # not before the pipe is full
            return honest(*what)

        monkeypatch.setattr("select.select", wait)
        sys.stdout.write("x" * 300_000)
        problem = stdio.unprinted()
        os.close(write)
        assert (problem, len(reading[0].result(30))) == (None, 300_000)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("x"), Exit.PARTIAL),
        (exits.RefusedError("x"), Exit.PARTIAL),
        (KeyboardInterrupt(), Exit.INTERRUPTED),
    ],
)
def test_failure_after_a_delete_never_exits_as_if_nothing_was_trimmed(
    error: BaseException, code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    deeds = Deletions()

    def work() -> Exit:
        deeds.note("run r1: 1 partition trimmed; 8 records trimmed")
        raise error

    assert guarded(work, 0, deeds) == code
    assert capsys.readouterr().err.splitlines()[-1] == (
        "kretain: before that: run r1: 1 partition trimmed; 8 records trimmed"
    )


def test_failure_after_a_delete_is_reported_and_the_command_continues(capsys: pytest.CaptureFixture[str]) -> None:
    deeds = Deletions()

    def wait() -> None:
        raise exits.RefusedError("the broker is gone")

    def work() -> Exit:
        deeds.note("run r1")
        with deeds.behind(0):
            wait()
        return Exit.ON_HOLD

    assert (guarded(work, 0, deeds), capsys.readouterr().err) == (Exit.PARTIAL, "kretain: the broker is gone\n")
    with pytest.raises(exits.RefusedError), Deletions().behind(0):
        raise exits.RefusedError("nothing was deleted")


class _Interrupted:
    """Is interrupted where Python names what a class has."""

    def __set_name__(self, _owner: type, _name: str) -> None:
        raise KeyboardInterrupt


def test_interrupt_during_an_import_exits_130(capsys: pytest.CaptureFixture[str]) -> None:
    """Commands import as they go; Python 3.11 makes a RuntimeError of an interrupt while a class is made."""

    def work() -> Exit:
        type("Imported", (), {"one": _Interrupted()})
        return Exit.DONE

    assert (guarded(work, 0), capsys.readouterr().err) == (Exit.INTERRUPTED, "kretain: interrupted\n")


LOST = """
import signal, sys, time, weakref
import kretain.__main__ as main
from kretain.options import common

class Thing:
    pass

def work():
    for _ in range({times}):
        thing = Thing()
        {kind}
        del thing
    time.sleep(20)  # it went on: the interrupt was lost
    raise SystemExit(77)

def command(*_args, **_kwargs):
    raise SystemExit(int(common.guarded(work, 0)))

import kretain.app
kretain.app.app = command
main.main()
"""
KINDS = {
    "a weak reference": "hold = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))",
    "a destructor": "Thing.__del__ = lambda _: signal.raise_signal(signal.SIGINT)",
    "a job in the background": "signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "Thing.__del__ = lambda _: signal.raise_signal(signal.SIGTERM)",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, 3])
def test_ctrl_c_where_python_ignores_it_is_not_lost(kind: str, times: int) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", LOST.format(kind=KINDS[kind], times=times)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    took_s = time.monotonic() - began
    assert (done.returncode, "ignored" in done.stderr, took_s < 18) == (130, False, True), done.stderr


@pytest.mark.parametrize("after_s", [0.4, 1.2])
def test_plan_with_a_silent_broker_ends_at_once_on_ctrl_c(after_s: float) -> None:
    plan = [sys.executable, "-m", "kretain", "plan", "a", "--older-than", "1d", "--timeout", "30s"]
    with (
        socket.create_server(("127.0.0.1", 0), backlog=64) as silent,
        subprocess.Popen(
            [*plan, "-b", f"127.0.0.1:{silent.getsockname()[1]}"], stderr=subprocess.PIPE, text=True
        ) as running,
    ):
        time.sleep(after_s)
        running.send_signal(signal.SIGINT)
        began = time.monotonic()
        _out, err = running.communicate(timeout=60)
    assert running.returncode in (130, -signal.SIGINT), err  # the latter: before Python itself was up
    assert time.monotonic() - began < 25


CRASH = """
import os, signal, kretain.app
def trim_a_partition(**_): os.kill(os.getpid(), signal.SIGSEGV)
kretain.app.app = trim_a_partition
from kretain.__main__ import main
main()
"""


def test_crash_names_its_place_and_keeps_its_signal() -> None:
    """A supervisor must see that it was one, and who looks for its cause needs more than that."""
    done = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGSEGV
    says(done.stderr, "Segmentation fault", "in trim_a_partition")


ASKS = """
import sys
from kretain.__main__ import main
from kretain.flows import confirm
from kretain.options import common
from kretain.system import stdio
stdio.prepare()
sys.exit(common.guarded(lambda: confirm.must_confirm(lambda: "Trim?", "trim", "nothing was trimmed"), 0))
"""


def test_interrupt_at_a_question_says_on_a_line_of_its_own_that_nothing_was_done(tmp_path: Path) -> None:
    shown = Terminal([sys.executable, "-c", ASKS], environ=environ(tmp_path)).end(("Trim? [y/N]", "\x03"), code=130)
    assert shown.endswith("\nkretain: interrupted; nothing was trimmed\n")
