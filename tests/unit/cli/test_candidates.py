"""What a TAB is answered: one candidate a line, and no text of a help among them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from kretain import config
from kretain.app import app
from kretain.completion.generated import COMPLETIONS

ROOT = Path(__file__).parents[3]


def candidates(line: str) -> list[str]:
    asked = {"_KRETAIN_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(
        [sys.executable, "-c", "from kretain.__main__ import main; main()"],
        env={**os.environ, **asked, "_TYPER_COMPLETE_ARGS": line, "COLUMNS": "60"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("command", ["plan", "trim", "watch", "segments scan"])
def test_a_help_of_several_lines_is_no_candidate(command: str) -> None:
    found = candidates(f"kretain {command} --")
    assert len(found) > 5
    for line in found:
        name, _tab, text = line.partition("\t")
        assert name.startswith("--"), line
        assert text, "its help stands beside it"


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_completion_prints_the_script_that_is_in_the_project(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kretain", "completion", shell], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == (ROOT / "completions" / COMPLETIONS[shell]).read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["plan", "doctor", "history"])
def test_contexts_are_candidates_of_their_option_but_not_one_that_would_write_to_the_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "contexts", lambda: {"prod": {}, "pr\x1b[2J": {}, "lab": {}})
    group: Any = typer.main.get_command(app)
    its: Any = group.get_command(None, command)
    [option] = [one for one in its.params if one.name == "context"]
    with its.make_context(command, [], resilient_parsing=True) as ctx:
        assert [one.value for one in option.shell_complete(ctx, "pr")] == ["prod"]
