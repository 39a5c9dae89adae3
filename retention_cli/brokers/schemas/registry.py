"""Read values by the schemas that a registry has: Confluent's wire format, over its REST API.

A value begins with a zero byte and the schema's id in four bytes. Ids never change their meaning, so each schema is
fetched once. A schema that can't be had makes its records unknown, never records without a time.
"""

from __future__ import annotations

import base64
import json
import ssl
import struct
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal
from urllib.parse import quote

from retention_cli.brokers.errors import SchemaError
from retention_cli.brokers.schemas.interface import Decoder, Schema
from retention_cli.brokers.security.registry_settings import USER_INFO, RegistrySettings
from retention_cli.core.http import HttpError, ask

TIMEOUT_S: Final = 8.0
"""The longest that a request may take, from looking up the name to the last byte."""
MAX_SCHEMA_BYTES: Final = 4 << 20
MAX_FETCHES: Final = 2_000
"""How many requests one reader sends at most: records may name any id."""
_DOWN_S: Final = 30.0
"""How long a failure counts: until then the schema, or a registry that did not answer, is not asked for again."""
_HEAD: Final = 5

Kind = Literal["avro", "protobuf"]


class SchemaRegistry:
    """A registry, and the decoders of the schemas that were fetched from it."""

    def __init__(self, settings: RegistrySettings, timeout_s: float = TIMEOUT_S) -> None:
        self.settings = settings
        self._timeout_s = min(timeout_s, TIMEOUT_S)
        self._decoders: dict[tuple[Kind, int], Decoder | None] = {}
        self._failed: dict[int, tuple[float, str]] = {}
        self._down: tuple[float, str] | None = None
        self._fetches = 0

    def value(self, kind: Kind, raw: bytes | None, path: Sequence[str]) -> Any:
        """Return what is at a path in a record's value; None if nothing is, or the value is not of its schema.

        Raises:
            SchemaError: its schema can't be had.
            MissingPartError: the library that reads it is not installed.
        """
        if raw is None or len(raw) < _HEAD or raw[0] != 0:
            return None
        schema_id = int.from_bytes(raw[1:_HEAD], "big")
        key = kind, schema_id
        if key not in self._decoders:
            self._decoders[key] = self._decoder(kind, schema_id)
        decoder = self._decoders[key]
        if decoder is None:
            return None
        try:
            return decoder(raw[_HEAD:], path)
        except (ValueError, LookupError, TypeError, ArithmeticError, EOFError, RecursionError, struct.error):
            return None

    def _decoder(self, kind: Kind, schema_id: int) -> Decoder | None:
        """Return how to read values of a schema, None if it is of another type."""
        try:
            self._check_earlier(schema_id)
            path = f"/schemas/ids/{schema_id}"
            content = self._get(path)
            if content.get("schemaType", "AVRO").lower() != kind:
                return None
            schema = self._schema(path, content, {})
            if kind == "avro":
                from retention_cli.brokers.schemas.avro import decoder_of
            else:
                from retention_cli.brokers.schemas.protobuf import decoder_of
            return decoder_of(schema)
        except (HttpError, ValueError, RecursionError) as error:
            text = " ".join(str(error).split())[:200]
            self._failed[schema_id] = time.monotonic(), text
            where = self.settings.url or "the schema registry"
            raise SchemaError(f"schema {schema_id}, which could not be fetched from {where}: {text}") from None

    def _check_earlier(self, schema_id: int) -> None:
        if self.settings.problem:
            raise HttpError(self.settings.problem)
        for since, text in filter(None, (self._down, self._failed.get(schema_id))):
            if time.monotonic() - since < _DOWN_S:
                raise HttpError(text)

    def _schema(self, path: str, content: Mapping[str, Any], known: dict[str, Schema | None]) -> Schema:
        """Return the schema in an answer, with those that it refers to."""
        kind, text = content.get("schemaType", "AVRO"), content["schema"]
        if kind == "PROTOBUF" and not _is_base64(text):
            text = self._get(f"{path}{'&' if '?' in path else '?'}format=serialized")["schema"]
            if not _is_base64(text):
                raise HttpError("it gives Protobuf schemas as text alone, not serialized (format=serialized)")
        found = {}
        references = content.get("references") or []
        if not isinstance(references, list):
            raise HttpError("its answer has references that are no list")
        for one in references:
            try:
                name, subject, version = str(one["name"]), str(one["subject"]), int(one["version"])
            except (KeyError, TypeError, ValueError):
                raise HttpError("its answer has a reference that is none") from None
            further = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
            if further not in known:
                known[further] = None
                known[further] = self._schema(further, self._get(further), known)
            if (schema := known[further]) is None:
                raise HttpError("its references go in a circle")
            found[name] = schema
        return Schema(kind, text, found)

    def _get(self, path: str) -> dict[str, Any]:
        self._fetches += 1
        if self._fetches > MAX_FETCHES:
            raise HttpError(f"more than {MAX_FETCHES:,} requests in one run")
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self.settings.user_info:
            headers["Authorization"] = f"Basic {base64.b64encode(self.settings.user_info.encode()).decode()}"
        try:
            answer = ask(
                self.settings.url + path,
                timeout_s=self._timeout_s,
                most_bytes=MAX_SCHEMA_BYTES,
                headers=headers,
                tls=_trusting(self.settings),
                direct=True,
            )
        except HttpError as error:
            self._down = time.monotonic(), str(error)
            raise
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise HttpError(f"it refused the user (HTTP {answer.status}): see {USER_INFO[1]}")
        if answer.status == HTTPStatus.NOT_FOUND:
            raise HttpError("it has no such schema (HTTP 404): is it the registry that the producers use?")
        if answer.status != HTTPStatus.OK:
            raise HttpError(f"it answered HTTP {answer.status}")
        try:
            content = json.loads(answer.body)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict) or not isinstance(content.get("schemaType", "AVRO"), str):
            raise HttpError("its answer is not a registry's: is the URL complete?")
        if not isinstance(content.get("schema"), str):  # before its type is looked at, which has a default
            raise HttpError("its answer has no schema")
        return content


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except ValueError:
        return False


def _trusting(settings: RegistrySettings) -> ssl.SSLContext | None:
    if settings.ca_pem is None or not settings.url.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cadata=settings.ca_pem.encode("ascii", "replace").decode())
    except (ssl.SSLError, ValueError):
        raise HttpError("the certificates of schema.registry.ssl.… can't be used: write a file of PEM ones") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
