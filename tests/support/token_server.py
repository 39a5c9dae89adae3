"""A token endpoint on this machine: client credentials against JWTs that its own JWKS can check, or what a test wants."""

from __future__ import annotations

import base64
import itertools
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, CLIENT_SECRET = "kretain", "0auth-s3cret"
AUDIENCE = "kafka"

Answer = tuple[int, Mapping[str, str], bytes]


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenServer:
    """Issues tokens of ``lifetime_s`` at /token, keys at /jwks. ``answer`` replaces the next tokens' answers."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.lifetime_s = 300.0
        self.answer: Callable[[], Answer] | None = None
        self.hold = threading.Event()
        self.hold.set()
        self.asked: list[tuple[dict[str, str], str]] = []
        self.issued: list[str] = []
        self._numbers = itertools.count(1)
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._tls = tls
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self.port = self._http.server_port

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hold.set()
        self._http.shutdown()
        self._http.server_close()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/token"

    def jwt(self, lifetime_s: float | None = None, **claims: Any) -> str:
        now = time.time()
        life = self.lifetime_s if lifetime_s is None else lifetime_s
        body = {
            "sub": CLIENT,
            "aud": AUDIENCE,
            "scope": "kafka",
            "iat": int(now),
            "exp": int(now + life),
            "jti": str(next(self._numbers)),
            **claims,
        }
        parts = [encoded(json.dumps(one).encode()) for one in ({"alg": "RS256", "kid": "test", "typ": "JWT"}, body)]
        signed = self._key.sign(".".join(parts).encode(), padding.PKCS1v15(), hashes.SHA256())
        return ".".join([*parts, encoded(signed)])

    def jwks(self) -> bytes:
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "kid": "test",
            "use": "sig",
            "alg": "RS256",
            "n": encoded(numbers.n.to_bytes(256, "big")),
            "e": encoded(numbers.e.to_bytes(3, "big")),
        }
        return json.dumps({"keys": [key]}).encode()

    def _granted(self, headers: Mapping[str, str]) -> Answer:
        pair = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
        if headers.get("Authorization") != f"Basic {pair}":
            return 401, {}, json.dumps({"error": "invalid_client", "error_description": f"not {headers}"}).encode()
        self.issued.append(self.jwt())
        content = {"access_token": self.issued[-1], "token_type": "Bearer", "expires_in": self.lifetime_s}
        return 200, {"Content-Type": "application/json"}, json.dumps(content).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Print nothing."""

            def do_GET(self) -> None:
                self._reply((200, {"Content-Type": "application/json"}, server.jwks()))

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                server.asked.append((dict(self.headers), form))
                server.hold.wait(30)
                self._reply(server.answer() if server.answer is not None else server._granted(dict(self.headers)))

            def _reply(self, answer: Answer) -> None:
                status, headers, body = answer
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    return

        return Handler
