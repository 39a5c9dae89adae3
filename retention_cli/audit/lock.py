"""The lock that allows one trim at a time per cluster and state directory, and names its holder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pwd
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from retention_cli.core.errors import Refusal
from retention_cli.core.state_dir import StateError, make_folder, open_file

_AGAIN_AFTER_S: Final = 0.25


class LockedError(Refusal):
    """Another trim is running; the text names it."""


@contextlib.contextmanager
def trim_lock(folder: Path, started_at: str, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the cluster's trim lock. It is released when the process ends, however it ends.

    Raises:
        LockedError: another process holds it, and still did after ``wait_s``.
        StateError: the lock file can't be opened or written.
    """
    make_folder(folder)
    path = folder / "trim.lock"
    try:
        handle = open_file(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise StateError(f"{path} can't be opened: {error.strerror}") from None
    try:
        _lock(handle, path, time.monotonic() + wait_s)
        holder = {"pid": os.getpid(), **whoever(), "since": started_at}
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(holder).encode() + b"\n", 0)
        except OSError as error:
            raise StateError(f"{path} can't be written: {error.strerror}") from None
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # only the kernel's lock counts, not a leftover name
                os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _lock(handle: int, path: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                text = f"{path} can't be locked: {error.strerror}. Two trims at once must be impossible: put the state"
                raise StateError(f"{text} directory on a file system that has locks (--state-dir)") from None
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                holder_said = os.pread(handle, 4096, 0)
                raise LockedError(f"another trim of this cluster is running: {_holder(holder_said)}") from None
            time.sleep(min(_AGAIN_AFTER_S, left_s))
        else:
            return


def user_name() -> str:
    """Return the name of our uid, or its number if it has none.

    The environment is not used: LOGNAME and USER are whatever the caller set them to.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def whoever() -> dict[str, str]:
    """Return the user and the host of this process."""
    return {"user": user_name(), "host": socket.gethostname()}


def _holder(text: bytes) -> str:
    try:
        holder = json.loads(text)
        return f"pid {holder['pid']} on {holder['host']}, by {holder['user']}, since {holder['since']}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "its holder is unknown"
