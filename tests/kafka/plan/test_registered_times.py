"""R2 by event times in Avro, Protobuf and JSON Schema values, with a real registry and real serializers."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from tests.support.schema_registry import Registry, apicurio, avro_long, framed
from tests.support.world import HOUR, World, now_ms, written

NOW = now_ms()
AGES = (72, 60, 48, 1)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apicurio(tmp_path_factory.mktemp("apicurio")) as url:
        yield url


def client_file(tmp_path: Path, url: str, **more: str) -> str:
    path = tmp_path / "client.properties"
    lines = {"schema.registry.url": url, **{key.replace("__", "."): value for key, value in more.items()}}
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return str(path)


def policy(tmp_path: Path, topic: str, source: str, more: str = "") -> str:
    path = tmp_path / f"{topic}.yaml"
    rules = f"retention.max.eventtime.ms: 24h, retention.eventtime.source: '{source}', unconsumed: trim{more}"
    path.write_text(f"version: 1\ntopics: [{{match: {topic}, {rules}}}]")
    return str(path)


def planned(world: World, config: str, rules: str) -> dict[str, Any]:
    row = world.cli("plan", "-p", rules, "-c", config, "-o", "json").json()["partitions"][0]
    row["texts"] = " | ".join(f"{one['code']} {one['text']}" for one in row["reasons"])
    return dict(row)


Serialize = Callable[[SchemaRegistryClient, str, list[int]], list[bytes]]


def by_avro(client: SchemaRegistryClient, topic: str, times: list[int]) -> list[bytes]:
    """Its event time is in a record that another subject has."""
    units = [{"type": "long", "logicalType": f"timestamp-{one}"} for one in ("millis", "micros")]
    inner = {"type": "record", "name": "x.Meta", "fields": [{"name": "at", "type": ["null", units[1]]}]}
    client.register_schema(f"{topic}-meta", Schema(json.dumps(inner), "AVRO"))
    fields = [{"name": "written", "type": units[0]}, {"name": "meta", "type": "x.Meta"}]
    outer = json.dumps({"type": "record", "name": "x.Order", "fields": fields})
    write = AvroSerializer(client, Schema(outer, "AVRO", [SchemaReference("x.Meta", f"{topic}-meta", 1)]))
    moments = [dt.datetime.fromtimestamp(one / 1000, dt.UTC) for one in times]
    values = [{"written": dt.datetime.now(dt.UTC), "meta": {"at": one}} for one in moments]
    return [bytes(write(one, SerializationContext(topic, MessageField.VALUE))) for one in values]


def by_json_schema(client: SchemaRegistryClient, topic: str, times: list[int]) -> list[bytes]:
    schema = {"title": "Order", "type": "object", "properties": {"at": {"type": "integer"}}}
    write = JSONSerializer(json.dumps(schema), client)
    return [bytes(write({"at": one}, SerializationContext(topic, MessageField.VALUE))) for one in times]


def by_protobuf(client: SchemaRegistryClient, topic: str, times: list[int]) -> list[bytes]:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="ms", number=1, type=3, label=1)
    message.nested_type.add(name="Meta").field.add(name="ms", number=1, type=3, label=1)
    message.field.add(name="meta", number=2, type=11, label=1, type_name=".Order.Meta")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
    write = ProtobufSerializer(made, client)
    values = [made(meta=made.Meta(ms=one)) for one in times]
    return [bytes(write(one, SerializationContext(topic, MessageField.VALUE))) for one in values]


def filled(world: World, values: list[bytes]) -> str:
    topic = world.topic("registered", message_timestamp_type="LogAppendTime")
    for value in values:
        world.produce_at(topic, [NOW], value=value)
    return topic


@pytest.mark.parametrize(
    ("source", "serialize"),
    [("avro:/meta/at", by_avro), ("json:/at", by_json_schema), ("protobuf:meta/ms", by_protobuf)],
)
def test_event_times_of_real_serializers_are_read(
    world: World, registry: str, tmp_path: Path, source: str, serialize: Serialize
) -> None:
    client = SchemaRegistryClient({"url": registry})
    topic = filled(world, serialize(client, world.topic("subject"), [NOW - age * HOUR for age in AGES]))
    config, rules = client_file(tmp_path, registry), policy(tmp_path, topic, source)
    row = planned(world, config, rules)
    assert (row["action"], row["trim_to"]) == ("trim", 3), row["texts"]
    assert "event-time asks for this" in world.cli("explain", topic, "-p", rules, "-c", config, check=0).out
    profile = world.cli("profile", topic, "-p", rules, "-c", config, "--by-event-time", "-o", "json", check=0).json()
    assert profile["topics"][0]["no_event_time"] == 0
    world.cli("trim", "-p", rules, "-c", config, "--yes", check=0)
    assert world.ends(topic) == (3, 4)


def test_protobuf_by_a_descriptor_and_its_imports(world: World, tmp_path: Path) -> None:
    """As Confluent's registry gives it: Apicurio can't serialize every schema."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="x", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Order").field.add(
        name="at", number=1, type=11, label=1, type_name=".google.protobuf.Timestamp"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("x.Order"))
    values = [made(at={"seconds": NOW // 1000 - age * 3600}) for age in AGES]
    topic = filled(world, [framed(9, b"\0" + one.SerializeToString()) for one in values])
    with Registry() as registry:
        registry.add(9, file, "PROTOBUF")
        row = planned(world, client_file(tmp_path, registry.url), policy(tmp_path, topic, "protobuf:at"))
    assert (row["action"], row["trim_to"]) == ("trim", 3), row["texts"]


def test_missing_schema_holds_until_it_is_there_and_is_never_remembered(
    world: World, registry: str, tmp_path: Path
) -> None:
    """Nor where records without an event time may be passed over: these may well have one."""
    client = SchemaRegistryClient({"url": registry})
    values = by_avro(client, world.topic("subject"), [NOW - age * HOUR for age in AGES])
    topic = filled(world, values)
    rules = policy(tmp_path, topic, "avro:/meta/at", ", on.unreadable: skip")
    number = int.from_bytes(values[0][1:5], "big")
    with Registry() as other:
        config = client_file(tmp_path, other.url, **{"basic.auth.user.info": "ada:s3cret"})
        for answer, text in ((404, "it has no such schema (HTTP 404)"), (503, "it answered HTTP 503")):
            other.answers[f"/schemas/ids/{number}"] = answer
            row = planned(world, config, rules)
            assert row["action"] == "hold"
            where = f"the record at offset 0 is of schema {number}, which could not be fetched from {other.url}: {text}"
            assert f"R2 its event times could not be read: {where}" in row["texts"]
        wrong = world.cli("profile", topic, "-p", rules, "-c", config, "--by-event-time", check=5)
        assert f"the record at offset 0 is of schema {number}, which could not be fetched" in " ".join(
            (wrong.out + wrong.err).split()
        )
        done = world.cli("trim", "-p", rules, "-c", config, "--yes", "-vv")
        assert "s3cret" not in done.out + done.err
        assert world.ends(topic) == (0, 4)
    row = planned(world, client_file(tmp_path, other.url), rules)
    assert row["action"] == "hold"
    assert "Connection refused" in row["texts"]
    assert planned(world, client_file(tmp_path, registry), rules)["trim_to"] == 3


def test_scan_stops_at_a_missing_schema_and_goes_on_there(world: World, tmp_path: Path) -> None:
    """M0: what was read by one registry's schemas says nothing under another's."""
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    with Registry() as first, Registry() as second:
        times = [NOW - age * HOUR for age in AGES]
        topic = filled(world, [framed(1 if n < 2 else 2, avro_long(one)) for n, one in enumerate(times)])
        rules = policy(tmp_path, topic, "avro:")
        first.add(1, millis)
        row = planned(world, client_file(tmp_path, first.url), rules)
        assert row["action"] == "hold"
        assert "the record at offset 2 is of schema 2" in row["texts"]
        first.add(2, millis)
        assert planned(world, client_file(tmp_path, first.url), rules)["trim_to"] == 3
        # there the same ids are of micros: all of them were in January 1970
        second.add(1, {"type": "long", "logicalType": "timestamp-micros"})
        second.add(2, {"type": "long", "logicalType": "timestamp-micros"})
        row = planned(world, client_file(tmp_path, second.url), rules)
        assert row["action"] != "trim", row["texts"]


def test_source_without_a_registry_holds_and_says_where_to_name_it(world: World, tmp_path: Path) -> None:
    topic = filled(world, [framed(7, b"\0")])
    config = written(tmp_path / "client.properties", "client.id=x\n")
    row = planned(world, str(config), policy(tmp_path, topic, "avro:/at"))
    assert row["action"] == "hold"
    assert "schema.registry.url is not set: write it into the client's file (-c FILE)" in row["texts"]
