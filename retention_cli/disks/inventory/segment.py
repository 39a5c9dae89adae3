"""Read one segment of a partition, and determine which of its facts can be trusted.

:func:`examine` walks batch headers as far as its indexes don't suffice, and returns what stays unknown.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from retention_cli.brokers.wire.batch_headers import HEADER_BYTES, Batch, Stop, Walked, parse, walk
from retention_cli.disks.inventory.log_dirs import INDEX, LOG, TIME_INDEX

OFFSET_ENTRY: Final = struct.Struct(">ii")  # offset relative to the base, byte position of its batch
TIME_ENTRY: Final = struct.Struct(">qi")  # the largest timestamp so far, offset relative to the base

FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
"""Opening a pipe must not block, and links are not followed: they may lead to another disk."""

MISSING: Final = "is missing"

_ATTEMPTS: Final = 3
"""How many times an index is read if it changes meanwhile: a broker truncates it once, when it rolls the segment."""

BLOCK: Final = 512
"""The unit of ``st_blocks`` in bytes, regardless of the file system's block size."""

_APPENDS_AWAITED: Final = 3


class IndexEnd(NamedTuple):
    """An index file. ``entries`` counts those before the zeros, ``last`` is the last one; ``flaw`` is what is wrong.

    ``size`` is the file's size in bytes, ``on_disk`` how many bytes of it are allocated.
    """

    size: int = 0
    on_disk: int = 0
    entries: int = 0
    last: bytes | None = None
    flaw: str | None = None


class Segment(NamedTuple):
    """The facts of one segment. Times are Unix ms.

    ``size`` are the bytes of its files: log, indexes, producer snapshot. ``next_offset`` and the timestamps are None if
    unknown, the timestamps also if there are none. ``problem`` is what stays unknown and why, ``note`` a flaw that did
    not make anything unknown.
    """

    base_offset: int
    next_offset: int | None
    size: int
    log_size: int
    first_timestamp: int | None
    largest_timestamp: int | None
    mtime: int
    problem: str | None = None
    note: str | None = None


@contextmanager
def opened(path: str, folder: int | None = None, flags: int = FLAGS) -> Iterator[int]:
    """Open a file for reading, in an open folder if one is given, and close it.

    Raises:
        OSError: it can't be opened.
    """
    file = os.open(path, flags, dir_fd=folder)
    try:
        yield file
    finally:
        os.close(file)


def examine(folder: int, stem: str, base: int, next_base: int | None, more: int) -> Segment:
    """Return a segment's facts, walking its batches if its indexes don't suffice. ``next_base`` is None for the last.

    ``more`` is the size of its other files (producer snapshot, transaction index).

    Raises:
        FileNotFoundError: its log file no longer exists.
    """
    # The indexes first: the records that they point to are then in the log when it is read.
    offsets = read_end(folder, stem + INDEX, OFFSET_ENTRY.size)
    times = read_end(folder, stem + TIME_INDEX, TIME_ENTRY.size)
    about = os.lstat(stem + LOG, dir_fd=folder)
    facts: _Facts = next_base, None, None, None
    notes: list[str] = []
    try:
        with opened(stem + LOG, folder) as file:
            if MISSING in (offsets.flaw, times.flaw):
                os.stat(stem + LOG, dir_fd=folder)  # FileNotFoundError: the whole segment is being deleted
            log = _Log(file, folder, stem, base, next_base, offsets, times)
            facts, notes, about = log.facts(), log.notes, log.about
    except FileNotFoundError:
        raise
    except OSError as error:
        facts = next_base, None, None, f"its log can't be read: {error.strerror or error}"
    next_offset, first, largest, problem = facts
    if next_base is None:  # the last segment's files have preallocated space that is not used
        size = min(about.st_size, about.st_blocks * BLOCK) + offsets.on_disk + times.on_disk + more
    else:
        size = about.st_size + offsets.size + times.size + more
    mtime = about.st_mtime_ns // 1_000_000
    return Segment(base, next_offset, size, about.st_size, first, largest, mtime, problem, "; ".join(notes) or None)


def sizes_of(folder: int, name: str) -> tuple[int, int]:
    """Return a file's size and its allocated bytes, 0 if it does not exist: a preallocated index is usually a hole."""
    try:
        about = os.lstat(name, dir_fd=folder)
    except OSError:
        return 0, 0
    return about.st_size, about.st_blocks * BLOCK


_Facts = tuple[int | None, int | None, int | None, str | None]
"""A segment's next offset, its first and largest timestamp, and the problem."""


class _Log:
    """The open log of a segment that is the last one, or whose files are inconsistent.

    ``about`` is its state at the last :meth:`_look`, ``notes`` are the flaws found so far.
    """

    def __init__(
        self, file: int, folder: int, stem: str, base: int, next_base: int | None, offsets: IndexEnd, times: IndexEnd
    ) -> None:
        self._file, self._folder, self._stem, self._base, self._next_base = file, folder, stem, base, next_base
        self._offsets, self._times_flawed = offsets, times.flaw is not None
        self.notes: list[str] = []
        self._stat()
        for name, index in (("offset index", offsets), ("time index", times)):
            if index.flaw is not None and (self._size or index.flaw != MISSING):
                self.notes.append(f"its {name} {index.flaw}")
        self._time: tuple[int, int] | None = None
        if times.last is not None:
            stamp, relative = TIME_ENTRY.unpack(times.last)
            if stamp >= 0 and relative >= 0:
                self._time = stamp, base + relative
            else:
                self._times_flawed = True
                self.notes.append("its time index's last entry is invalid")

    def facts(self) -> _Facts:
        """Return what its batches and indexes show."""
        if self._size == 0:
            return (self._base if self._next_base is None else self._next_base), None, None, None
        head = self._batch_at(0)
        first = head.first_timestamp if isinstance(head, Batch) and head.size <= self._size else None
        tail, start = self._tail()
        if self._next_base is not None and tail.last_offset is not None and tail.last_offset >= self._next_base:
            return self._next_base, first, None, "it holds offsets of the next segment"
        if not tail.complete:
            return self._next_base, first, None, _unreadable(tail)
        if tail.stop is Stop.torn:
            self.notes.append(f"its last batch is cut off at byte {tail.end} of {self._size}")
        next_offset = self._next_base
        if next_offset is None:
            next_offset = self._base if tail.last_offset is None else tail.last_offset + 1
        if start == 0:
            return next_offset, first, self._compared(tail), None
        if not isinstance(head, Batch):
            return next_offset, None, None, "its first batch can't be read"
        stamps = [one for one in (tail.max_timestamp, head.max_timestamp) if one is not None]
        if (largest := self._by_time_index(max(stamps, default=None))) is not None:
            return next_offset, first, largest, None
        walked = self._walk(0)
        if not walked.complete:
            return next_offset, first, None, _unreadable(walked)
        return next_offset, first, self._compared(walked), None

    def _stat(self) -> None:
        self.about = os.fstat(self._file)
        self._size = self.about.st_size

    def _read(self, size: int, at: int) -> bytes:
        return os.pread(self._file, size, at)

    def _batch_at(self, at: int) -> Batch | Stop:
        return parse(self._read(HEADER_BYTES, at), 0, self._base, self._base)

    def _tail(self) -> tuple[Walked, int]:
        """Walk from the offset index's last entry, else from the start; return also the position walked from."""
        relative, start = (-1, 0) if self._offsets.last is None else OFFSET_ENTRY.unpack(self._offsets.last)
        if relative >= 0 and start > 0:
            one, indexed_offset = self._batch_at(start), self._base + relative
            if isinstance(one, Batch) and one.base_offset <= indexed_offset:
                walked = self._walk(start)
                if walked.complete and walked.batches and indexed_offset <= (walked.last_offset or 0):
                    return walked, start
            self.notes.append("its offset index doesn't fit its log")
        return self._walk(0), 0

    def _walk(self, start: int) -> Walked:
        """Walk to the end; walk again if the end was being written meanwhile."""
        walked = walk(self._read, start, self._size, self._base)
        for _ in range(_APPENDS_AWAITED):
            if walked.stop is not Stop.torn:
                break
            self._stat()
            walked = walk(self._read, start, self._size, self._base)
        return walked

    def _by_time_index(self, seen: int | None) -> int | None:
        """Return the largest timestamp if the time index shows that it is ``seen``, or one that the log has."""
        if self._time is None:
            return None
        stamp, offset = self._time
        if seen is not None and (stamp == seen or (stamp < seen and self._next_base is None)):
            return seen
        if seen is not None and stamp < seen:
            return None
        start = position_before(self._folder, self._stem + INDEX, self._offsets.entries, offset - self._base)
        found = walk(self._read, start, self._size, self._base, until=offset)
        return stamp if found.stop is Stop.found and found.max_timestamp == stamp else None

    def _compared(self, walked: Walked) -> int | None:
        """Return the largest timestamp of all batches; add a note if the time index contradicts it."""
        largest, indexed = walked.max_timestamp, None if self._time is None else self._time[0]
        if (
            indexed != largest
            and (self._next_base is not None or (indexed or 0) > (largest or 0))
            and not self._times_flawed
        ):
            self.notes.append("its time index doesn't fit its log")
        return largest


def _unreadable(walked: Walked) -> str:
    return f"its batches can't be read from byte {walked.end} on: {walked.stop.value}"


# -- indexes, also preallocated with zeros by the broker -----------------------------------------------------


def read_end(folder: int, name: str, width: int) -> IndexEnd:
    """Return the end of an index file in an open folder; a file that is missing or can't be read has a flaw."""
    try:
        with opened(name, folder) as file:
            for _ in range(_ATTEMPTS):
                about = os.fstat(file)
                end = _end(file, about, width)
                if os.fstat(file).st_size == about.st_size:
                    return end
            return IndexEnd(end.size, end.on_disk, flaw="changes while it is read")
    except FileNotFoundError:
        return IndexEnd(flaw=MISSING)
    except OSError as error:
        size, on_disk = sizes_of(folder, name)
        return IndexEnd(size, min(size, on_disk), flaw=f"can't be read: {error.strerror or error}")


def _end(file: int, about: os.stat_result, width: int) -> IndexEnd:
    """Return the end of an index. It is wrong if a broker truncates the file to its entries meanwhile (a roll).

    The broker appends entries one by one. Zeros follow the last one, usually a hole in the file.
    """
    size, on_disk = about.st_size, min(about.st_size, about.st_blocks * BLOCK)
    if size % width:
        return IndexEnd(size, on_disk, flaw="is cut off")

    def is_unused(place: int) -> bool:
        return not any(os.pread(file, width, place * width))

    count, allocated_entries = size // width, -(-on_disk // width)
    if allocated_entries < count and is_unused(allocated_entries):  # (a compressing file system may have used it)
        count = allocated_entries
    if count and is_unused(count - 1):
        count = bisect_left(range(count), True, key=is_unused)
    return IndexEnd(size, on_disk, count, os.pread(file, width, (count - 1) * width) if count else None)


def position_before(folder: int, name: str, entries: int, relative_offset: int) -> int:
    """Return the byte position of the last batch in an offset index at or before an offset; 0 if there is none.

    Raises:
        OSError: it can't be read.
    """
    with opened(name, folder) as file:

        def entry(place: int) -> tuple[int, int]:
            offset, position = OFFSET_ENTRY.unpack(os.pread(file, OFFSET_ENTRY.size, place * OFFSET_ENTRY.size))
            return offset, position

        try:
            place = bisect_right(range(entries), relative_offset, key=lambda place: entry(place)[0])
            return max(0, entry(place - 1)[1]) if place else 0
        except struct.error:  # the index is shorter by now
            return 0
