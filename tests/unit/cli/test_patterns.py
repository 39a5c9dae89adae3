"""A pattern of the command line is checked before anything is read or connected to."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kretain.app import app

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
