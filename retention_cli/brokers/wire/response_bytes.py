"""Decode responses of a million rows in blocks, instead of by the client, which makes an object of each row.

Only the body is decoded here: the client handles the request, its header, and the response's header. Kafka's protocol
guide defines the types.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, Final, TypeVar

from kafka.protocol.api_header import RequestHeader

T = TypeVar("T")

_INT16: Final = Struct(">h")


def decoded_by(request: Any, response: Any, decoders: Mapping[int, Callable[[bytes], Any]]) -> Any:
    """Return the client's request class, with its response's body decoded by these functions, one per version."""
    bodies = {version: _Body(response[version].parse_header, decode) for version, decode in decoders.items()}

    class Header(RequestHeader, init=False):  # type: ignore[call-arg,misc]
        def get_response_class(self) -> Any:
            return bodies[self.request_api_version]

    return type(request.__name__, (request,), {"header_class": Header}, init=False)


class _Body:
    """Takes the place of the response's class in the client."""

    def __init__(self, parse_header: Callable[[Any], Any], decode: Callable[[bytes], Any]) -> None:
        self.parse_header = parse_header
        self._decode = decode

    def decode(self, data: Any) -> Any:
        return self._decode(bytes(data.read()))


def decode_body(name: str, data: bytes, read: Callable[[bytes], tuple[T, int]]) -> T:
    """Return the body decoded by ``read``, which also returns the position after it.

    Raises:
        ValueError: that position is not the body's end.
    """
    try:
        answer, position = read(data)
    except (IndexError, struct.error):
        raise ValueError(f"a {name} response ends too early") from None
    if position != len(data):
        raise ValueError(f"a {name} response of {len(data)} bytes has to end at {position}")
    return answer


def varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode an UNSIGNED_VARINT; return it and the position after it, as do all functions below."""
    value = shift = 0
    while (byte := data[position]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if shift > 28:
            raise ValueError("a response has a number of more than 32 bits")
    return value | byte << shift, position + 1


def length(data: bytes, position: int) -> tuple[int, int]:
    """Decode the length of a compact string or array; 0 for null."""
    byte = data[position]
    if byte >= 0x80:
        byte, position = varint(data, position)
        return byte and byte - 1, position
    return byte and byte - 1, position + 1


def string(data: bytes, position: int) -> tuple[str, int]:
    """Decode a COMPACT_STRING."""
    size, position = length(data, position)
    end = position + size
    if end > len(data):
        raise IndexError
    return data[position:end].decode(), end


def short(data: bytes, position: int) -> tuple[int, int]:
    """Decode an INT16."""
    return _INT16.unpack_from(data, position)[0], position + _INT16.size


def after_tags(data: bytes, position: int) -> int:
    """Return the position after tagged fields: none of them is known here, so all are skipped (KIP-482)."""
    if not data[position]:
        return position + 1
    count, position = varint(data, position)
    for _ in range(count):
        _tag, position = varint(data, position)
        size, position = varint(data, position)
        position += size
    return position
