"""Read one segment of a partition, and determine which of its facts can be trusted.

:func:`from_indexes` reads a closed segment in its usual state, in a dozen system calls. :func:`examine` reads any other
segment: it walks batch headers as far as needed, and returns what stays unknown.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from os import close, fstat, lseek, lstat, pread, read
from os import open as open_file
from typing import Final, NamedTuple

from retention_cli.brokers.wire.batch_headers import (
    HEADER_BYTES,
    MAX_TIMESTAMP_AT,
    OVERHEAD,
    Batch,
    Stop,
    Walked,
    first_timestamp,
    parse,
    walk,
)
from retention_cli.disks.inventory.log_dirs import INDEX, LOG, TIME_INDEX

OFFSET_ENTRY: Final = struct.Struct(">ii")  # offset relative to the base, byte position of its batch
TIME_ENTRY: Final = struct.Struct(">qi")  # the largest timestamp so far, offset relative to the base

FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
"""Opening a pipe must not block, and links are not followed: they may lead to another disk."""

MISSING: Final = "is missing"

_PAGE: Final = 4096

_LOOKS: Final = 3
"""How many times an index is read if it changes meanwhile: a broker truncates it once, when it rolls the segment."""

BLOCK: Final = 512
"""The unit of ``st_blocks`` in bytes, whatever the file system's block size is."""

_TAIL: Final = 8192
"""How many bytes are read from the offset index's last entry on: there is one every 4 KiB (index.interval.bytes)."""
_NEAR: Final = 4096
"""How many bytes are read at a log's end if its last batch is expected to be smaller."""
_APPENDS_AWAITED: Final = 3

_LAST: Final = struct.Struct(">qi4xb6xi8xq")  # of a header: offset, length, magic, last offset delta, max timestamp
_FIRST: Final = struct.Struct(">qi4xb4xhiqq")  # offset, length, magic, attributes, delta, base and max timestamp


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

    size: int
    log_size: int
    next_offset: int | None
    first_timestamp: int | None
    largest_timestamp: int | None
    mtime: int
    problem: str | None = None
    note: str | None = None


def from_indexes(
    folder: int, stem: str, base: int, next_base: int, more: int, near: bool = False
) -> tuple[Segment, bool] | None:
    """Return a closed segment if its files are consistent, and whether its last batch is small; else None.

    :func:`examine` must read it then.

    The time index's last entry is the largest timestamp of a closed segment. It is trusted if the log's last batch
    has that timestamp, at that offset or later. ``more`` is the size of its other files. ``near`` skips reading the
    offset index: the last batch is searched in the log's last bytes.
    """
    file = -1
    try:
        file = open_file(stem + TIME_INDEX, FLAGS, dir_fd=folder)
        times = lseek(file, -12, 2) + 12
        entry = read(file, 12)
        close(file)
        file = -1
        if near:
            offsets = lstat(stem + INDEX, dir_fd=folder).st_size
        else:
            file = open_file(stem + INDEX, FLAGS, dir_fd=folder)
            offsets = lseek(file, 0, 2)
            start = OFFSET_ENTRY.unpack(pread(file, 8, offsets - 8))[1] if offsets else 0
            close(file)
            file = -1
        file = open_file(stem + LOG, FLAGS, dir_fd=folder)
        about = fstat(file)
        size = about.st_size
        if near:
            start = size - _NEAR
        if start > 0:
            tail, head = pread(file, _TAIL, start), pread(file, HEADER_BYTES, 0)
        else:
            start = 0
            head = tail = pread(file, _TAIL, 0)
    except (OSError, struct.error):
        return None
    finally:
        if file >= 0:
            close(file)
    at = tail.rfind(entry[:8]) - MAX_TIMESTAMP_AT
    if at < 0:
        return from_indexes(folder, stem, base, next_base, more) if near else None
    if len(tail) - at < HEADER_BYTES or len(head) < HEADER_BYTES or times % 12 or offsets % 8:
        return None
    offset, length, magic, delta, largest = _LAST.unpack_from(tail, at)
    last = offset + delta
    if (
        magic != 2
        or largest <= 0
        or delta < 0
        or offset < base
        or not base <= base + TIME_ENTRY.unpack(entry)[1] <= last < next_base
        or start + at + OVERHEAD + length != size
    ):
        return None
    small = length < _NEAR - OVERHEAD
    offset, length, magic, attributes, delta, first, maximum = _FIRST.unpack_from(head)
    if magic != 2 or not base <= offset <= offset + delta <= last or maximum > largest or OVERHEAD + length > size:
        return None
    told = first_timestamp(attributes, first, maximum)
    every = size + times + offsets + more
    return Segment(every, size, next_base, told, largest, about.st_mtime_ns // 1_000_000), small


class _Log:
    """An open log file, up to its size at the last :meth:`look`."""

    def __init__(self, file: int) -> None:
        self._file, self._block, self._at = file, b"", 0
        self.look()

    def look(self) -> None:
        self.about = fstat(self._file)
        self.size = self.about.st_size
        self._block = b""

    def read(self, size: int, at: int) -> bytes:
        """Return ``size`` bytes at a position. At least 4 KiB are read and cached, for the reads that follow."""
        place = at - self._at
        if place < 0 or place + size > len(self._block):
            self._block, self._at, place = pread(self._file, max(size, _NEAR), at), at, 0
        return self._block[place : place + size]


def examine(folder: int, stem: str, base: int, next_base: int | None, more: int) -> Segment:
    """Return a segment's facts, walking its batches if its indexes don't suffice. ``next_base`` is None for the last.

    ``more`` is the size of its other files (producer snapshot, transaction index).

    Raises:
        FileNotFoundError: its log file no longer exists.
    """
    # The indexes first: the records that they point to are then in the log when it is read.
    offsets = read_end(folder, stem + INDEX, OFFSET_ENTRY.size)
    times = read_end(folder, stem + TIME_INDEX, TIME_ENTRY.size)
    try:
        file = os.open(stem + LOG, FLAGS, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        about = os.stat(stem + LOG, dir_fd=folder, follow_symlinks=False)
        return _unread(about, offsets, times, more, next_base, error)
    try:
        log = _Log(file)
        if MISSING in (offsets.flaw, times.flaw):
            os.stat(stem + LOG, dir_fd=folder)  # FileNotFoundError: the whole segment is being deleted
        try:
            found = _Look(log, base, next_base, offsets, times, (folder, stem)).facts()
        except FileNotFoundError:
            raise
        except OSError as error:
            return _unread(log.about, offsets, times, more, next_base, error)
    finally:
        os.close(file)
    next_offset, first, largest, problem, note = found
    size, log_size = _sizes(log.about, offsets, times, more, closed=next_base is not None)
    mtime = log.about.st_mtime_ns // 1_000_000
    return Segment(size, log_size, next_offset, first, largest, mtime, problem, note)


def size_of(folder: int, name: str) -> int:
    """Return a file's size in an open folder, 0 if it does not exist."""
    try:
        return lstat(name, dir_fd=folder).st_size
    except OSError:
        return 0


def allocated(folder: int, name: str) -> int:
    """Return a file's allocated bytes, 0 if it does not exist: a preallocated index is usually a hole."""
    try:
        return lstat(name, dir_fd=folder).st_blocks * BLOCK
    except OSError:
        return 0


def _unread(
    about: os.stat_result, offsets: IndexEnd, times: IndexEnd, more: int, next_base: int | None, error: OSError
) -> Segment:
    size, log_size = _sizes(about, offsets, times, more, closed=next_base is not None)
    problem = f"its log can't be read: {error.strerror or error}"
    return Segment(size, log_size, next_base, None, None, about.st_mtime_ns // 1_000_000, problem)


def _sizes(about: os.stat_result, offsets: IndexEnd, times: IndexEnd, more: int, *, closed: bool) -> tuple[int, int]:
    """Return the bytes of all files and of the log; the last segment's without preallocated, unused bytes."""
    if closed:
        return about.st_size + offsets.size + times.size + more, about.st_size
    log = min(about.st_size, about.st_blocks * 512)
    return log + offsets.on_disk + times.on_disk + more, about.st_size


class _Look:
    """Reads a segment that is the last one, or whose files are inconsistent."""

    def __init__(
        self,
        log: _Log,
        base: int,
        next_base: int | None,
        offsets: IndexEnd,
        times: IndexEnd,
        place: tuple[int, str],
    ) -> None:
        self._log, self._base, self._next_base, self._place = log, base, next_base, place
        self._offsets = offsets
        self._times_flawed = times.flaw is not None
        self._notes: list[str] = []
        for name, index in (("offset index", offsets), ("time index", times)):
            if index.flaw is not None and (log.size or index.flaw != MISSING):
                self._notes.append(f"its {name} {index.flaw}")
        self._from_index: int | None = None
        if offsets.last is not None:
            relative, position = OFFSET_ENTRY.unpack(offsets.last)
            if relative >= 0 and position > 0:
                self._from_index, self._indexed_offset = position, base + relative
        self._time: tuple[int, int] | None = None
        if times.last is not None:
            stamp, relative = TIME_ENTRY.unpack(times.last)
            if stamp >= 0 and relative >= 0:
                self._time = stamp, base + relative
            else:
                self._times_flawed = True
                self._notes.append("its time index's last entry makes no sense")

    def facts(self) -> tuple[int | None, int | None, int | None, str | None, str | None]:
        """Return the next offset, the first and largest timestamp, the problem and the note."""
        log, base = self._log, self._base
        if log.size == 0:
            return (base if self._next_base is None else self._next_base), None, None, None, self._note()
        head = parse(log.read(HEADER_BYTES, 0), 0, base, base)
        first = head.first_timestamp if isinstance(head, Batch) and head.size <= log.size else None
        tail, start = self._tail()
        if self._next_base is not None and tail.last_offset is not None and tail.last_offset >= self._next_base:
            return self._next_base, first, None, "it holds offsets of the next segment", self._note()
        if not tail.whole:
            where = f"its batches can't be read from byte {tail.end} on: {tail.stop.value}"
            return self._next_base, first, None, where, self._note()
        if tail.stop is Stop.torn:
            self._notes.append(f"its last batch is cut off at byte {tail.end} of {log.size}")
        next_offset: int | None = self._next_base
        if next_offset is None:
            next_offset = base if tail.last_offset is None else tail.last_offset + 1
        if not isinstance(head, Batch) and start > 0:
            return next_offset, None, None, "its first batch can't be read", self._note()
        largest, problem = self._largest(tail, start, head)
        return next_offset, first, largest, problem, self._note()

    def _tail(self) -> tuple[Walked, int]:
        """Walk from the offset index's last entry, else from the start; return also the position walked from."""
        if (start := self._from_index) is not None and start < self._log.size:
            one = parse(self._log.read(HEADER_BYTES, start), 0, self._base, self._base)
            if isinstance(one, Batch) and one.base_offset <= self._indexed_offset:
                walked = self._walk(start)
                if walked.whole and walked.batches and self._indexed_offset <= (walked.last_offset or 0):
                    return walked, start
        if self._from_index is not None:
            self._notes.append("its offset index doesn't fit its log")
        self._offsets = IndexEnd()
        return self._walk(0), 0

    def _walk(self, start: int) -> Walked:
        """Walk to the end; walk again if the end was being written meanwhile."""
        walked = walk(self._log.read, start, self._log.size, self._base)
        for _ in range(_APPENDS_AWAITED):
            if walked.stop is not Stop.torn:
                break
            self._log.look()
            walked = walk(self._log.read, start, self._log.size, self._base)
        return walked

    def _largest(self, tail: Walked, start: int, head: Batch | Stop) -> tuple[int | None, str | None]:
        """Return the largest timestamp, or None and why it is unknown."""
        if start == 0:  # the whole log was walked
            self._compare(tail.max_timestamp)
            return tail.max_timestamp, None
        stamps = (tail.max_timestamp, head.max_timestamp if isinstance(head, Batch) else None)
        seen = max((one for one in stamps if one is not None), default=None)
        if self._time is not None:
            stamp, offset = self._time
            if seen is not None and (stamp == seen or (stamp < seen and self._next_base is None)):
                return seen, None
            if (seen is None or stamp > seen) and self._stands_at(stamp, offset):
                return stamp, None
        walked = self._walk(0)
        if not walked.whole:
            return None, f"its batches can't be read from byte {walked.end} on: {walked.stop.value}"
        self._compare(walked.max_timestamp)
        return walked.max_timestamp, None

    def _compare(self, largest: int | None) -> None:
        """Add a note if the time index contradicts the largest timestamp of all batches."""
        said = None if self._time is None else self._time[0]
        if said != largest and (self._next_base is not None or (said or 0) > (largest or 0)) and not self._times_flawed:
            self._notes.append("its time index doesn't fit its log")

    def _stands_at(self, stamp: int, offset: int) -> bool:
        """Return whether the batch that contains an offset has this largest timestamp."""
        folder, stem = self._place
        start = position_before(folder, stem + INDEX, self._offsets.entries, offset - self._base)
        found = walk(self._log.read, start, self._log.size, self._base, until=offset)
        return found.stop is Stop.found and found.max_timestamp == stamp

    def _note(self) -> str | None:
        return "; ".join(self._notes) or None


# -- indexes, also preallocated with zeros by the broker -----------------------------------------------------


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
    low = max(0, high - _PAGE // width)
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
