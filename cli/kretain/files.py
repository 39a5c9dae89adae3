"""Files that are either the old one or the new one, never half of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


class FileError(Exception):
    """A file that could not be written."""


def write_whole(path: Path, text: str) -> None:
    """Write a file beside its place and move it there.

    Raises:
        FileError: it can't be written.
    """
    try:
        handle, scratch = tempfile.mkstemp(dir=path.parent or Path(), prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            umask = os.umask(0)
            os.umask(umask)
            Path(scratch).chmod(0o666 & ~umask)
            Path(scratch).replace(path)
        except BaseException:
            Path(scratch).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FileError(f"{path} can't be written: {error.strerror}") from None
