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
def whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``, and move the file to ``path`` once it was written completely.

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
    """Write a text to a temporary file in the folder of ``path``, and move it to ``path``.

    Raises:
        FileError: it can't be written.
    """
    with whole(path) as scratch, scratch.open("w", encoding="utf-8") as stream:
        stream.writelines(parts)
