"""Writing files atomically: readers see the old one or the new one, never half of it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path


class FileError(Exception):
    """A file that could not be written."""


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``, and move the file to ``path`` once all of it was written.

    Raises:
        FileError: it can't be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent or Path(), prefix=f".{path.name}.")
        os.close(handle)
        scratch = Path(name)
        try:
            yield scratch
            umask = os.umask(0)
            os.umask(umask)
            scratch.chmod(0o666 & ~umask)
            scratch.replace(path)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FileError(f"{path} can't be written: {error.strerror or error}") from None


def write_whole(path: Path, parts: Iterable[str]) -> None:
    """Write a text to a temporary file beside ``path`` and move it there.

    Raises:
        FileError: it can't be written.
    """
    with whole(path) as scratch, scratch.open("w", encoding="utf-8") as stream:
        stream.writelines(parts)
