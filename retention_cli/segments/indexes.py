"""The last entry of an offset index or a time index, also where the broker has preallocated the file with zeros."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Final

OFFSET_ENTRY: Final = struct.Struct(">ii")  # offset relative to the base, byte position of its batch
TIME_ENTRY: Final = struct.Struct(">qi")  # the largest timestamp so far, offset relative to the base

FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
"""A pipe that somebody left there must not block us, and a link leads to another disk."""

MISSING: Final = "is missing"

_BLOCK: Final = 8160
"""A multiple of both entries' sizes."""


@dataclass(frozen=True, slots=True)
class IndexEnd:
    """An index file. ``entries`` are those before the zeros; ``last`` is the last of them; ``flaw`` says what is wrong.

    ``size`` is the file's in bytes, ``on_disk`` what of it takes space.
    """

    size: int = 0
    on_disk: int = 0
    entries: int = 0
    last: bytes | None = None
    flaw: str | None = None


def read_end(folder: int, name: str, width: int) -> IndexEnd:
    """Return the end of an index file in an open folder; one that is missing or can't be read has a flaw."""
    try:
        file = os.open(name, FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return IndexEnd(flaw=MISSING)
    except OSError as error:
        return IndexEnd(*_sizes_of(folder, name), flaw=_said(error))
    try:
        about = os.fstat(file)
        size, on_disk = about.st_size, min(about.st_size, about.st_blocks * 512)
        if size % width:
            return IndexEnd(size, on_disk, flaw="is cut off")
        count = size // width
        if count and not any(os.pread(file, width, size - width)):
            count = _used(file, size, width)
        return IndexEnd(size, on_disk, count, os.pread(file, width, (count - 1) * width) if count else None)
    except OSError as error:
        return IndexEnd(flaw=_said(error))
    finally:
        os.close(file)


def position_before(folder: int, name: str, entries: int, relative_offset: int) -> int:
    """Return the position of the last batch in an offset index that is not past an offset; 0 where none is.

    Raises:
        OSError: it can't be read.
    """
    file = os.open(name, FLAGS, dir_fd=folder)
    try:
        low, high, position = 0, entries, 0
        while low < high:
            middle = (low + high) // 2
            entry = os.pread(file, OFFSET_ENTRY.size, middle * OFFSET_ENTRY.size)
            if len(entry) < OFFSET_ENTRY.size:
                return 0
            offset, at = OFFSET_ENTRY.unpack(entry)
            if offset <= relative_offset:
                low, position = middle + 1, at
            else:
                high = middle
        return max(0, position)
    finally:
        os.close(file)


def _used(file: int, size: int, width: int) -> int:
    """Return how many entries stand before the zeros that fill an index up: the broker adds them one by one."""
    try:
        written = min(size, os.lseek(file, 0, os.SEEK_HOLE))  # as a rule all but the first pages are a hole
    except (OSError, AttributeError):
        written = size
    low, high = 0, -(-written // width)
    start = max(0, high * width - _BLOCK) // width * width
    if used := len(os.pread(file, high * width - start, start).rstrip(b"\0")):
        return start // width + -(-used // width)
    high = start // width
    while low < high:  # all before low are used, all from high on are not
        middle = (low + high) // 2
        if any(os.pread(file, width, middle * width)):
            low = middle + 1
        else:
            high = middle
    return low


def _sizes_of(folder: int, name: str) -> tuple[int, int]:
    try:
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return 0, 0
    return about.st_size, min(about.st_size, about.st_blocks * 512)


def _said(error: OSError) -> str:
    return f"can't be read: {error.strerror or error}"
