"""Run a program that the user names, without a shell: its output is bounded, and it ends with all that it started."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence


class CommandError(Exception):
    """A command can't be run, fails, takes too long or prints too much; the text says which, and quotes no output."""


def output_of(command: Sequence[str], timeout_s: float, most_bytes: int, folder: str | None = None) -> bytes:
    """Return what a command prints on stdout until it exits with 0. What it writes to stderr is not read.

    Args:
        command: the program and its arguments.
        timeout_s: how long it may take; then it is killed with its process group.
        most_bytes: how much it may print.
        folder: where it runs; None: here.

    Raises:
        CommandError: there is no such output.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = str(getattr(error, "strerror", None) or error)
        raise CommandError(f"can't be run: {why[:1].lower()}{why[1:]}") from None
    with process:  # its end closes the pipe, and waits
        try:
            return _output(process, timeout_s, most_bytes)
        finally:
            _kill(process)


def _output(process: subprocess.Popen[bytes], timeout_s: float, most_bytes: int) -> bytes:
    assert process.stdout is not None  # noqa: S101  (it is a pipe)
    deadline = time.monotonic() + timeout_s
    handle, parts, size = process.stdout.fileno(), [], 0
    with selectors.DefaultSelector() as selector:
        selector.register(handle, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise CommandError(f"was not done within {timeout_s:g} s (timeout)")
            if not (chunk := os.read(handle, 1 << 16)):
                break
            parts.append(chunk)
            size += len(chunk)
            if size > most_bytes:
                raise CommandError(f"prints more than {most_bytes >> 20} MiB")
    try:
        code = process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise CommandError(f"was not done within {timeout_s:g} s (timeout)") from None
    if code != 0:
        how = f"exited with {code}" if code > 0 else f"was ended by signal {-code}"
        raise CommandError(f"{how}: run it by hand to see why")
    return b"".join(parts)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the command, and all that it has started in its process group, unless it was waited for.

    Until it is, no other process can get its process id.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
