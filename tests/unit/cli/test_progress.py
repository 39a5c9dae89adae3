"""Progress in a terminal: the first line comes before Kafka's client is imported, keeps moving, and is erased."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from tests.support.terminal import Terminal
from tests.support.world import run_cli

NOWHERE = ("-b", "127.0.0.1:1", "--timeout", "30s")
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


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_terminal_shows_progress_before_anything_slow(command: tuple[str, ...], tmp_path: Path) -> None:
    words = [sys.executable, "-m", "kretain", *command, *NOWHERE]
    with Terminal(words, environ=environ(tmp_path)) as terminal:
        assert "127.0.0.1" not in terminal.read_until("working"), "before it connects"


def test_refused_cluster_fails_within_seconds_while_progress_moves(tmp_path: Path) -> None:
    began = time.monotonic()
    with Terminal([sys.executable, "-m", "kretain", "doctor", *NOWHERE], environ=environ(tmp_path)) as terminal:
        assert terminal.wait() == 1
    assert 3 <= time.monotonic() - began < 29, "it neither gave up at once nor waited for the time-out"
    assert len([one for one in FRAME.findall(terminal.shown) if one.startswith("connecting to 127.0.0.1:1")]) > 10
    end = terminal.shown.rpartition("\x1b[J")[2]
    assert end.startswith("kretain: 127.0.0.1:1 could not be reached within 3 s: connection refused\r\n")
    assert FRAME.search(end) is None, "nothing is drawn over the error"


def test_quiet_terminal_shows_no_progress(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "kretain", "doctor", "--quiet", "-b", "127.0.0.1:1", "--timeout", "1s"]
    with Terminal(words, environ=environ(tmp_path)) as terminal:
        assert terminal.wait() == 1
    assert terminal.shown.startswith("kretain: 127.0.0.1:1 could not be reached within 1 s")


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
    with Terminal([sys.executable, "-c", DRAWN], environ=environ(tmp_path)) as terminal:
        assert terminal.wait() == 0
    shown = terminal.shown
    assert "reading offsets  ━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  500/2,000" in shown
    assert re.search(r"500/2,000  \d+/s  0:01  0:0\d left", shown)
    assert "\r\x1b[Ja warning\r\n" in shown, "the line is erased before a warning"
    assert "question? \r\n" in shown, "nothing is drawn behind a question"
    assert re.search(r"eu: groups  3\r\n. us: connecting", shown), "a line for each cluster"
    assert shown.endswith("\x1b[Jresult\r\n"), "after the result nothing is drawn"


def test_progress_without_utf8_is_ascii(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "kretain", "doctor", "-b", "127.0.0.1:1", "--timeout", "1s"]
    ascii_only = {**environ(tmp_path), "LANG": "C", "PYTHONIOENCODING": "ascii"}
    with Terminal(words, environ=ascii_only) as terminal:
        assert terminal.wait() == 1
    assert terminal.shown.isascii()
    assert re.search(r"[|/\\-] connecting to", terminal.shown)
