"""Schema registries: Apicurio's, a real one with Confluent's REST API, and one that answers what a test wants."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import tarfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from kretain.embedded import jars
from kretain.embedded.java import find_java
from tests.support.http_server import Answer, LocalServer
from tests.support.processes import beside, locked, port_of

VERSION: Final = "2.6.13.Final"
"""The newest that runs on Java 17."""


def _unpacked() -> Path:
    """Return a folder with Apicurio's registry, downloaded once."""
    folder = jars.cache_dir() / "jars" / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"apicurio-registry-{VERSION}"
    with locked(folder / ".lock"):
        if not target.is_dir():
            project = jars.maven(folder).project("io.apicurio", "apicurio-registry-app")
            archive = project.at_version(VERSION).artifact("all", "tar.gz").resolve()
            part = folder / f".{target.name}.part"
            shutil.rmtree(part, ignore_errors=True)
            with tarfile.open(archive) as packed:
                packed.extractall(part, filter="data")
            part.rename(target)
            archive.unlink()
    return target


@contextmanager
def apicurio(folder: Path) -> Iterator[str]:
    """Start a registry that keeps everything in memory; give the URL of its Confluent API."""
    root = _unpacked()
    command = [str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.port=0"]
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
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append((left & 0x7F) | 0x80)
        left >>= 7
    return bytes([*out, left])
