"""Decode Protobuf values with Google's library, by the descriptor of the file they were written with."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka.record.util import decode_varint

from retention_cli.brokers.schemas.interface import Decoder, Schema
from retention_cli.core.extras import avro

_WELL_KNOWN: Final = re.compile(
    r"google/protobuf/(any|api|descriptor|duration|empty|field_mask|source_context|struct|timestamp|type|wrappers)\.proto"
)
_MOST_INDEXES: Final = 100


def decoder_of(schema: Schema) -> Decoder:
    """Return how to read values of a schema's messages.

    A ``google.protobuf.Timestamp`` becomes Unix ms, rounded down; an enum's value None. A field that is not set is not
    there: without presence (``optional``) that is also one that is 0.

    Raises:
        ValueError: the schema or one that it imports can't be read.
        MissingPartError: Google's library is not installed.
    """
    pools = avro("google.protobuf.descriptor_pool")
    classes = avro("google.protobuf.message_factory")
    failed = avro("google.protobuf.message").DecodeError
    pool = pools.DescriptorPool()
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
    file = avro("google.protobuf.descriptor_pb2").FileDescriptorProto.FromString(base64.b64decode(schema.text))
    file.name = name or file.name or "schema.proto"
    if file.name in added:
        return str(file.name)
    added.add(file.name)
    for one in file.dependency:
        if one in schema.references:
            _add(schema.references[one], one, pool, added)
        elif (known := _WELL_KNOWN.fullmatch(one)) and one not in added:
            added.add(one)
            library = avro(f"google.protobuf.{known[1]}_pb2").DESCRIPTOR
            pool.AddSerializedFile(library.serialized_pb)
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
        if one < 0:
            raise ValueError("it names no message")
        found.append(one)
    return found or [0], at


def _at(found: Any, path: Sequence[str]) -> Any:
    message = avro("google.protobuf.message").Message
    for name in path:
        if isinstance(found, message):
            field, found = {one[0].name: one for one in found.ListFields()}[name]
            if field.enum_type is not None:
                return None
        elif isinstance(found, Mapping):
            if name not in found:  # to ask for it would put it there, with a time of 0
                raise LookupError(name)
            found = found[name]
        elif isinstance(found, (str, bytes)):
            raise TypeError("a text has no parts")
        else:  # a repeated field
            found = found[int(name)]
    if isinstance(found, message) and found.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        return found.seconds * 1_000 + found.nanos // 1_000_000
    return found
