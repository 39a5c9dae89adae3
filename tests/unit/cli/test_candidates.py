"""What a TAB is answered, one candidate a line; and patterns are checked before anything is read or connected to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from kretain import config
from kretain.app import app
from retention_cli.audit.log import AuditLog
from retention_cli.policy.schema import LIVE_KEYS
from tests.support.audit_logs import BEGUN
from tests.support.world import run_cli
from tools.generated import COMPLETIONS

ROOT = Path(__file__).parents[3]


def candidates(line: str) -> list[str]:
    asked = {"_KRETAIN_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    return run_cli(**asked, _TYPER_COMPLETE_ARGS=line, COLUMNS="60", check=0).out.splitlines()


@pytest.mark.parametrize("command", ["plan", "trim", "watch", "segments scan"])
def test_completion_candidates_are_options_with_one_line_help(command: str) -> None:
    found = candidates(f"kretain {command} --")
    assert len(found) > 5
    for line in found:
        name, _tab, text = line.partition("\t")
        assert name.startswith("--"), line
        assert text, "its help stands beside it"


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_completion_prints_the_committed_script(shell: str) -> None:
    script = (ROOT / "completions" / COMPLETIONS[shell]).read_text(encoding="utf-8")
    assert run_cli("completion", shell, check=0).out == script


@pytest.mark.parametrize("command", ["plan", "doctor", "history"])
def test_contexts_complete_unless_their_names_are_unprintable(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "contexts", lambda: {"prod": {}, "pr\x1b[2J": {}, "lab": {}})
    group: Any = typer.main.get_command(app)
    its: Any = group.get_command(None, command)
    [option] = [one for one in its.params if one.name == "context"]
    with its.make_context(command, [], obj=lambda: config, resilient_parsing=True) as ctx:
        assert [one.value for one in option.shell_complete(ctx, "pr")] == ["prod"]


def test_runs_complete_newest_first(tmp_path: Path) -> None:
    for cluster, run in (("one", "20261121T030000Z-aaaa"), ("two", "20261122T030000Z-bbbb")):
        (tmp_path / cluster).mkdir()
        moment = f"{run[:4]}-{run[4:6]}-{run[6:8]}T03:00:00.000Z"
        AuditLog(tmp_path / cluster).append({**BEGUN, "run": run, "at": moment})
    found = candidates(f"kretain history --state-dir {tmp_path} --run 2026")
    assert [line.partition("\t")[0] for line in found] == ["20261122T030000Z-bbbb", "20261121T030000Z-aaaa"]


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("kretain plan --context no-such-", False),
        ("kretain plan no-such-", False),
        ("kretain history --run no-such-", False),
        ("kretain groups --group no-such-", False),
        ("kretain plan -b no-such-", False),
        ("kretain plan --older-than no-such-", False),
        ("kretain plan -o no-such-", False),
        ("kretain plan --no-such-", False),
        ("kretain no-such-", False),
        ("kretain context add no-such-", False),
        ("kretain show no-such-", True),
        ("kretain plan --state-dir=no-such-", True),
        ("kretain restore orders --from no-such-", True),
        ("kretain plan -p no-such-", True),
        ("kretain archive list no-such-", True),
    ],
)
def test_only_words_that_may_be_files_offer_files(line: str, files: bool) -> None:
    assert candidates(line) == ([""] if files else ["\t"])


def test_descriptions_of_commands_are_whole_sentences() -> None:
    for line in ("kretain ", "kretain policy "):
        found = [one.partition("\t")[2] for one in candidates(line)]
        assert len(found) > 5
        assert all(text.endswith(".") and not text.endswith("...") for text in found), found


def test_only_live_keys_complete() -> None:
    names = [line.partition("\t")[0] for line in candidates("kretain policy unset orders ret")]
    assert "retention.ms" in names
    assert set(names) <= LIVE_KEYS
    assert "retention.ms=" in [line.partition("\t")[0] for line in candidates("kretain policy set orders retention.m")]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["plan", "--bogus"], "kretain: no such option: --bogus"),
        (["plan", "-o", "xml"], "kretain: invalid value for '--output' / '-o': 'xml' is not one of"),
        (["explain"], "kretain: missing argument 'TOPIC[:PARTITION]'; see kretain explain --help"),
        (["plam"], "kretain: no such command 'plam'; did you mean plan?"),
        (["history", "--verify", "--limit", "3"], "kretain: --verify checks complete logs"),
        (["groups", "--fleet", "f.yaml", "forget", "x"], "kretain: forget is for one cluster: leave --fleet"),
        (["policy", "sow"], "kretain: no such command 'sow'"),
    ],
    ids=str,
)
def test_usage_error_in_a_pipe_is_reported_in_one_line(arguments: list[str], wanted: str) -> None:
    done = run_cli(*arguments, check=2)
    assert done.out == ""
    assert done.err.startswith(wanted)
    assert done.err.count("\n") == 1
    assert "--help" in done.err


def test_kretain_without_arguments_prints_help() -> None:
    done = run_cli("policy")
    assert "Usage: kretain policy" in done.out + done.err


COMMANDS = (
    ("advise",),
    ("archive", "list"),
    ("archive", "verify"),
    ("archive", "compact"),
    ("doctor",),
    ("groups", "--group"),
    ("offsets",),
    ("offsets", "--group"),
    ("plan", "--older-than", "1d"),
    ("profile",),
    ("segments", "scan", "/", "--tiered"),
    ("trim", "--older-than", "1d"),
)


BROKEN = [(command, "re:(", "'re:(' is not a regular expression (RE2): missing )") for command in COMMANDS]
EMPTY = [(command, "", "it is empty") for command in COMMANDS if command[-1] != "--group"]  # a group may be called ''


@pytest.mark.parametrize(("command", "pattern", "why"), BROKEN + EMPTY)
def test_invalid_pattern_is_an_error_before_any_connection(command: tuple[str, ...], pattern: str, why: str) -> None:
    result = CliRunner().invoke(app, [*command, pattern], env={"TERMINAL_WIDTH": "200", "COLUMNS": "200"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr
