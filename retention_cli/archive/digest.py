"""A checksum over records that does not depend on how they are stored. Pure.

Each record has one canonical encoding, and no two different records share one: numbers have a fixed width,
all other fields are prefixed with their length, and null differs from empty. A digest covers a file's records in
offset order.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

from retention_cli.brokers.content import Record

ALGORITHM: Final = "blake2b"
_FIXED: Final = struct.Struct(">q?i?qB")
_LENGTH: Final = struct.Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
_TYPES: Final = {None: 0, "CreateTime": 1, "LogAppendTime": 2}


def encoded(record: Record) -> bytes:
    """Return the record's canonical encoding."""
    offset, epoch, stamp, kind, key, value, headers = record
    length = _LENGTH.pack
    parts = [
        _FIXED.pack(offset, epoch is not None, epoch or 0, stamp is not None, stamp or 0, _TYPES[kind]),
        _NULL if key is None else length(len(key)) + key,
        _NULL if value is None else length(len(value)) + value,
        length(len(headers)),
    ]
    for name, content in headers:
        named = name.encode()
        parts += (length(len(named)), named, _NULL if content is None else length(len(content)) + content)
    return b"".join(parts)


class Digest:
    """A running checksum over records, and how many there are."""

    def __init__(self) -> None:
        self.records = 0
        self._running = hashlib.blake2b(digest_size=32)

    def add(self, record: Record) -> int:
        """Add the next record; return the size of its encoding in bytes."""
        self.records += 1
        content = encoded(record)
        self._running.update(content)
        return len(content)

    @property
    def text(self) -> str:
        """The checksum so far: ``blake2b:…``."""
        return f"{ALGORITHM}:{self._running.hexdigest()}"
