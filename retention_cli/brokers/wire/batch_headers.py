"""Read the headers of record batches in a log file one after the other, and validate each.

The format is that of KIP-98 (magic 2; bytes 0–60) and of the messages before it (magic 0 and 1). Checksums are not
verified, as that would read every byte. What is verified is that each header is plausible and that the next one begins
where it should, to the end of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, base and max timestamp, producer
id and epoch, base sequence, records."""
HEADER_BYTES: Final = HEADER.size
OVERHEAD: Final = 12
"""The bytes of base offset and length, which the length does not include."""

_OLD: Final = struct.Struct(">qiIbbq")  # offset, size, checksum, magic, attributes, timestamp (only in magic 1)
_USED: Final = struct.Struct(">qi4xb4xhiqq14xi")
"""The fields of a header that are used: offset, length, magic, attributes, delta, base and max timestamp, records."""
_MAGIC_AT: Final = 16
_SMALL, _LARGE = 4096, 65536
_MOST_BATCHES: Final = 1_000_000
_MAX_DELTA: Final = 2**31 - 1

LOG_APPEND_TIME: Final = 0x08
DELETE_HORIZON: Final = 0x40


class Stop(Enum):
    """Why a walk over batches ended."""

    end = "the file's end"
    torn = "its last batch is cut off"
    zeros = "only zeros follow"
    garbage = "what follows is not a batch"
    limit = "it has too many batches"
    found = "what was looked for"


class Batch(NamedTuple):  # a tuple, as a walk makes many
    """A batch's header. Timestamps are Unix ms, None if the batch has none, or if they are unknown."""

    base_offset: int
    last_offset: int
    first_timestamp: int | None
    max_timestamp: int | None
    size: int


class Walked(NamedTuple):
    """A walk: how many complete batches, their last offset and largest timestamp, the byte after them, why it ended."""

    batches: int
    last_offset: int | None
    max_timestamp: int | None
    end: int
    stop: Stop

    @property
    def complete(self) -> bool:
        """Whether the walk saw every batch that was written completely."""
        return self.stop in (Stop.end, Stop.torn, Stop.zeros)


def _first_timestamp(attributes: int, base: int, largest: int) -> int | None:
    """Return a batch's first timestamp (Unix ms), None if its header does not have it.

    With LogAppendTime every record has the largest timestamp. A cleaned batch may have its delete horizon in the field.
    """
    if attributes & LOG_APPEND_TIME:
        base = largest
    elif attributes & DELETE_HORIZON:
        return None
    return base if 0 <= base <= largest else None


def parse(data: bytes, at: int, floor: int, base: int) -> Batch | Stop:
    """Return the batch whose header begins at ``at``; garbage if it is implausible, torn if it is too short.

    ``floor`` is the smallest base offset that the batch may have, ``base`` the segment's base offset.
    """
    left = len(data) - at
    if left >= HEADER_BYTES:
        offset, length, magic, attributes, delta, first, largest, records = _USED.unpack_from(data, at)
        if magic == 2:
            last = offset + delta
            if (
                offset < floor
                or length < HEADER_BYTES - OVERHEAD
                or delta < 0
                or last - base > _MAX_DELTA
                or not 0 <= records <= delta + 1
                or attributes & 7 > 4
                or largest < -1
            ):
                return Stop.garbage
            first_ms = _first_timestamp(attributes, first, largest)
            return Batch(offset, last, first_ms, largest if largest >= 0 else None, OVERHEAD + length)
    elif left > _MAGIC_AT and data[at + _MAGIC_AT] == 2:
        return Stop.torn
    return _parse_old(data, at, floor, base)


def _parse_old(data: bytes, at: int, floor: int, base: int) -> Batch | Stop:
    """Return a message, or a compressed set of messages, from before KIP-98. Its offset is the last message's."""
    if len(data) - at < _OLD.size:
        return Stop.torn if any(data[at:]) else Stop.zeros
    offset, length, checksum, magic, attributes, stamp = _OLD.unpack_from(data, at)
    if (offset, length, checksum, magic) == (0, 0, 0, 0):
        return Stop.zeros
    sane = magic in (0, 1) and length >= (14, 22)[magic] and floor <= offset <= base + _MAX_DELTA
    if not sane or attributes & 7 > 3 or (magic == 1 and stamp < -1):
        return Stop.garbage
    stamped = magic == 1 and stamp >= 0
    alone = stamped and attributes & 7 == 0  # a compressed set's timestamp is its largest
    return Batch(offset, offset, stamp if alone else None, stamp if stamped else None, OVERHEAD + length)


def walk(
    read: Callable[[int, int], bytes],
    start: int,
    end: int,
    base: int,
    *,
    until: int | None = None,
) -> Walked:
    """Walk from the batch at byte ``start`` to byte ``end``, or to the batch that contains offset ``until``.

    ``read(size, at)`` returns bytes of the file. With ``until``, the largest timestamp is the last batch's only.
    """
    at, floor, count = start, base, 0
    last: int | None = None
    largest: int | None = None
    data, data_at, want = b"", start, _SMALL
    stop = Stop.end
    while at < end:
        if count >= _MOST_BATCHES:
            stop = Stop.limit
            break
        one = parse(data, at - data_at, floor, base) if at - data_at + HEADER_BYTES <= len(data) else None
        if one is None:
            data, data_at = read(min(want, end - at), at), at
            one = parse(data, 0, floor, base)
        if isinstance(one, Stop):
            stop = _only_zeros(read, at, end) if one is Stop.zeros else one
            break
        if at + one.size > end:
            stop = Stop.torn
            break
        want = _LARGE if one.size < _SMALL else _SMALL
        at, count, last, floor = at + one.size, count + 1, one.last_offset, one.last_offset + 1
        if until is not None:
            largest = one.max_timestamp
            if one.last_offset >= until:
                stop = Stop.found if one.base_offset <= until else Stop.garbage
                break
        elif one.max_timestamp is not None and (largest is None or one.max_timestamp > largest):
            largest = one.max_timestamp
    return Walked(count, last, largest, at, stop)


def _only_zeros(read: Callable[[int, int], bytes], at: int, end: int) -> Stop:
    """Return zeros if the rest is preallocated (``log.preallocate``), by its first and last bytes, else garbage."""
    looked = read(min(_LARGE, end - at), at) + read(min(_LARGE, end - at), max(at, end - _LARGE))
    return Stop.garbage if any(looked) else Stop.zeros
