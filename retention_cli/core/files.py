"""Read files that the user names, if they are regular files and not too large; write files completely or not at all."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

MIB: Final = 1 << 20
SETTINGS_MAX_BYTES: Final = 16 * MIB
"""The limit for a policy, a fleet, contexts, a client's properties, a PEM file or a key store: none is larger."""
PLAN_MAX_BYTES: Final = 1 << 30
NO_FILE: Final = "it is a pipe or a device, not a file"


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
    refuse_irregular(handle, pipes=pipes)
    return os.fdopen(handle, "rb")


def refuse_irregular(handle: int, *, pipes: bool = False) -> None:
    """Check that an open file is a regular file, or a pipe if ``pipes`` are allowed; close anything else.

    Raises:
        OSError: it is a folder, a pipe, a socket or a device.
    """
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or (pipes and stat.S_ISFIFO(mode)):
        return
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, NO_FILE)


class FileError(Exception):
    """The file could not be written."""


@contextmanager
def atomic_path(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``, and move the file to ``path`` once it was written completely.

    ``mode`` are its permissions, by default those of any new file.

    Raises:
        FileError: it can't be written.
    """
    try:
        _refuse_stream(path)
        handle, name = tempfile.mkstemp(dir=path.parent or Path(), prefix=f".{path.name}.")
        os.close(handle)
        scratch = Path(name)
        try:
            yield scratch
            if mode is None:
                umask = os.umask(0)
                os.umask(umask)
                mode = 0o666 & ~umask
            scratch.chmod(mode)
            scratch.replace(path)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FileError(f"{path} can't be written: {error.strerror or error}") from None


def _refuse_stream(path: Path) -> None:
    """Refuse a pipe, a device, or a link such as ``/dev/stdout``: a file moved there replaces it for every process.

    Raises:
        OSError: it is one.
    """
    is_link = path.is_symlink() and Path("/proc") in path.readlink().parents
    if is_link or (path.exists() and not (path.is_file() or path.is_dir())):
        raise OSError(errno.EINVAL, NO_FILE)


def write_atomic(path: Path, parts: Iterable[str], mode: int | None = None) -> None:
    """Write a text: readers see the old file or the new one, never a part of it.

    Raises:
        FileError: it can't be written.
    """
    with atomic_path(path, mode) as scratch, scratch.open("w", encoding="utf-8") as stream:
        stream.writelines(parts)
