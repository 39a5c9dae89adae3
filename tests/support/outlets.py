"""Places where a result can't be printed: a full disk, a closed descriptor, a pipe that nobody reads any more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.support.world import Cli

FULL, CLOSED, UNREAD = "full", "closed", "unread"


def run_into(outlet: str, *arguments: str, program: Sequence[str] = ("-m", "kretain"), **environ: str) -> Cli:
    """Run the real command with such a stdout; return its exit code and what it said on stderr."""
    command = [sys.executable, *program, *arguments]
    read, write = os.pipe()
    os.close(read)
    full = os.open("/dev/full", os.O_WRONLY)
    if outlet == CLOSED:
        command = ["bash", "-c", 'exec "$@" >&-', "bash", *command]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout={FULL: full, CLOSED: None, UNREAD: write}[outlet],
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
            check=False,
            env={**{k: v for k, v in os.environ.items() if not k.startswith("KRETAIN_")}, **environ},
        )
    finally:
        os.close(write)
        os.close(full)
    return Cli(done.returncode, "", done.stderr)
