"""Decode Avro values with fastavro, by the schema they were written with."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any, Final

from retention_cli.brokers.schemas.interface import Decoder, Schema
from retention_cli.core.extras import avro
from retention_cli.core.json_pointer import at

_TIMES: Final = {"timestamp-millis": 1, "timestamp-micros": 1_000, "timestamp-nanos": 1_000_000}
"""Logical types that are moments, by how many of their units are a millisecond."""
_OURS: Final = "kretain-"


class _RefusedError(ValueError):
    """The schema is valid, but not safe to read values by."""


def decoder_of(schema: Schema) -> Decoder:
    """Return how to read values of a schema.

    Moments become Unix ms, rounded down. An int or long of any other logical type (a date, a local time) is no moment,
    and becomes None.

    Raises:
        ValueError: it is not an Avro schema.
        MissingPartError: fastavro is not installed.
    """
    fastavro = avro("fastavro")
    for name, units in _TIMES.items():
        fastavro.read.LOGICAL_READERS[f"long-{_OURS}{name}"] = lambda number, *_, units=units: number // units
    for kind in ("int", "long"):
        fastavro.read.LOGICAL_READERS[f"{kind}-{_OURS}none"] = lambda *_: None
    named: dict[str, Any] = {}
    walk = _Walk()
    try:
        parsed = _parsed(fastavro, schema, named, walk)
    except _RefusedError:
        raise
    except (fastavro.schema.SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not an Avro schema that can be read ({type(error).__name__})") from None
    # Compiled code has no limit of recursion: a value that is nested deeply enough would end the process.
    read = avro("fastavro._read_py" if walk.recursive else "fastavro").schemaless_reader

    def decode(raw: bytes, path: Sequence[str]) -> Any:
        value = io.BytesIO(raw)
        found = read(value, parsed)
        if value.tell() != len(raw):
            raise ValueError("it goes on behind its end: it was written by another schema")
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
            _RefusedError: an array's items take no bytes, so that a few bytes may be millions of items.
        """
        if isinstance(schema, list):
            return [self.ours(one) for one in schema]
        if isinstance(schema, str):
            self.recursive |= _short(schema) in self._within
            return schema
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.ours(kind)
        made = {key: value for key, value in schema.items() if key != "logicalType"}
        match kind:
            case "int" | "long" if "logicalType" in schema:
                moment = kind == "long" and schema["logicalType"] in _TIMES
                made["logicalType"] = _OURS + (schema["logicalType"] if moment else "none")
            case "array":
                made["items"] = self.ours(schema["items"])
                if self._is_empty(made["items"]):
                    raise _RefusedError("it has an array whose items take no bytes")
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
