"""kretain as a process: run to its end, run as a watch, or killed at a step or a moment; and what it left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.kafka.faults.rounds import Round

_KILLED: Final = """
import os, signal, sys
step, nth = sys.argv[1], int(sys.argv[2])
sys.argv = ["kretain", *sys.argv[3:]]
from retention_cli.audit import log as audit_log
from retention_cli.brokers.deleter import Deleter
from retention_cli.state.memories import Memories
from retention_cli.trim import batches

seen = 0

def at(name):
    global seen
    seen += name == step
    if name == step and seen == nth:
        os.kill(os.getpid(), signal.SIGKILL)

def around(owner, name, before=None, after=None):
    honest = getattr(owner, name)
    def wrapped(*given, **named):
        at(before)
        answer = honest(*given, **named)
        at(after)
        return answer
    setattr(owner, name, wrapped)

around(batches.Trimmer, "_round", "before-recheck")
around(batches.Trimmer, "_within_limits", "after-recheck")
around(audit_log.AuditLog, "append", "before-line")
around(audit_log, "write_head", "before-head")
around(Deleter, "delete", "before-delete", "after-delete")
around(batches.Trimmer, "_read_back", None, "after-read-back")
around(Memories, "save", "before-ledger", "after-ledger")

honest_line = audit_log.next_line

def next_line(*given):
    line, link = honest_line(*given)
    global seen
    if step in ("torn-line", "after-line"):
        seen += 1
        if seen == nth:
            os_write = os.write
            def write(handle, content):
                os_write(handle, content[: len(content) // 2] if step == "torn-line" else content)
                os.kill(os.getpid(), signal.SIGKILL)
            os.write = write
    return line, link

audit_log.next_line = next_line
if step == "before-plan":
    os.kill(os.getpid(), signal.SIGKILL)
from kretain.__main__ import main
main()
"""
"""The real command, which dies by SIGKILL when it comes to a step for the nth time."""


@dataclass
class Run:
    """A process of kretain."""

    process: subprocess.Popen[bytes]
    folder: Path

    def wait(self, seconds: float) -> int | None:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self, number: signal.Signals, seconds: float = 60) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(seconds)

    @property
    def code(self) -> int | None:
        return self.process.poll()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text(encoding="utf-8")

    def report(self) -> dict[str, Any] | None:
        """What it said of its trim; None if it came to no end of its own."""
        text = (self.folder / "out").read_text(encoding="utf-8")
        if self.code not in (0, 4, 5) or not text.startswith("{"):  # a watch reports to its audit log
            return None
        answer: dict[str, Any] = json.loads(text)
        return answer


class Kretain:
    """Starts runs with one policy and one state directory."""

    def __init__(self, bootstrap: str, policy: Path, state: Path, folder: Path) -> None:
        self.state = state
        self._common = ["-b", bootstrap, "-p", str(policy), "--state-dir", str(state), "--timeout", "5s"]
        self._folder = folder
        self._number = 0

    def start(self, one: Round) -> Run:
        """Start what the round wants. A saved plan is made first, and only its trim is the run."""
        trim = ["trim", *self._common, "--yes", "-o", "json"]
        if one.mode == "trim, killed at a step":
            return self._spawn(["-c", _KILLED, one.step, str(one.nth), *trim])
        if one.mode.startswith("watch"):
            more = ["--trim", "--interval", "1s", "--listen", "127.0.0.1:0"]
            return self._spawn(["-m", "kretain", "watch", *self._common, *more])
        if one.mode == "plan, then trim":
            plan = self._folder / f"plan-{one.number}.json"
            made = self._spawn(["-m", "kretain", "plan", *self._common, "--out", str(plan)])
            assert made.wait(60) == 0, made.err
            trim += ["--plan", str(plan)]
        return self._spawn(["-m", "kretain", *trim])

    def trim(self) -> Run:
        """Run a trim to its end."""
        run = self._spawn(["-m", "kretain", "trim", *self._common, "--yes", "-o", "json"])
        assert run.wait(120) is not None, "a trim hangs"
        return run

    def verified(self) -> str:
        """What is wrong with the audit log's chain; nothing: an empty text."""
        done = subprocess.run(
            [sys.executable, "-m", "kretain", "history", *self._common, "--verify"],
            capture_output=True, text=True, timeout=60, check=False, env=_environ(),
        )  # fmt: skip
        return "" if done.returncode == 0 and "unbroken since" in done.stdout else f"{done.stdout}{done.stderr}"

    def events(self) -> list[dict[str, Any]]:
        """Read the audit log; a last line that was torn is left out."""
        found = []
        for log in self.state.glob("*/audit.jsonl"):
            whole, _, _torn = log.read_bytes().rpartition(b"\n")
            found += [json.loads(line) for line in whole.splitlines() if line.strip()]
        return found

    def _spawn(self, command: Sequence[str]) -> Run:
        self._number += 1
        folder = self._folder / f"run-{self._number}"
        folder.mkdir()
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=_environ()
            )
        return Run(process, folder)


def _environ() -> Mapping[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("KRETAIN_")}


def sleep_until(moment: float) -> None:
    """Wait for a moment of the monotonic clock: a round's own timetable, not a condition."""
    time.sleep(max(0.0, moment - time.monotonic()))
