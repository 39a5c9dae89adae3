"""Serves ``/metrics``, ``/healthz`` and ``/readyz`` from a thread."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from retention_cli.core.extras import part
from retention_cli.watch.board import Board
from retention_cli.watch.metrics import registry_of

_AT_ONCE: Final = 16
_MOST_S: Final = 15.0
"""The time for one request, from when it is connected: a client that drips would renew a socket's own time-out."""
_TEXT: Final = ("Content-Type", "text/plain; charset=utf-8")


class ListenError(Exception):
    """The address can't be listened on."""


class Server(WSGIServer):
    """Listens from its creation until it is closed.

    One thread per request, so that a slow client does not keep health checks waiting; at most a few. If too many are
    under way, the one that has waited longest makes room: a health check always gets through.

    Args:
        host: the address to bind to.
        port: the port; 0: any free one.
        board: what to show.

    Raises:
        ListenError: the address can't be bound.
        MissingPartError: prometheus_client is not installed.
    """

    request_queue_size = 32

    def __init__(self, host: str, port: int, board: Board) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Any, float] = {}  # when each connection began (time.monotonic), the oldest first
        app = _app(board)
        try:
            self.address_family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            super().__init__((str(address[0]), int(address[1])), _Handler)
        except (OSError, OverflowError) as error:
            raise ListenError(
                f"--listen {host}:{port}: {getattr(error, 'strerror', None) or error}; choose another with --listen"
            ) from None
        self.set_app(app)
        self._thread = threading.Thread(target=self.serve_forever, name="kretain-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self.shutdown()
        self.server_close()
        self._thread.join(5)

    def server_bind(self) -> None:
        """Bind without a name server's help, which WSGIServer asks for its own name."""
        import socketserver

        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own."""
        with self._lock:
            if len(self._under_way) >= _AT_ONCE:
                self._end(next(iter(self._under_way)))
            self._under_way[request] = time.monotonic()

        def answer() -> None:
            try:
                self.finish_request(request, client_address)
            except OSError:
                pass  # the client is gone, or was too slow
            finally:
                with self._lock:
                    self._under_way.pop(request, None)
                self.shutdown_request(request)

        threading.Thread(target=answer, name="kretain-http", daemon=True).start()

    def service_actions(self) -> None:
        """End what takes too long. Called twice a second."""
        late = time.monotonic() - _MOST_S
        with self._lock:
            for request in [one for one, began in self._under_way.items() if began < late]:
                self._end(request)

    def _end(self, request: Any) -> None:
        """Shut a connection down: its thread ends by that. Hold the lock."""
        del self._under_way[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: what a client does wrong is its own business."""


class _Handler(WSGIRequestHandler):
    timeout = 10

    def address_string(self) -> str:
        return str(self.client_address[0])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        del format, args


def _app(board: Board) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    metrics = part("metrics", "prometheus_client").make_wsgi_app(registry_of(board))

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/metrics":
                return metrics(environ, start_response)  # type: ignore[no-any-return]
            case "/healthz":
                problem = None if board.alive else "the loop is stuck"
            case "/readyz":
                problem = board.unready
            case _:
                start_response("404 Not Found", [_TEXT])  # a list of its own: the server adds to it
                return [b"/metrics, /healthz, /readyz\n"]
        start_response("200 OK" if problem is None else "503 Service Unavailable", [_TEXT])
        return [f"{problem or 'ok'}\n".encode()]

    return app
