"""Write files atomically: readers see the old file or the new one, never a part of it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path


class FileError(Exception):
    """The file could not be written."""


@contextlib.contextmanager
def whole(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``, and move the file to ``path`` once it was written completely.

    ``mode`` are its permissions, by default those of any new file.

    Raises:
        FileError: it can't be written.
    """
    try:
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


def write_whole(path: Path, parts: Iterable[str], mode: int | None = None) -> None:
    """Write a text to a temporary file in the folder of ``path``, and move it to ``path``; see :func:`whole`.

    Raises:
        FileError: it can't be written.
    """
    with whole(path, mode) as scratch, scratch.open("w", encoding="utf-8") as stream:
        stream.writelines(parts)
