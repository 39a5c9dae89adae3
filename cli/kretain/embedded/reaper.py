"""Kills the brokers of a parent that died without stopping them itself (SIGKILL, a crash).

It runs as a child with a pipe as stdin: each line identifies a process by ``pid start-time``. When the pipe closes,
the parent has ended, and the processes that still run are killed. The start time distinguishes them from others that
have reused a pid. The temporary folder given as the argument is then removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


def start_time(pid: int) -> str:
    """Return a process's start time as a text, which no other process with the same pid has; "" if unknown."""
    with contextlib.suppress(OSError, IndexError):
        # Fields after the command's closing parenthesis; the 20th of them is the start time in ticks.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(  # a system without /proc
            ["ps", "-o", "lstart=", "-p", str(pid)],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
        return listed.stdout.strip()
    return ""


def main() -> None:
    """Read pids until the pipe closes, then kill those that still run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles a Ctrl-C in the terminal
    started: dict[int, str] = {}
    for line in sys.stdin:
        pid, _, began = line.strip().partition(" ")
        started[int(pid)] = began
    for pid, began in started.items():
        if began and start_time(pid) == began:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    for folder in sys.argv[1:]:
        _remove(Path(folder))


def _remove(folder: Path) -> None:
    """Remove a folder in which a process that is being killed may still write a last file."""
    deadline = time.monotonic() + 10
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
