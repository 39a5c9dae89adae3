"""Servers on this machine that answer as a test wants: a webhook, a token endpoint, a schema registry (and Apicurio's)."""

from __future__ import annotations

import base64
import itertools
import json
import ssl
import tarfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from joserfc import jwt
from joserfc.jwk import RSAKey
from kafka.record.util import encode_varint

from kretain.embedded import jars
from tests.support.processes import beside, once, port_of

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
                with suppress(OSError):  # whoever asked may have gone
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


class Webhook(LocalServer):
    """A webhook; ``status`` is that of each answer, None: no answer at all until it is closed."""

    PATH = "/services/T0/B0/s3cr3t"

    def __init__(self, status: int | None = 200) -> None:
        super().__init__()
        self.bodies: list[dict[str, Any]] = []
        self.url = f"{self.address}{self.PATH}"
        self._status = status
        if status is None:
            self.hold.clear()

    def reply(self, path: str, _headers: Mapping[str, str], content: bytes) -> Answer | None:
        assert path == self.PATH
        self.bodies.append(json.loads(content))
        self.hold.wait(60)
        return None if self._status is None else (self._status, {}, b"")

    def events(self) -> list[str]:
        return [one["event"] for one in self.bodies]


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


VERSION: Final = "2.6.13.Final"
"""The newest that runs on Java 17."""


def _unpacked() -> Path:
    """Return a folder with Apicurio's registry, downloaded once."""
    folder = jars.cache_dir() / "jars" / "tests"

    def unpack(into: Path) -> None:
        project = jars.maven(folder).project("io.apicurio", "apicurio-registry-app")
        archive = project.at_version(VERSION).artifact("all", "tar.gz").resolve()
        with tarfile.open(archive) as packed:
            packed.extractall(into, filter="data")
        archive.unlink()

    return once(folder / f"apicurio-registry-{VERSION}", unpack)


@contextmanager
def apicurio(folder: Path) -> Iterator[str]:
    """Start a registry that keeps everything in memory; give the URL of its Confluent API."""
    root = _unpacked()
    command = [str(jars.find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.port=0"]
    command += ["-Dquarkus.http.host=127.0.0.1", "-jar", str(root / f"apicurio-registry-app-{VERSION}-runner.jar")]
    with beside(command, folder) as process:
        url = f"http://127.0.0.1:{port_of(process, folder)}/apis/ccompat/v7"
        urllib.request.urlopen(f"{url}/subjects", timeout=60).close()  # noqa: S310
        yield url


class Registry(LocalServer):
    """Answers with the schemas that a test gives it, as Confluent's registry does; keeps what it was asked.

    ``answers`` are by path; one that is an int is that status. ``user_info`` is what it asks for, if anything.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.url = self.address
        self.answers: dict[str, Any] = {}
        self.user_info = ""
        self.asked: list[str] = []

    def add(self, number: int, schema: object, kind: str = "AVRO", references: object = None) -> None:
        """Have a schema under an id: an Avro schema, or a Protobuf file's descriptor."""
        path = f"/schemas/ids/{number}"
        more: dict[str, Any] = {} if kind == "AVRO" else {"schemaType": kind}
        if references is not None:
            more["references"] = references
        if isinstance(schema, FileDescriptorProto):
            self.answers[path] = {"schema": 'syntax = "proto3"; // as text', **more}
            path += "?format=serialized"
            schema = base64.b64encode(schema.SerializeToString()).decode()
        self.answers[path] = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}

    def reply(self, path: str, headers: Mapping[str, str], _content: bytes) -> Answer:
        self.asked.append(path)
        self.hold.wait(20)
        user = base64.b64encode(self.user_info.encode()).decode()
        if self.user_info and headers.get("Authorization") != f"Basic {user}":
            return 401, {}, b"{}"
        answer = self.answers.get(path, 404)
        if isinstance(answer, int):
            body = b'{"error_code": 40403, "message": "Schema not found"}'
            return answer, {"Location": f"{self.url}/elsewhere"} if answer in (301, 302, 307) else {}, body
        return 200, {}, answer if isinstance(answer, bytes) else json.dumps(answer).encode()


def framed(number: int, payload: bytes) -> bytes:
    """Return a value as registries' serializers write it."""
    return b"\0" + number.to_bytes(4, "big") + payload


def avro_long(number: int) -> bytes:
    """Return an Avro long: a zigzag varint."""
    out = bytearray()
    encode_varint(number, out.append)
    return bytes(out)
