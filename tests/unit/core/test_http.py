"""A request to a hostile server ends at its deadline, within its limit (retention_cli/core/http.py)."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from retention_cli.core.http import HttpError, ask
from tests.support.says import refusal

Served = Callable[[Callable[[socket.socket], None]], str]
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def served() -> Iterator[Served]:
    """Serves each connection by a function of its socket; at the end none may be open any more."""
    servers: list[ThreadingTCPServer] = []
    ended: list[threading.Event] = []

    def serve(answer: Callable[[socket.socket], None]) -> str:
        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                over = threading.Event()
                ended.append(over)
                self.request.settimeout(10)
                with contextlib.suppress(OSError):
                    self.request.recv(65536)
                    answer(self.request)
                    while self.request.recv(65536):
                        pass
                over.set()

        servers.append(ThreadingTCPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}/positions"

    yield serve
    for server in servers:
        server.shutdown()
        server.socket.close()
    assert all(one.wait(2) for one in ended), "a connection stayed open"
    for one in threading.enumerate():
        if isinstance(one, threading.Timer):
            one.join(2)
            assert not one.is_alive()


def sends(before: bytes, again: bytes, pause_s: float = 0.0) -> Callable[[socket.socket], None]:
    """Send, then send the second part again and again, until the client closes the connection."""

    def answer(peer: socket.socket) -> None:
        peer.sendall(before)
        while True:
            peer.sendall(again)
            time.sleep(pause_s)

    return answer


drip = partial(sends, pause_s=0.05)


@pytest.mark.parametrize(
    "answer",
    [
        drip(b"", b"H"),
        drip(OK, b"X-More: 1\r\n"[:3]),
        drip(OK, b"a: b\r\n"),
        drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        drip(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        drip(OK + b"Content-Length: 1000000\r\n\r\n", b"x"),
        drip(b"HTTP/1.1 302 Found\r\nLocation: /positions\r\n\r\n", b"x"),
        lambda _peer: time.sleep(1.5),
    ],
    ids=["status", "a header", "headers", "100 Continue", "chunks", "body", "a redirect to itself", "nothing"],
)
def test_dripping_server_costs_one_timeout(served: Served, answer: Callable[[socket.socket], None]) -> None:
    url, began = served(answer), time.monotonic()
    with pytest.raises(HttpError, match=r"not read within 0\.5 s|got more than 100 headers|redirect"):
        ask(url, timeout_s=0.5, most_bytes=1 << 20)
    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize("status", [b"302 Found\r\nLocation: /positions", b"200 OK", b"500 Oh"])
@pytest.mark.parametrize("length", [b"Content-Length: 4294967296\r\n", b"", b"Transfer-Encoding: chunked\r\n"])
def test_endless_body_is_not_read_into_memory(served: Served, status: bytes, length: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    chunk = b"ffffffff\r\n" if b"chunked" in length else b""
    url = served(sends(b"HTTP/1.1 " + status + b"\r\n" + length + b"\r\n" + chunk, bytes(1 << 20)))
    with pytest.raises(HttpError, match=r"longer than 1,024 KiB|redirect"):
        ask(url, timeout_s=5, most_bytes=1 << 20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_redirect_is_followed_only_where_allowed(served: Served) -> None:
    there = served(lambda peer: peer.sendall(OK + b"Content-Length: 2\r\n\r\nok"))
    here = served(
        lambda peer: peer.sendall(f"HTTP/1.1 307 X\r\nLocation: {there}\r\nContent-Length: 0\r\n\r\n".encode())
    )
    assert ask(here, timeout_s=5, most_bytes=9).body == b"ok"
    assert ask(here, timeout_s=5, most_bytes=9, body=b"secret").status == 307


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://127.0.0.1/x", "s3://bucket/x?token=hunter2"])
def test_redirect_to_a_file_is_refused(served: Served, place: str) -> None:
    here = served(lambda peer: peer.sendall(f"HTTP/1.1 302 hunter2\r\nLocation: {place}\r\n\r\n".encode()))
    assert "hunter2" not in refusal(HttpError, ask, here, timeout_s=5, most_bytes=1 << 20)


def test_truncated_answer_is_an_error(served: Served) -> None:
    def cut(peer: socket.socket) -> None:
        peer.sendall(OK + b"Content-Length: 5\r\n\r\nab")
        peer.shutdown(socket.SHUT_WR)

    assert "cut short" in refusal(HttpError, ask, served(cut), timeout_s=5, most_bytes=9)
