"""Read files that the user names, if they are regular files and not too large."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

MIB: Final = 1 << 20
SETTINGS_MAX_BYTES: Final = 16 * MIB
"""The limit for a policy, a fleet, contexts, a client's properties, a PEM file or a key store: none is larger."""
PLAN_MAX_BYTES: Final = 1 << 30


def home() -> Path:
    """Return the user's home, ``/`` for one without: a container's user may have no HOME and no entry in passwd."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def beside(folder: Path, name: str) -> Path:
    """Return the path that a file in ``folder`` names: relative to it, from the root, or from a home (``~``).

    ``~NAME`` where there is no such user is a file of that name.
    """
    try:
        return folder / Path(name).expanduser()
    except RuntimeError:
        return folder / name


def read_file(path: Path, most_bytes: int = SETTINGS_MAX_BYTES, *, pipes: bool = False) -> bytes:
    """Return a file's content. Pipes and devices are refused, as they could block or never end.

    Args:
        path: the file.
        most_bytes: how large it may be.
        pipes: whether it may be a pipe, such as a shell's ``<(command)``, which may read secrets from a vault.

    Raises:
        OSError: it can't be read, is not a regular file, or is too large; ``strerror`` has the reason.
    """
    with open_regular(path, pipes=pipes) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes // MIB:,} MiB")
    return content


def open_regular(path: Path, *, pipes: bool = False) -> BinaryIO:
    """Open a regular file for reading, or a pipe if ``pipes`` are allowed. Anything else could block or never end.

    Raises:
        OSError: it can't be opened, or is something else.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if pipes else os.O_NONBLOCK))
    try:
        refuse_odd(handle, pipes=pipes)
    except OSError:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def refuse_odd(handle: int, *, pipes: bool = False) -> None:
    """Check that an open file is a regular file, or a pipe if ``pipes`` are allowed.

    Raises:
        OSError: it is a folder, a pipe, a socket or a device.
    """
    mode = os.fstat(handle).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode) and not (pipes and stat.S_ISFIFO(mode)):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
