"""One trim at a time per cluster and state: a lock that names its holder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from retention_cli.state.folder import StateError, make_folder


class LockedError(Exception):
    """Another trim runs; the text names it."""


@contextlib.contextmanager
def trim_lock(folder: Path, started_at: str) -> Iterator[None]:
    """Hold the cluster's trim lock. It ends with the process, however that ends.

    Raises:
        LockedError: another process holds it.
        StateError: the lock file can't be opened.
    """
    make_folder(folder)
    path = folder / "trim.lock"
    try:
        handle = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise StateError(f"{path} can't be opened: {error.strerror}") from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.seek(0)
            raise LockedError(f"another trim of this cluster is running: {_holder(handle.read())}") from None
        handle.seek(0)
        handle.truncate()
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "user": user_name(), "since": started_at}
        handle.write(json.dumps(holder) + "\n")
        handle.flush()
        try:
            yield
        finally:
            handle.seek(0)
            handle.truncate()


def user_name() -> str:
    """Return who runs us, as the system names them."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _holder(text: str) -> str:
    try:
        holder = json.loads(text)
        return f"pid {holder['pid']} on {holder['host']}, by {holder['user']}, since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "its holder left no name"
