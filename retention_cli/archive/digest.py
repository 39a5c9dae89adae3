"""A checksum over records that does not depend on how they are stored. Pure.

Each record has one canonical encoding, in which no two different records look alike: numbers of a fixed width,
everything else behind its length, null told from empty. A digest runs over a file's records in the order of offsets.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

from retention_cli.brokers.content import Record

ALGORITHM: Final = "blake2b"
_FIXED: Final = struct.Struct(">q?i?qB")
_LENGTH: Final = struct.Struct(">i")
_TYPES: Final = {None: 0, "CreateTime": 1, "LogAppendTime": 2}


def encoded(record: Record) -> bytes:
    """Return the record's canonical encoding."""
    epoch, stamp = record.leader_epoch, record.timestamp
    parts = [
        _FIXED.pack(
            record.offset,
            epoch is not None,
            epoch or 0,
            stamp is not None,
            stamp or 0,
            _TYPES[record.timestamp_type],
        ),
        *_sized(record.key),
        *_sized(record.value),
        _LENGTH.pack(len(record.headers)),
    ]
    for name, value in record.headers:
        parts += (*_sized(name.encode()), *_sized(value))
    return b"".join(parts)


def _sized(value: bytes | None) -> tuple[bytes, ...]:
    return (_LENGTH.pack(-1),) if value is None else (_LENGTH.pack(len(value)), value)


class Digest:
    """A running checksum over records, and how many there were."""

    def __init__(self) -> None:
        self.records = 0
        self._running = hashlib.blake2b(digest_size=32)

    def add(self, record: Record) -> None:
        """Take the next record."""
        self.records += 1
        self._running.update(encoded(record))

    @property
    def text(self) -> str:
        """The checksum so far: ``blake2b:…``."""
        return f"{ALGORITHM}:{self._running.hexdigest()}"
