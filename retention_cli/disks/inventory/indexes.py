"""Read the last entry of an offset index or a time index, also if the broker has preallocated the file with zeros."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

OFFSET_ENTRY: Final = struct.Struct(">ii")  # offset relative to the base, byte position of its batch
TIME_ENTRY: Final = struct.Struct(">qi")  # the largest timestamp so far, offset relative to the base

FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
"""Opening a pipe must not block, and links are not followed: they may lead to another disk."""

MISSING: Final = "is missing"

_BLOCK: Final = 4096

_LOOKS: Final = 3
"""How many times an index is read if it changes meanwhile: a broker truncates it once, when it rolls the segment."""


class IndexEnd(NamedTuple):
    """An index file. ``entries`` counts those before the zeros, ``last`` is the last one; ``flaw`` is what is wrong.

    ``size`` is the file's size in bytes, ``on_disk`` how many bytes of it are allocated.
    """

    size: int = 0
    on_disk: int = 0
    entries: int = 0
    last: bytes | None = None
    flaw: str | None = None


def read_end(folder: int, name: str, width: int) -> IndexEnd:
    """Return the end of an index file in an open folder; a file that is missing or can't be read has a flaw."""
    try:
        file = os.open(name, FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return IndexEnd(flaw=MISSING)
    except OSError as error:
        return IndexEnd(*_sizes_of(folder, name), flaw=_said(error))
    try:
        for _ in range(_LOOKS):
            about = os.fstat(file)
            end = _end(file, about, width)
            if os.fstat(file).st_size == about.st_size:
                return end
        return IndexEnd(end.size, end.on_disk, flaw="changes while it is read")
    except OSError as error:
        return IndexEnd(flaw=_said(error))
    finally:
        os.close(file)


def _end(file: int, about: os.stat_result, width: int) -> IndexEnd:
    """Return the end of an index. It is wrong if a broker truncates the file to its entries meanwhile (a roll)."""
    size, on_disk = about.st_size, min(about.st_size, about.st_blocks * 512)
    if size % width:
        return IndexEnd(size, on_disk, flaw="is cut off")
    count = size // width
    if count and (on_disk < size or not any(os.pread(file, width, size - width))):
        count = _used(file, count, width, on_disk)
    return IndexEnd(size, on_disk, count, os.pread(file, width, (count - 1) * width) if count else None)


def position_before(folder: int, name: str, entries: int, relative_offset: int) -> int:
    """Return the byte position of the last batch in an offset index at or before an offset; 0 if there is none.

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


def _used(file: int, count: int, width: int, on_disk: int) -> int:
    """Return how many entries precede the zeros that pad an index: the broker appends them one by one.

    Usually all but the first pages are a hole, so the last entry is near the end of the allocated bytes.
    """
    high = min(count, -(-on_disk // width))
    low = max(0, high - _BLOCK // width)
    zeros = bytes(width)
    block = os.pread(file, (high - low + 1) * width, low * width)

    def in_block(place: int) -> bool:
        return block[(place - low) * width : (place - low + 1) * width] != zeros

    def in_file(place: int) -> bool:
        return os.pread(file, width, place * width) != zeros

    if low and not in_block(low):
        return _first_unused(0, low, in_file)
    if high < count and in_block(high):  # entries beyond the allocated bytes: a compressing file system, for example
        return _first_unused(high, count, in_file)
    return _first_unused(low, high, in_block)


def _first_unused(low: int, high: int, is_used: Callable[[int], bool]) -> int:
    """Return the first unused entry: all before ``low`` are used, none from ``high`` on is."""
    while low < high:
        middle = (low + high) // 2
        if is_used(middle):
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
