"""Frames, headers and the few types of Kafka's protocol that the synthetic brokers write themselves."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
_HEADER: Final = Struct(">hhih")


class Asked(NamedTuple):
    """A request: its API, version and correlation id, and its body."""

    api_key: int
    version: int
    correlation_id: int
    body: bytes


def parsed(frame: bytes, messages: dict[int, tuple[Any, Any]]) -> Asked:
    """Split a request's frame, without its length, into header and body."""
    api_key, version, correlation_id, client_length = _HEADER.unpack_from(frame)
    position = _HEADER.size + max(0, client_length)
    request = messages[api_key][0] if api_key in messages else None
    if request is not None and request.flexible_version_q(version):
        position += 1  # no client here sends tagged fields in a header
    return Asked(api_key, version, correlation_id, frame[position:])


def framed(asked: Asked, body: bytes, *, flexible: bool) -> bytes:
    """Return the response's frame. The header of an ApiVersions response is never flexible (KIP-511)."""
    header = INT32.pack(asked.correlation_id) + (b"\0" if flexible else b"")
    return INT32.pack(len(header) + len(body)) + header + body


def varint(value: int) -> bytes:
    """Encode an UNSIGNED_VARINT."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value: str) -> bytes:
    """Encode a COMPACT_STRING."""
    raw = value.encode()
    return varint(len(raw) + 1) + raw


def array(items: list[bytes]) -> bytes:
    """Encode a COMPACT_ARRAY of encoded items."""
    return varint(len(items) + 1) + b"".join(items)


class Reader:
    """Reads the fields of a request's body one after another."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def varint(self) -> int:
        """Decode an UNSIGNED_VARINT."""
        value = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def length(self) -> int:
        """Decode the length of an array or a string; −1 for null."""
        return self.varint() - 1

    def text(self) -> str:
        """Decode a string."""
        size = self.length()
        raw = self.data[self.position : self.position + size]
        self.position += size
        return raw.decode()

    def tags(self) -> None:
        """Skip tagged fields: none in requests of these clients."""
        self.position += 1
