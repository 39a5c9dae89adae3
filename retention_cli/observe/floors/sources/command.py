"""Read the positions that a command prints (F7)."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time

from retention_cli.observe.floors.sources.interface import Consumer, Consumers, Reach, SourceError
from retention_cli.observe.floors.sources.positions import MAX_BYTES, check_age, read_positions
from retention_cli.policy.settings import FloorSource
from retention_cli.policy.shown import plain


def read(source: FloorSource, reach: Reach) -> Consumers:
    """Run the command and return the positions that it prints.

    It runs without a shell. What it writes to stderr is not shown: it may hold a secret.

    Args:
        source: ``command`` is the program and its arguments, ``place`` the folder that it runs in.
        reach: for our wall clock.

    Raises:
        SourceError: it can't be run, fails, takes too long, or prints no positions that can be used.
    """
    try:
        process = subprocess.Popen(
            source.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=source.place or None,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = str(getattr(error, "strerror", None) or error)
        raise SourceError(f"{plain(source.command[0])} can't be run: {why[:1].lower()}{why[1:]}") from None
    try:
        content = _output(process, source.timeout_ms / 1000)
    finally:
        _end(process)
    at_ms, positions = read_positions(content)
    if at_ms is not None:
        check_age(at_ms, reach.now_ms(), source.max_age_ms)
    return {source.name: Consumer(positions)}


def _output(process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
    """Return what a command prints until it exits with 0, at most :data:`MAX_BYTES`."""
    assert process.stdout is not None  # noqa: S101  (it is a pipe)
    deadline = time.monotonic() + timeout_s
    handle, parts, size = process.stdout.fileno(), [], 0
    with selectors.DefaultSelector() as selector:
        selector.register(handle, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise SourceError(f"the command was not done within {timeout_s:g} s (timeout)")
            chunk = os.read(handle, 1 << 16)
            if not chunk:
                break
            parts.append(chunk)
            size += len(chunk)
            if size > MAX_BYTES:
                raise SourceError(f"the command prints more than {MAX_BYTES >> 20} MiB")
    try:
        code = process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise SourceError(f"the command was not done within {timeout_s:g} s (timeout)") from None
    if code != 0:
        how = f"exited with {code}" if code > 0 else f"was ended by signal {-code}"
        raise SourceError(f"the command {how}: run it by hand to see why")
    return b"".join(parts)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the command, and whatever it has started in its process group, unless it was waited for.

    Until then its process id can't be another process's.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    process.wait()
