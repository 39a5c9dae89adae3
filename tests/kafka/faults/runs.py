"""Rounds, dealt from a seed; and kretain as a process in one: run to its end, run as a watch, or killed at a step or a moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

Card = TypeVar("Card")
Fault = Literal["kill", "restart", "pause", "cut", "move", "grow", "recreate", "full", "rewind"]
HARMS: Final[tuple[Fault, ...]] = ("kill", "restart", "pause", "cut", "full")
BESIDE: Final[tuple[Fault, ...]] = ("move", "grow", "recreate", "rewind")
"""What may come together with a harm: it takes no broker away, so that a majority remains."""
FAULTS: Final = (*HARMS, *BESIDE)
Mode = Literal[
    "trim", "plan, then trim", "trim, killed at a step", "trim, killed at a moment", "watch", "watch, killed"
]
MODES: Final[tuple[Mode, ...]] = (
    *("trim", "trim, killed at a step", "plan, then trim", "watch", "trim, killed at a moment", "watch, killed"),
)
STEPS: Final = (
    *("before-plan", "before-recheck", "after-recheck", "before-line", "torn-line", "after-line", "before-head"),
    *("before-delete", "after-delete", "after-read-back", "before-ledger", "after-ledger"),
)
"""Where ``runs.py`` can kill kretain: lines and head are the audit log's."""


@dataclass(frozen=True)
class Round:
    """What happens in one round.

    Args:
        number: from 1.
        faults: what happens, in this order.
        broker: the broker that it happens to, from 1.
        lost: what a cut link held back is lost; else it arrives when the link is back.
        delay_s: how long after kretain's start.
        lasting_s: how long a fault lasts at the least.
        mode: how kretain runs.
        step: where it is killed (``trim, killed at a step``), at the ``nth`` time that it comes there.
        nth: see there.
        moment_s: when it is killed (``killed at a moment``, ``watch, killed``), after its start.
        seed: for all that is drawn meanwhile.
    """

    number: int
    faults: tuple[Fault, ...]
    broker: int
    lost: bool
    delay_s: float
    lasting_s: float
    mode: Mode
    step: str
    nth: int
    moment_s: float
    seed: str


def rounds(seed: int, count: int) -> Iterator[Round]:
    """Deal rounds. Each harm, mode and step comes once before any comes again; the first rounds have two faults each."""
    harms, besides = _deck(HARMS, f"{seed}/harms"), _deck(BESIDE, f"{seed}/besides")
    modes, steps = _deck(MODES, f"{seed}/modes"), _deck(STEPS, f"{seed}/steps")
    for number in range(1, count + 1):
        rng = random.Random(f"{seed}/{number}")
        faults = (next(harms), next(besides))
        mode = next(modes)
        step = next(steps) if mode == "trim, killed at a step" else "before-plan"
        yield Round(
            number,
            faults if number <= len(HARMS) or rng.random() < 0.4 else (rng.choice(faults),),
            rng.randint(1, 3),
            rng.random() < 0.5,
            rng.choice((0.0, rng.uniform(0, 1.5))),
            rng.uniform(1.0, 4.5),
            mode,
            step,
            # Lines and heads are written at least four times by a trim that sends something: run, batch, result, end.
            rng.randint(1, 4) if step in ("before-line", "torn-line", "after-line", "before-head") else 1,
            rng.uniform(0.3, 2.5),
            f"{seed}/{number}/meanwhile",
        )


def _deck(cards: tuple[Card, ...], seed: str) -> Iterator[Card]:
    rng = random.Random(seed)
    while True:
        yield from rng.sample(cards, len(cards))


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
        whole = [log.read_bytes().rpartition(b"\n")[0] for log in self.state.glob("*/audit.jsonl")]
        return [json.loads(line) for log in whole for line in log.splitlines() if line.strip()]

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
