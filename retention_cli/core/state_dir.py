"""The folder of a cluster's state: ``STATE_DIR/CLUSTER_ID``, and its lock.

The lock allows one trim at a time per cluster and state directory, and names its holder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pwd
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from retention_cli.core.errors import Refusal
from retention_cli.core.files import home, refuse_irregular


class StateError(Exception):
    """The state can't be read or written. Nothing is trimmed without it."""


class NotSharedError(StateError):
    """What was seen is saved on this machine, but could not be sent to the topic. The next run tries again."""


def default_state_dir() -> Path:
    """Return ``$XDG_STATE_HOME/kretain``, else ``~/.local/state/kretain``."""
    return Path(os.environ.get("XDG_STATE_HOME") or home() / ".local" / "state") / "kretain"


def cluster_folder(state_dir: Path, cluster_id: str) -> Path:
    """Return the folder of one cluster's state; characters of its id that are odd in file names are quoted."""
    name = folder_name(cluster_id)
    if not name.strip("."):
        raise StateError(f"the cluster's id {cluster_id!r} can't name a folder")
    return state_dir / name


def folder_name(cluster_id: str) -> str:
    """Return the name of a cluster's folder."""
    return quote(cluster_id, safe="-_", errors="surrogatepass")


def make_folder(folder: Path) -> None:
    """Create a cluster's folder and the state directory for this user only; refuse them if others can change them.

    Raises:
        StateError: one can't be created, is a symbolic link, belongs to another user, or is world-writable.
    """
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        about, above = folder.lstat(), folder.parent.stat()
    except OSError as error:
        raise StateError(
            f"the state directory {folder} can't be created: {error.strerror}; choose another with --state-dir"
        ) from None
    if stat.S_ISLNK(about.st_mode):
        raise StateError(f"the state directory {folder} is a symbolic link: put a folder there, or give --state-dir")
    for path, one in ((folder.parent, above), (folder, about)):
        if one.st_uid not in (os.geteuid(), 0):
            raise StateError(
                f"the state directory {path} belongs to uid {one.st_uid}, kretain runs as uid {os.geteuid()}: run it "
                f"as its owner, or choose another with --state-dir"
            )
        if one.st_mode & stat.S_IWOTH and not one.st_mode & stat.S_ISVTX:
            raise StateError(f"the state directory {path} is world-writable: chmod o-w '{path}'")


def open_file(path: Path, flags: int) -> int:
    """Open a file of the state directory and return its descriptor. A new file is for this user only.

    Raises:
        OSError: it can't be opened, is a symbolic link, or is not a file.
    """
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link") from None
        raise
    refuse_irregular(handle)
    return handle


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """Open a file as :func:`open_file` does, and close it."""
    handle = open_file(path, flags)
    try:
        yield handle
    finally:
        os.close(handle)


def sync_folder(folder: Path | str) -> None:
    """Wait until a folder's names are on disk: files that were made or renamed there.

    Raises:
        OSError: it can't be done.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
                raise StateError(
                    f"{path} can't be locked: {error.strerror}. Two trims at once must be impossible: put the state "
                    f"directory on a file system that has locks (--state-dir)"
                ) from None
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise LockedError(
                    f"another trim of this cluster is running: {_holder(os.pread(handle, 4096, 0))}"
                ) from None
            time.sleep(min(0.25, left_s))
        else:
            return


def user_name() -> str:
    """Return the name of our uid, or its number if it has none.

    LOGNAME and USER are not used: the caller can set them to any name.
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
