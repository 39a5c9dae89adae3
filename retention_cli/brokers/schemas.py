"""Read values by a registry's schemas: Confluent's wire format, over its REST API.

A value begins with a zero byte and the schema's id in four bytes. Ids never change their meaning, so each schema is
fetched once. If a schema can't be fetched, its records are unknown, never records without a time. fastavro decodes
Avro values, Google's library Protobuf's.
"""

from __future__ import annotations

import base64
import io
import json
import re
import ssl
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Literal
from urllib.parse import quote

from kafka.record.util import decode_varint

from retention_cli.brokers.errors import SchemaError
from retention_cli.brokers.security.settings import USER_INFO, RegistrySettings
from retention_cli.core.extras import part
from retention_cli.core.http import HttpError, ask, tls_context
from retention_cli.core.json_values import at

TIMEOUT_S: Final = 8.0
"""The longest that a request may take, from looking up the name to the last byte."""
MAX_SCHEMA_BYTES: Final = 4 << 20
MAX_FETCHES: Final = 2_000
"""How many requests one reader sends at most: records may name any id."""
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
            SchemaError: its schema can't be fetched or used.
            MissingPartError: the library that reads it is not installed.
        """
        if raw is None or len(raw) < _HEAD or raw[0] != 0:
            return None
        schema_id = int.from_bytes(raw[1:_HEAD], "big")
        key = kind, schema_id
        if key not in self._decoders:
            self._decoders[key] = self._decoder(kind, schema_id)
        if (decoder := self._decoders[key]) is None:
            return None
        try:
            return decoder(raw[_HEAD:], path)
        except (ValueError, LookupError, TypeError, ArithmeticError, EOFError, RecursionError, struct.error):
            return None

    def _decoder(self, kind: Kind, schema_id: int) -> Decoder | None:
        try:
            self._check_earlier(schema_id)
            path = f"/schemas/ids/{schema_id}"
            content = self._get(path)
            if content.get("schemaType", "AVRO").lower() != kind:
                return None
            schema = self._schema(path, content, {})
            return avro_decoder(schema) if kind == "avro" else protobuf_decoder(schema)
        except (HttpError, ValueError, RecursionError) as error:
            text = " ".join(str(error).split())[:200]
            self._failed[schema_id] = time.monotonic(), text
            raise SchemaError(
                f"schema {schema_id}, which could not be fetched from {self.settings.url or 'the schema registry'}: "
                f"{text}"
            ) from None

    def _check_earlier(self, schema_id: int) -> None:
        if self.settings.problem:
            raise HttpError(self.settings.problem)
        for since, text in filter(None, (self._down, self._failed.get(schema_id))):
            if time.monotonic() - since < 30.0:  # so long neither the schema nor a silent registry is asked for again
                raise HttpError(text)

    def _schema(self, path: str, content: Mapping[str, Any], known: dict[str, Schema | None]) -> Schema:
        kind, text = content.get("schemaType", "AVRO"), content["schema"]
        if kind == "PROTOBUF" and not _is_base64(text):
            text = self._get(f"{path}{'&' if '?' in path else '?'}format=serialized")["schema"]
            if not _is_base64(text):
                raise HttpError("it gives Protobuf schemas as text alone, not serialized (format=serialized)")
        found = {}
        if not isinstance(references := content.get("references") or [], list):
            raise HttpError("the references in its answer are not a list")
        for one in references:
            try:
                name, subject, version = str(one["name"]), str(one["subject"]), int(one["version"])
            except (KeyError, TypeError, ValueError):
                raise HttpError("its answer has an invalid reference") from None
            further = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
            if further not in known:
                known[further] = None
                known[further] = self._schema(further, self._get(further), known)
            if (schema := known[further]) is None:
                raise HttpError("its references are circular")
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
        return tls_context(settings.ca_pem)
    except (ssl.SSLError, ValueError):
        raise HttpError("the certificates of schema.registry.ssl.… can't be used: write a file of PEM ones") from None


Decoder = Callable[[bytes, Sequence[str]], Any]
"""Returns what is at a path in a value, from the value's bytes behind the schema's id: as JSON has it, and moments in
Unix ms. Raises what Python raises if it finds nothing, or if the bytes are no such value."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as the registry has it: its type, its text, and by name the schemas that it refers to."""

    kind: str
    text: str
    references: Mapping[str, Schema]


_TIMES: Final = {"timestamp-millis": 1, "timestamp-micros": 1_000, "timestamp-nanos": 1_000_000}
"""Logical types that are moments, by how many of their units are a millisecond."""
_OURS: Final = "kretain-"


def avro_decoder(schema: Schema) -> Decoder:
    """Return how to read values of a schema.

    Moments become Unix ms, rounded down. An int or long of any other logical type (a date, a local time) is no moment,
    and becomes None.

    Raises:
        ValueError: it is not an Avro schema.
        HttpError: it is one, but not safe to read values by.
        MissingPartError: fastavro is not installed.
    """
    fastavro = part("avro", "fastavro")
    fastavro.read.LOGICAL_READERS |= {
        **{f"long-{_OURS}{name}": lambda number, *_, units=units: number // units for name, units in _TIMES.items()},
        **dict.fromkeys((f"int-{_OURS}none", f"long-{_OURS}none"), lambda *_: None),
    }
    named: dict[str, Any] = {}
    walk = _Walk()
    try:
        parsed = _parsed(fastavro, schema, named, walk)
    except (fastavro.schema.SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not an Avro schema that can be read ({type(error).__name__})") from None
    # Compiled code has no limit of recursion: a value that is nested deeply enough would end the process.
    read = part("avro", "fastavro._read_py" if walk.recursive else "fastavro").schemaless_reader

    def decode(raw: bytes, path: Sequence[str]) -> Any:
        value = io.BytesIO(raw)
        found = read(value, parsed)
        if value.tell() != len(raw):
            raise ValueError("it continues past its end: it was written by another schema")
        return at(found, path)

    return decode


def _parsed(fastavro: Any, schema: Schema, named: dict[str, Any], walk: _Walk) -> Any:
    for one in schema.references.values():
        _parsed(fastavro, one, named, walk)
    return fastavro.parse_schema(
        walk.ours(json.loads(schema.text)), named_schemas=named, _force=True, _ignore_default_error=True
    )


class _Walk:
    """Goes through a schema and those it refers to: logical types that matter here get names of our own, others go.

    ``recursive``: a type contains itself.
    """

    def __init__(self) -> None:
        self.recursive = False
        self._within: list[str] = []
        self._empty_names: set[str] = set()

    def ours(self, schema: Any) -> Any:
        """Return a schema with our logical types.

        Raises:
            HttpError: an array's items take no bytes, so that a few bytes may be millions of items.
        """
        if isinstance(schema, list):
            return [self.ours(one) for one in schema]
        if isinstance(schema, str):
            self.recursive |= _short(schema) in self._within
            return schema
        if not isinstance(kind := schema["type"], str):
            return self.ours(kind)
        made = {key: value for key, value in schema.items() if key != "logicalType"}
        match kind:
            case "int" | "long" if "logicalType" in schema:
                moment = kind == "long" and schema["logicalType"] in _TIMES
                made["logicalType"] = _OURS + (schema["logicalType"] if moment else "none")
            case "array":
                made["items"] = self.ours(schema["items"])
                if self._is_empty(made["items"]):
                    raise HttpError("it has an array whose items take no bytes")
            case "map":
                made["values"] = self.ours(schema["values"])
            case "record" | "error":
                self._within.append(_short(schema["name"]))
                made["fields"] = [{**one, "type": self.ours(one["type"])} for one in schema["fields"]]
                self._within.pop()
                if all(self._is_empty(one["type"]) for one in made["fields"]):
                    self._empty_names.add(_short(schema["name"]))
            case "fixed" if schema["size"] == 0:
                self._empty_names.add(_short(schema["name"]))
        return made

    def _is_empty(self, schema: Any) -> bool:
        if isinstance(schema, dict):
            return schema["type"] == "null" or _short(schema.get("name", "")) in self._empty_names
        return schema == "null" or (isinstance(schema, str) and _short(schema) in self._empty_names)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


_WELL_KNOWN: Final = re.compile(
    r"google/protobuf/(any|api|descriptor|duration|empty|field_mask|source_context|struct|timestamp|type|wrappers)\.proto"
)


_MOST_INDEXES: Final = 100


def protobuf_decoder(schema: Schema) -> Decoder:
    """Return how to read values of a schema's messages.

    A ``google.protobuf.Timestamp`` becomes Unix ms, rounded down; an enum's value None. A field that is not set is
    missing; without presence (``optional``), so is one that is 0.

    Raises:
        ValueError: the schema or one that it imports can't be read.
        MissingPartError: Google's library is not installed.
    """
    classes = part("avro", "google.protobuf.message_factory")
    failed = part("avro", "google.protobuf.message").DecodeError
    pool = part("avro", "google.protobuf.descriptor_pool").DescriptorPool()
    try:
        file = pool.FindFileByName(_add(schema, "", pool, set()))
    except (TypeError, KeyError, failed) as error:
        raise ValueError(f"it is not a Protobuf schema that can be read ({type(error).__name__})") from None

    def decode(raw: bytes, path: Sequence[str]) -> Any:
        indexes, start = _message_indexes(raw)
        descriptor = file.message_types_by_name.values()[indexes[0]]
        for index in indexes[1:]:
            descriptor = descriptor.nested_types[index]
        message = classes.GetMessageClass(descriptor)()
        try:
            message.ParseFromString(raw[start:])
        except failed as error:
            raise ValueError(str(error)) from None
        return _at(message, path)

    return decode


def _add(schema: Schema, name: str, pool: Any, added: set[str]) -> str:
    """Add a schema's file to a pool after those that it imports; return its name there."""
    file = part("avro", "google.protobuf.descriptor_pb2").FileDescriptorProto.FromString(base64.b64decode(schema.text))
    file.name = name or file.name or "schema.proto"
    if file.name in added:
        return str(file.name)
    added.add(file.name)
    for one in file.dependency:
        if one in schema.references:
            _add(schema.references[one], one, pool, added)
        elif (known := _WELL_KNOWN.fullmatch(one)) and one not in added:
            added.add(one)
            pool.AddSerializedFile(part("avro", f"google.protobuf.{known[1]}_pb2").DESCRIPTOR.serialized_pb)
        elif one not in added:
            raise ValueError(f"it imports {one[:80]}, which is not among its references")
    pool.Add(file)
    return str(file.name)


def _message_indexes(raw: bytes) -> tuple[list[int], int]:
    """Return which message of the file a value is (from outside in), and where it begins. Zigzag varints."""
    count, at = decode_varint(raw, 0)
    if not 0 <= count <= _MOST_INDEXES:
        raise ValueError("it names no message")
    found = []
    for _ in range(count):
        one, at = decode_varint(raw, at)
        found.append(one)
    if min(found, default=0) < 0:
        raise ValueError("it names no message")
    return found or [0], at


def _at(found: Any, path: Sequence[str]) -> Any:
    message = part("avro", "google.protobuf.message").Message
    for name in path:
        match found:
            case message():
                field, found = {one[0].name: one for one in found.ListFields()}[name]
                if field.enum_type is not None:
                    return None
            case Mapping():
                if name not in found:  # reading it would add it, with a time of 0
                    raise LookupError(name)
                found = found[name]
            case str() | bytes():
                raise TypeError("a text has no parts")
            case _:  # a repeated field
                found = found[int(name)]
    if isinstance(found, message) and found.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        return found.seconds * 1_000 + found.nanos // 1_000_000
    return found
