"""A server on this machine that answers as a test wants."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

Answer = tuple[int, Mapping[str, str], bytes | Iterable[bytes]]
"""A status, headers and a body, in one piece or in parts; then the headers say how long it is."""


class LocalServer:
    """Answers each request by :meth:`reply`. A context manager. ``hold`` may keep answers back until it ends."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def do_GET(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                answer = server.reply(self.path, dict(self.headers), content)
                if answer is None:
                    return
                status, headers, body = answer
                with contextlib.suppress(OSError):  # whoever asked may have gone
                    self.send_response(status)
                    length = {"Content-Length": str(len(body))} if isinstance(body, bytes) else {}
                    for name, value in {**length, **headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.writelines([body] if isinstance(body, bytes) else body)

            do_POST = do_GET  # noqa: N815  (as the library calls it)

        self.hold = threading.Event()
        self.hold.set()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self.address = f"http{'' if tls is None else 's'}://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hold.set()
        self._http.shutdown()
        self._http.server_close()

    def reply(self, path: str, headers: Mapping[str, str], content: bytes) -> Answer | None:
        """Return the answer to a request, None for none at all."""
        raise NotImplementedError
