"""A proxy before one broker that takes APIs, or their newer versions, out of what the broker offers (ApiVersions)."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Final, Self

API_VERSIONS: Final = 18
_UNSUPPORTED_VERSION: Final = 35
_ENTRY: Final = struct.Struct(">hhh")


class ApiProxy:
    """Listens on a port of its own. ``most`` has each API's highest version from now on, None: the API is gone."""

    def __init__(self) -> None:
        self.most: dict[int, int | None] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []

    def serve(self, broker_port: int) -> Self:
        """Begin to serve; return this proxy."""
        threading.Thread(target=self._accept, args=(broker_port,), daemon=True).start()
        return self

    def close(self) -> None:
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, broker_port: int) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", broker_port))
            self._open += [client, broker]
            versions: dict[int, int] = {}
            for work in (self._requests, self._responses):
                threading.Thread(target=work, args=(client, broker, versions), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, versions: dict[int, int]) -> None:
        with closing(broker), suppress(OSError):
            while frame := _frame(client):
                key, version, correlation = struct.unpack_from(">hhi", frame)
                if key == API_VERSIONS:
                    versions[correlation] = version
                broker.sendall(struct.pack(">i", len(frame)) + frame)

    def _responses(self, client: socket.socket, broker: socket.socket, versions: dict[int, int]) -> None:
        with closing(client), suppress(OSError):
            while frame := _frame(broker):
                version = versions.pop(struct.unpack_from(">i", frame)[0], None)
                if version is not None:
                    frame = frame[:4] + limited(frame[4:], version, self.most)
                client.sendall(struct.pack(">i", len(frame)) + frame)


def _frame(source: socket.socket) -> bytes:
    """Return the next frame, empty at the end."""
    head = _exactly(source, 4)
    return _exactly(source, struct.unpack(">i", head)[0]) if head else b""


def _exactly(source: socket.socket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        some = source.recv(count - len(parts))
        if not some:
            return b""
        parts += some
    return parts


def limited(body: bytes, version: int, most: Mapping[int, int | None]) -> bytes:
    """Return an ApiVersions response's body without the APIs and versions that are taken out."""
    if struct.unpack_from(">h", body)[0] == _UNSUPPORTED_VERSION:  # in the layout of version 0
        return body
    flexible = version >= 3
    if flexible:
        count, at = _uvarint(body, 2)
        count -= 1
    else:
        count, at = struct.unpack_from(">i", body, 2)[0], 6
    kept = []
    for _ in range(count):
        key, low, high = _ENTRY.unpack_from(body, at)
        at += _ENTRY.size
        if flexible:
            tags, at = _uvarint(body, at)
            assert tags == 0
        cap = most.get(key, high)
        if cap is not None and cap >= low:
            kept.append(_ENTRY.pack(key, low, min(cap, high)) + (b"\0" if flexible else b""))
    size = _as_uvarint(len(kept) + 1) if flexible else struct.pack(">i", len(kept))
    return body[:2] + size + b"".join(kept) + body[at:]


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _as_uvarint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
