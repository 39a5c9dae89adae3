"""Values by the schemas of a registry: what is read of them, and what makes them unknown (R2)."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from retention_cli.brokers import schemas
from retention_cli.brokers.errors import SchemaError
from retention_cli.brokers.schemas import SchemaRegistry
from retention_cli.brokers.security.settings import RegistrySettings
from retention_cli.core.extras import MissingPartError
from retention_cli.observe.record_times import read_time
from retention_cli.policy.settings import event_source
from tests.support.client_files import of as client_settings, self_signed, serving
from tests.support.http_server import Registry, avro_long, framed
from tests.support.says import refusal, says

AT = 1_700_000_000_123
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as one:
        yield one


def of(registry: Registry, user_info: str = "", ca_pem: str | None = None) -> SchemaRegistry:
    return SchemaRegistry(RegistrySettings(registry.url, user_info, ca_pem), 5)


def unread(registry: Registry | SchemaRegistry, kind: schemas.Kind, raw: bytes, *path: str) -> str:
    """Return why a value's field can't be read."""
    one = of(registry) if isinstance(registry, Registry) else registry
    return refusal(SchemaError, one.value, kind, raw, path or ("at",))


def record(fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def written(schema: Any, value: Any) -> bytes:
    """Write a value by the schema without its logical types: the numbers themselves."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(without(schema)), value)
    return out.getvalue()


def without(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without(one) for one in schema]
    if isinstance(schema, dict):
        return {key: without(value) for key, value in schema.items() if key != "logicalType"}
    return schema


# -- Avro ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "time_ms"),
    [
        ("long", AT, AT),  # a plain long is in ms
        (MILLIS, AT, AT),
        (MICROS, AT * 1_000 + 999, AT),
        ({"type": "long", "logicalType": "timestamp-nanos"}, AT * 1_000_000 + 999_999, AT),
        (["null", MICROS], AT * 1_000, AT),
        (["null", MICROS], None, None),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, AT, None),  # no moment: its zone is unknown
        ({"type": "long", "logicalType": "time-micros"}, AT, None),
        ({"type": "int", "logicalType": "date"}, 19_000, None),
        ("string", str(AT), AT),
        ("string", "2023-11-14T22:13:20.123Z", AT),
        ("double", float(AT), AT),
        ("bytes", str(AT).encode(), None),
        ("boolean", True, None),
        (MILLIS, 2**62, 2**62),  # far ahead is for G4 to see, not unreadable
        (MILLIS, -5, None),
    ],
)
def test_avro_field_is_read_by_its_type(registry: Registry, kind: Any, value: Any, time_ms: int | None) -> None:
    schema = record({"before": "string", "at": kind, "behind": {"type": "array", "items": "int"}})
    registry.add(7, schema)
    raw = framed(7, written(schema, {"before": "x", "at": value, "behind": [1, 2]}))
    assert read_time(event_source("avro:/at"), 0, None, raw, of(registry)) == time_ms


@pytest.mark.parametrize(
    ("path", "schema", "value"),
    [
        ("", MILLIS, AT),
        ("/meta/at", record({"meta": record({"at": MICROS}, "M")}), {"meta": {"at": AT * 1_000}}),
        ("/meta/at", record({"meta": ["null", record({"at": MILLIS}, "M")]}), {"meta": {"at": AT}}),
        ("/all/1", record({"all": {"type": "array", "items": MILLIS}}), {"all": [5, AT]}),
        ("/by/name", record({"by": {"type": "map", "values": MILLIS}}), {"by": {"name": AT}}),
    ],
)
def test_avro_path_leads_into_records_arrays_and_maps(registry: Registry, path: str, schema: Any, value: Any) -> None:
    registry.add(7, schema)
    assert read_time(event_source(f"avro:{path}"), 0, None, framed(7, written(schema, value)), of(registry)) == AT


SIMPLE = record({"at": MILLIS})


@pytest.mark.parametrize(
    "raw",
    [
        None,
        b"",
        b"\0\0\0\0",
        b'{"at": 1700000000123}',
        framed(7, b""),  # cut off
        framed(7, written(SIMPLE, {"at": AT}) + b"\0"),  # something behind it: of another schema
        framed(8, b"\x02"),  # a schema of another type
    ],
)
def test_value_that_is_not_of_its_schema_has_no_event_time(registry: Registry, raw: bytes | None) -> None:
    registry.add(7, SIMPLE)
    registry.add(8, "{}", "JSON")
    assert (
        of(registry).value("avro", raw, ("at",)),
        of(registry).value("avro", framed(7, written(SIMPLE, {"at": AT})), ("other",)),
    ) == (None, None)


def test_deeply_nested_value_ends_nothing_but_itself(registry: Registry) -> None:
    """Compiled code has no limit of recursion: ten kilobytes ended the process."""
    schema = record({"at": MILLIS, "next": ["null", "R"]})
    registry.add(7, schema)
    one = of(registry)
    assert (
        one.value("avro", framed(7, written(schema, {"at": AT, "next": {"at": 5, "next": None}})), ("at",)),
        one.value("avro", framed(7, b"\x02\x02" * 1_000_000 + b"\0"), ("at",)),
    ) == (AT, None)


def test_avro_references_are_fetched_once_each(registry: Registry) -> None:
    inner, middle = record({"at": MICROS}, "x.Inner"), record({"inner": "x.Inner"}, "x.Middle")
    refer = [{"name": "x.Inner", "subject": "a/b", "version": 3}]
    registry.answers |= {
        "/subjects/a%2Fb/versions/3?deleted=true": {"schema": json.dumps(inner)},
        "/subjects/middle/versions/1?deleted=true": {"schema": json.dumps(middle), "references": refer},
    }
    outer = record({"middle": "x.Middle", "inner": "x.Inner"}, "x.Outer")
    registry.add(7, outer, references=[{"name": "x.Middle", "subject": "middle", "version": 1}, *refer])
    raw = framed(7, avro_long(AT * 1_000) + avro_long(5_000))
    one = of(registry)
    assert [one.value("avro", raw, path) for path in (("middle", "inner", "at"), ("inner", "at"))] == [AT, 5]
    assert len(registry.asked) == len(set(registry.asked)) == 3


# -- Protobuf ------------------------------------------------------------------------------------------

INT64, STRING, MESSAGE, ENUM = 3, 9, 11, 14
ONE, MANY = 1, 3


def message(name: str, fields: Sequence[tuple[str, int, int, str | None]], **more: Any) -> dict[str, Any]:
    """Return a message as descriptors take it: its fields have their numbers by their order."""
    found = [
        {"name": field, "number": number, "type": kind, "label": label, "type_name": of_type}
        for number, (field, kind, label, of_type) in enumerate(fields, 1)
    ]
    return {"name": name, "field": found, **more}


def proto_file() -> descriptor_pb2.FileDescriptorProto:
    time, meta = ".google.protobuf.Timestamp", ".x.Order.Meta"
    fields = [
        ("ms", INT64, ONE, None),
        ("at", MESSAGE, ONE, time),
        ("text", STRING, ONE, None),
        ("kind", ENUM, ONE, ".x.E"),
        ("meta", MESSAGE, ONE, meta),
        ("all", MESSAGE, MANY, meta),
        ("stamps", MESSAGE, MANY, ".x.Order.StampsEntry"),
        ("moments", MESSAGE, MANY, ".x.Order.MomentsEntry"),
    ]
    nested = [
        message("Meta", [("ms", INT64, ONE, None)]),
        message("StampsEntry", [("key", STRING, ONE, None), ("value", INT64, ONE, None)], options={"map_entry": True}),
        message(
            "MomentsEntry", [("key", STRING, ONE, None), ("value", MESSAGE, ONE, time)], options={"map_entry": True}
        ),
    ]
    return descriptor_pb2.FileDescriptorProto(
        name="orders.proto",
        package="x",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
        enum_type=[{"name": "E", "value": [{"name": "ZERO", "number": 0}, {"name": "ONE", "number": 1}]}],
        message_type=[message("First", []), message("Order", fields, nested_type=nested)],
    )


def untyped() -> descriptor_pb2.FileDescriptorProto:
    """As Redpanda has it: fields of messages and enums name their type alone."""
    file = proto_file()
    for field in file.message_type[1].field:
        if field.type_name:
            field.ClearField("type")
    return file


def order(**fields: Any) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(proto_file())
    return bytes(message_factory.GetMessageClass(pool.FindMessageTypeByName("x.Order"))(**fields).SerializeToString())


SECOND = b"\x02\x02"
"""One index, 1: the file's second message."""


@pytest.mark.parametrize("file", [proto_file, untyped], ids=["as Confluent has it", "as Redpanda has it"])
@pytest.mark.parametrize(
    ("field", "raw", "time_ms"),
    [
        ("ms", SECOND + order(ms=AT), AT),
        ("ms", SECOND + order(text="x"), None),  # not set, or 0: the wire does not tell
        ("at", SECOND + order(at={"seconds": AT // 1_000, "nanos": 123_999_999}), AT),
        ("at/seconds", SECOND + order(at={"seconds": 5}), 5),
        ("text", SECOND + order(text="2023-11-14T22:13:20.123Z"), AT),
        ("kind", SECOND + order(kind=1), None),
        ("meta", SECOND + order(meta={"ms": 5}), None),
        ("meta/ms", SECOND + order(meta={"ms": AT}), AT),
        ("/meta/ms", SECOND + order(meta={"ms": AT}), AT),
        ("all/1/ms", SECOND + order(all=[{"ms": 5}, {"ms": AT}]), AT),
        ("all/2/ms", SECOND + order(all=[{"ms": 5}, {"ms": AT}]), None),
        ("stamps/a", SECOND + order(stamps={"a": AT}), AT),
        ("stamps/b", SECOND + order(stamps={"a": AT}), None),  # not 0, as the library has it
        ("moments/a", SECOND + order(moments={"a": {"seconds": 5}}), 5_000),
        ("moments/b", SECOND + order(moments={"a": {"seconds": 5}}), None),
        ("text/0", SECOND + order(text=str(AT)), None),
        ("nowhere", SECOND + order(ms=AT), None),
        ("ms", b"\x04\x02\x00\x08\x05", 5),  # its nested message: indexes 1, 0
        ("ms", b"\0\x08\x05", None),  # the first message, by the short form: it has no such field
        ("ms", b"\x02\x08\x08\x05", None),  # a message that the file does not have
        ("ms", b"\x01\x08\x05", None),
        ("ms", b"\x02\x01" + order(ms=AT), None),  # index −1: not the last message
        ("ms", b"\xff" * 20, None),
        ("ms", b"", None),
        ("ms", SECOND + b"\xff", None),
        ("ms", SECOND + b"\x2b" * 10_000, None),  # groups in groups
    ],
)
def test_protobuf_field_is_read_by_its_type(
    registry: Registry, file: Callable[[], object], field: str, raw: bytes, time_ms: int | None
) -> None:
    registry.add(7, file(), "PROTOBUF")
    assert read_time(event_source(f"protobuf:{field}"), 0, None, framed(7, raw), of(registry)) == time_ms


def test_protobuf_imports_come_from_the_references(registry: Registry) -> None:
    file = descriptor_pb2.FileDescriptorProto(
        name="outer.proto",
        syntax="proto3",
        dependency=["in/orders.proto"],
        message_type=[message("Outer", [("order", MESSAGE, ONE, ".x.Order")])],
    )
    registry.add(7, file, "PROTOBUF", [{"name": "in/orders.proto", "subject": "orders", "version": 1}])
    registry.add(9, proto_file(), "PROTOBUF")
    path = "/subjects/orders/versions/1?deleted=true"
    registry.answers[path] = registry.answers["/schemas/ids/9"]
    registry.answers[f"{path}&format=serialized"] = registry.answers["/schemas/ids/9?format=serialized"]
    inner = order(ms=AT)
    raw = framed(7, b"\0\x0a" + bytes([len(inner)]) + inner)
    assert of(registry).value("protobuf", raw, ("order", "ms")) == AT
    registry.add(7, file, "PROTOBUF")
    said = unread(registry, "protobuf", raw, "order", "ms")
    assert "it imports in/orders.proto, which is not among its references" in said


def test_registry_that_gives_protobuf_as_text_alone_makes_it_unknown(registry: Registry) -> None:
    answer = {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}
    registry.answers |= dict.fromkeys(("/schemas/ids/7", "/schemas/ids/7?format=serialized"), answer)
    assert "it gives Protobuf schemas as text alone" in unread(registry, "protobuf", framed(7, b"\0"), "ms")


# -- the registry --------------------------------------------------------------------------------------

RAW = framed(7, written(SIMPLE, {"at": AT}))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (404, "it has no such schema (HTTP 404): is it the registry that the producers use?"),
        (500, "it answered HTTP 500"),
        (302, "it answered HTTP 302"),  # a redirect would take the password along
        (401, "it refused the user (HTTP 401): see basic.auth.user.info"),
        (b"<html>", "its answer is not a registry's: is the URL complete?"),
        (b"[" * 100_000, "its answer is not a registry's"),
        (b'{"schemaType": 5}', "its answer is not a registry's"),
        ({}, "its answer has no schema"),
        ({"schema": "no Avro"}, "it is not an Avro schema that can be read"),
        ({"schema": '{"type": "record"}'}, "it is not an Avro schema that can be read"),
        ({"schema": '"x.Unknown"'}, "it is not an Avro schema that can be read"),
        ({"schema": '"long"', "references": ["x"]}, "its answer has an invalid reference"),
        ({"schema": '"long"', "references": 5}, "the references in its answer are not a list"),
        (b" " * (schemas.MAX_SCHEMA_BYTES + 1), "its answer is longer than 4,096 KiB"),
        (
            {"schema": json.dumps(SIMPLE), "references": [{"name": "x.R", "subject": "a", "version": 1}]},
            "its references are circular",
        ),
        *(  # ten bytes would be a quintillion of them
            (
                {"schema": json.dumps(record({"at": MILLIS, "all": {"type": "array", "items": items}}))},
                "it has an array whose items take no bytes",
            )
            for items in ("null", record({}, "Empty"), {"type": "fixed", "name": "F", "size": 0})
        ),
    ],
)
def test_schema_that_cannot_be_had_names_id_url_and_reason(registry: Registry, answer: Any, text: str) -> None:
    registry.answers |= dict.fromkeys(("/schemas/ids/7", "/subjects/a/versions/1?deleted=true"), answer)
    one = of(registry, "ada:s3cret")
    [said] = {unread(one, "avro", RAW) for _again in range(3)}
    assert said.startswith(f"schema 7, which could not be fetched from {registry.url}: {text}")
    assert "s3cret" not in said
    assert len(registry.asked) == len(set(registry.asked)), "a failure counts for a while"


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
@pytest.mark.parametrize("answer", [{}, {"status": "ok"}, {"schemaType": "JSON"}, {"schemaType": "PROTOBUF"}])
def test_answer_without_a_schema_is_unknown_for_every_source(
    registry: Registry, kind: schemas.Kind, answer: Any
) -> None:
    """Who answers 200 to all is no registry: its records would count as records without an event time."""
    registry.answers["/schemas/ids/7"] = answer
    assert "its answer has no schema" in unread(registry, kind, framed(7, b"\0"))


def test_registry_that_does_not_answer_is_asked_once(registry: Registry) -> None:
    registry.hold.clear()
    one = SchemaRegistry(RegistrySettings(registry.url), 0.2)
    for number in (7, 8, 9):
        assert re.match(f"schema {number}, .*timeout", unread(one, "avro", framed(number, b"\0")))
    assert len(registry.asked) == 1


def test_number_of_requests_is_bounded(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "MAX_FETCHES", 3)
    one = of(registry)
    for number in range(5):
        assert ("HTTP 404" if number < 3 else "more than 3 requests") in unread(one, "avro", framed(number, b"\0"))
    assert len(registry.asked) == 3


def test_password_goes_to_the_registry_alone(registry: Registry) -> None:
    registry.user_info = "ada:s3cret"
    registry.add(7, SIMPLE)
    assert of(registry, "ada:s3cret").value("avro", RAW, ("at",)) == AT
    assert "it refused the user" in unread(of(registry, "ada:wrong"), "avro", RAW)


def test_registry_behind_tls_is_trusted_by_its_own_certificate_alone(tmp_path: Path) -> None:
    with Registry(serving(tmp_path / "server.pem")) as registry:
        registry.add(7, SIMPLE)
        assert of(registry, ca_pem=self_signed()).value("avro", RAW, ("at",)) == AT
        assert "its certificate is not trusted" in unread(registry, "avro", RAW)


@pytest.mark.parametrize(("kind", "module"), [("avro", "fastavro"), ("protobuf", "google.protobuf.descriptor_pool")])
def test_missing_library_is_named_with_its_extra(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, kind: schemas.Kind, module: str
) -> None:
    registry.add(7, SIMPLE)
    registry.add(8, proto_file(), "PROTOBUF")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPartError, match=r"event times in Avro and Protobuf need fastavro and protobuf: .*avro"):
        of(registry).value(kind, framed(7 if kind == "avro" else 8, b"\0"), ("at",))


# -- the client's file ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "url", "user_info", "problem"),
    [
        ({"schema.registry.url": "http://r:8081/"}, "http://r:8081", "", ""),
        ({"schema.registry.url": "https://[::1]:8081/apis/ccompat/v7"}, "https://[::1]:8081/apis/ccompat/v7", "", ""),
        ({"schema.registry.url": "http://r", "basic.auth.user.info": "a:b"}, "http://r", "a:b", ""),
        (
            {
                "schema.registry.url": "http://r",
                "basic.auth.user.info": "x:y",
                "schema.registry.basic.auth.user.info": "a:b",
            },
            "http://r",
            "a:b",
            "",
        ),
        ({"schema.registry.url": "http://a:b%40@r:1"}, "http://r:1", "a:b@", ""),
        ({"schema.registry.url": "http://r", "basic.auth.user.info": "${env:X}"}, "http://r", "", "USER:PASSWORD"),
        ({"schema.registry.url": "http://r", "basic.auth.user.info": "a"}, "http://r", "", "USER:PASSWORD"),
        ({"schema.registry.url": "http://r:1,http://s:1"}, "", "", "not the address of one registry"),
        ({"schema.registry.url": "mock://r"}, "", "", "not the address of one registry"),
        ({"schema.registry.url": "${env:URL}"}, "", "", "not the address of one registry"),
        ({"schema.registry.url": "http://r?key=s3cret"}, "", "", "not the address of one registry"),
        ({"basic.auth.user.info": "a:b"}, "", "", "schema.registry.url is not set"),
        (
            {"schema.registry.url": "http://r", "schema.registry.ssl.ca.location": "/nowhere.pem"},
            "http://r",
            "",
            "/nowhere.pem cannot be read",
        ),
    ],
)
def test_client_file_names_the_registry(given: dict[str, str], url: str, user_info: str, problem: str) -> None:
    found = client_settings(given).registry
    assert (found.url, found.user_info, bool(found.problem)) == (url, user_info, bool(problem))
    says(found.problem, problem, never=["s3cret"])
    assert "a:b" not in repr(found)
    if problem:  # files that clients share may name what kretain never needs: only who needs it hears of it
        assert unread(SchemaRegistry(found), "avro", RAW).startswith("schema 7, which could not be fetched from")


def test_registry_settings_have_an_effect_and_are_masked() -> None:
    found = client_settings({"schema.registry.url": "http://r", "basic.auth.user.info": "ada:s3cret"})
    assert found.left_out == ()
    assert {"ada:s3cret", "s3cret"} <= set(found.secrets())
    assert "s3cret" not in repr(found)
