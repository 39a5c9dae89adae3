"""A webhook that tests post to: it remembers each body, answers with a status, or never answers."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Webhook:
    """A local HTTP server. A context manager.

    Args:
        status: the status of each answer; None: no answer at all until it is closed.
    """

    PATH = "/services/T0/B0/s3cr3t"

    def __init__(self, status: int | None = 200) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._closed = threading.Event()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == hook.PATH
                hook.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                if status is None:
                    hook._closed.wait(60)
                    return
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}{self.PATH}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()

    def events(self) -> list[str]:
        return [one["event"] for one in self.bodies]
