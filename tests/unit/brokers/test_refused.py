"""A broker that refuses a user answers and hangs up at once: the answer counts, also where both arrive together."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from retention_cli.brokers.errors import UnauthorizedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.settings import ConnectionSettings

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
UNSUPPORTED_VERSION, SASL_AUTHENTICATION_FAILED = 35, 58


def exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (part := connection.recv(size - len(found))):
            raise EOFError
        found += part
    return found


def refuse(connection: socket.socket) -> None:
    with connection, contextlib.suppress(EOFError, OSError):
        while True:
            (size,) = struct.unpack(">i", exactly(connection, 4))
            key, version, number = struct.unpack(">hhi", exactly(connection, size)[:8])
            if key == API_VERSIONS:
                offered = ((API_VERSIONS, 0, 0), (HANDSHAKE, 0, 1), (AUTHENTICATE, 0, 1), (3, 0, 9))
                body = struct.pack(">hi", UNSUPPORTED_VERSION if version else 0, len(offered))
                body += b"".join(struct.pack(">hhh", *one) for one in offered)
            elif key == HANDSHAKE:
                body = struct.pack(">hih", 0, 1, 5) + b"PLAIN"
            else:
                body = struct.pack(">hh", SASL_AUTHENTICATION_FAILED, 2) + b"no" + struct.pack(">iq", 0, 0)
            connection.sendall(struct.pack(">ii", 4 + len(body), number) + body)
            if key == AUTHENTICATE:
                return


@pytest.fixture
def refusing() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=refuse, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_refusal_right_before_the_end_of_the_connection_is_heard(refusing: str) -> None:
    settings = ConnectionSettings(refusing, "SASL_PLAINTEXT", "PLAIN", "ada", "wrong")
    for _ in range(10):  # the first connection can lose the race, too
        with pytest.raises(UnauthorizedError, match="did not accept the user or the password"):
            ClusterReader(settings, 1.0).__enter__()
