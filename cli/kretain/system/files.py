"""Write texts atomically: readers see the old file or the new one, never a part of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from retention_cli.core.files import whole


def write_whole(path: Path, parts: Iterable[str], mode: int | None = None) -> None:
    """Write a text to a temporary file in the folder of ``path``, and move it to ``path``.

    Raises:
        FileError: it can't be written.
    """
    with whole(path, mode) as scratch, scratch.open("w", encoding="utf-8") as stream:
        stream.writelines(parts)
