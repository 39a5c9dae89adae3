"""A token endpoint on this machine: client credentials against JWTs that its own JWKS can check, or what a test wants."""

from __future__ import annotations

import base64
import itertools
import json
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.support.http_server import Answer, LocalServer

CLIENT, CLIENT_SECRET = "kretain", "0auth-s3cret"
AUDIENCE = "kafka"
JSON = {"Content-Type": "application/json"}


class TokenServer(LocalServer):
    """Issues tokens of ``lifetime_s`` at /token, keys at /jwks. ``answer`` replaces the next tokens' answers."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.url = f"{self.address}/token"
        self.lifetime_s = 300.0
        self.answer: Callable[[], Answer] | None = None
        self.asked: list[tuple[dict[str, str], str]] = []
        self.issued: list[str] = []
        self._numbers = itertools.count(1)
        self._key = RSAKey.generate_key(2048, parameters={"kid": "test", "use": "sig", "alg": "RS256"})

    def jwt(self, lifetime_s: float | None = None, **claims: Any) -> str:
        now = time.time()
        body = {
            "sub": CLIENT,
            "aud": AUDIENCE,
            "scope": "kafka",
            "iat": int(now),
            "exp": int(now + (self.lifetime_s if lifetime_s is None else lifetime_s)),
            "jti": str(next(self._numbers)),
            **claims,
        }
        return jwt.encode({"alg": "RS256", "kid": "test", "typ": "JWT"}, body, self._key)

    def reply(self, path: str, headers: Mapping[str, str], content: bytes) -> Answer:
        if path == "/jwks":
            return 200, JSON, json.dumps({"keys": [self._key.as_dict(private=False)]}).encode()
        self.asked.append((dict(headers), content.decode()))
        self.hold.wait(30)
        return self._granted(headers) if self.answer is None else self.answer()

    def _granted(self, headers: Mapping[str, str]) -> Answer:
        pair = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
        if headers.get("Authorization") != f"Basic {pair}":
            return 401, {}, json.dumps({"error": "invalid_client", "error_description": f"not {headers}"}).encode()
        self.issued.append(self.jwt())
        content = {"access_token": self.issued[-1], "token_type": "Bearer", "expires_in": self.lifetime_s}
        return 200, JSON, json.dumps(content).encode()
