"""Where a command prints: a real terminal to type at and read from, a full disk, a closed descriptor, an unread pipe."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.world import Cli

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\][^\x07]*\x07")


class Terminal(contextlib.AbstractContextManager["Terminal"]):
    """A command in a terminal of its own. What it shows collects in ``shown``, without colors in ``text``."""

    def __init__(
        self, command: Sequence[str], columns: int = 80, environ: Mapping[str, str] | None = None, lines: int = 50
    ) -> None:
        env = {**(os.environ if environ is None else environ), "TERM": "xterm-256color"}
        env.pop("COLUMNS", None)
        self.shown = ""
        self._shown = select.poll()
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            termios.tcsetwinsize(1, (lines, columns))
            os.execvpe(command[0], list(command), env)
        self._shown.register(self._master, select.POLLIN)

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._master)

    @property
    def text(self) -> str:
        """What stands on the screen, and above it."""
        return _ESCAPES.sub("", self.shown).replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def read_until(self, wanted: str, seconds: float = 120) -> str:
        """Read until this is shown; return the text so far."""
        deadline = time.monotonic() + seconds
        while wanted not in self.text:
            assert time.monotonic() < deadline, f"not within {seconds} s: {wanted!r} in {self.text}"
            assert self._read(), f"it ended before {wanted!r}: {self.text}"
        return self.text

    def wait(self, seconds: float = 120) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < deadline, f"did not end within {seconds} s: {self.text}"
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def end(self, *answers: tuple[str, str], code: int = 0) -> str:
        """Type an answer to each question, and read to the end; return what was shown. The exit code must be this."""
        with self:
            for question, keys in answers:
                self.read_until(question)
                self.type(keys)
            assert self.wait() == code, self.text
        return self.text

    def _read(self) -> bool:
        """Take in what there is; False at the end."""
        if self._shown.poll(100):
            try:
                some = os.read(self._master, 65536)
            except OSError:  # how Linux says that nobody holds the other end any more
                return False
            self.shown += some.decode(errors="replace")
            return bool(some)
        return True


FULL, CLOSED, UNREAD = "full", "closed", "unread"


def run_into(outlet: str, *arguments: str, program: Sequence[str] = ("-m", "kretain"), **environ: str) -> Cli:
    """Run the real command with such a stdout; return its exit code and what it said on stderr."""
    command = [sys.executable, *program, *arguments]
    read, write = os.pipe()
    os.close(read)
    if outlet == CLOSED:
        command = ["bash", "-c", 'exec "$@" >&-', "bash", *command]
    with os.fdopen(write, "wb") as unread, Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout={FULL: full, CLOSED: None, UNREAD: unread}[outlet],
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
            check=False,
            env={**{k: v for k, v in os.environ.items() if not k.startswith("KRETAIN_")}, **environ},
        )
    return Cli(done.returncode, "", done.stderr)
