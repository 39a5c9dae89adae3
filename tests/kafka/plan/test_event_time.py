"""R2 on a real cluster: maxEventTime from data alone, and event times inside records, of real serializers too (R2, G4)."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.support.client_files import properties
from tests.support.http_server import Registry, apicurio, avro_long, framed
from tests.support.says import json_of, pick, rows_of, said, says
from tests.support.world import DAY, HOUR, Raw, World, end_transaction, now_ms, send_raw, texts, wait_until, written

NOW = now_ms()


def policy(topic: str, keep: str = "24h", **more: str) -> str:
    rules = {"retention.max.eventtime.ms": keep, "unconsumed": "trim", **more}
    lines = [f"    {key.replace('__', '.')}: {value}" for key, value in rules.items()]
    return "\n".join(["version: 1", "topics:", f"  - match: {topic}", *lines])


def hours_ago(*ages: float) -> list[int]:
    return [NOW - int(age * HOUR) for age in ages]


# -- the broker's own timestamps -------------------------------------------------------------


def test_markers_timestamp_is_no_event_time(world: World) -> None:
    """Old data, committed now: the marker is stamped with today, and nothing is older than it by right."""
    topic = world.topic("event")
    world.transaction(topic, hours_ago(970, 965, 960), end="commit")
    assert pick(world.decide(policy(topic, keep="7h"), topic), "trim_to", "rule") == (1, "event-time")


def test_marker_at_the_log_start_does_not_keep_the_records_behind_it(world: World) -> None:
    """docs/rules.md, Look-ups: an answer where no data record stands is settled by reading from there on."""
    topic = world.topic("event")
    for ages in ((1060, 1050), (1040, 1030)):
        world.transaction(topic, hours_ago(*ages), end="commit")
    world.produce_at(topic, hours_ago(960))
    assert world.decide(policy(topic, keep="48h"), topic).trim_to in (5, 6)  # at 5 stands a marker, at 6 the newest
    world.delete_records(topic, 2)  # and now a marker stands at the log start itself
    assert world.decide(policy(topic, keep="48h"), topic).trim_to in (5, 6)


@pytest.mark.parametrize("end", ["abort", "open"])
def test_timestamp_of_an_uncommitted_record_is_no_event_time(world: World, end: str) -> None:
    """Yet: that of a transaction that is open may become one."""
    topic = world.filled([age * HOUR for age in (900, 890, 880)])
    producer = world.transaction(topic, hours_ago(10), end=end)
    assert world.decide(policy(topic), topic).action == "keep"
    if end == "open":
        producer.commit_transaction(30)
        assert world.decide(policy(topic), topic).trim_to == 3


def test_largest_event_time_is_remembered_after_its_record_is_deleted(world: World) -> None:
    """Removing the memory changes the decision: maxEventTime is the largest that was ever held."""
    topic = world.filled([age * HOUR for age in (10, 100, 90, 80)])
    assert world.decide(policy(topic), topic).trim_to is None
    world.delete_records(topic, 1)
    assert world.decide(policy(topic), topic).trim_to == 4
    shutil.rmtree(world.state_dir)
    assert pick(world.decide(policy(topic), topic), "action", "trim_to") == ("keep", None)


def test_newest_record_is_found_behind_many_markers(world: World) -> None:
    """The last data record stands more than a window before L: it is found all the same, and said to be at least."""
    topic = world.filled([1060 * HOUR, 960 * HOUR])
    producer = world.begin_transaction()
    for _ in range(70):
        producer.produce(topic, b"x", timestamp=NOW - HOUR)
        producer.flush(30)
        producer.abort_transaction(30)
        producer.begin_transaction()
    decision = world.decide(policy(topic), topic)
    assert (decision.trim_to, "at least" in texts(decision)) == (1, True), decision


@pytest.mark.parametrize("looked", [False, True], ids=["never looked", "looked with source: timestamp"])
def test_timestamps_from_a_log_append_time_period_are_no_event_times(world: World, *, looked: bool) -> None:
    """The topic was LogAppendTime until today: those records carry wall-clock times. So does what was read then (M0)."""
    topic = world.filled(2, stem="event", message_timestamp_type="LogAppendTime")
    if looked:
        assert world.decide(policy(topic, retention__eventtime__source="timestamp"), topic).action == "keep"
    old = hours_ago(40 * 24 + 50, 40 * 24)

    def kept() -> bool:  # a broker tells the new setting a moment before its logs go by it
        world.produce_at(topic, old)
        return world.records(topic)[-1][1] == old[-1]

    world.configure(topic, {"message.timestamp.type": "CreateTime"})
    wait_until(kept, "the log takes producers' stamps")
    # by the first stamps everything after them would be too old
    assert pick(world.decide(policy(topic), topic), "action") == ("keep",)
    first = world.ends(topic)[1] - 2
    world.delete_records(topic, first)
    assert world.decide(policy(topic), topic).trim_to == first + 1


# -- future and broken stamps (G4) --------------------------------------------------------------


@pytest.mark.parametrize("stamp", [NOW + 30 * DAY, NOW * 1000], ids=["future", "microseconds"])
def test_single_future_timestamp_holds_the_topic_and_names_the_remedy(world: World, stamp: int, tmp_path: Path) -> None:
    topic = world.topic("event", message_timestamp_after_max_ms=str(2**63 - 1))
    world.produce_at(topic, [*hours_ago(72, 48, 2), stamp, *hours_ago(1)])
    decision = world.decide(policy(topic), topic)
    assert (decision.action, "G4 the record at offset 3 is stamped" in texts(decision)) == ("hold", True), decision
    assert world.decide(policy(topic, retention__eventtime__ignore__future="true"), topic).trim_to == 2
    explained = world.cli("explain", topic, "-p", str(written(tmp_path / "policy.yaml", policy(topic))), check=0).out
    says(explained, "offset 3")
    says(" ".join(explained.split()), "retention.eventtime.ignore.future")


def test_ignore_future_continues_once_the_bad_record_is_deleted(world: World) -> None:
    topic = world.filled([-9 * DAY, 72 * HOUR, 48 * HOUR, 2 * HOUR], message_timestamp_after_max_ms=str(2**63 - 1))
    ignoring = policy(topic, retention__eventtime__ignore__future="true")
    blocked = world.decide(ignoring, topic)
    assert (blocked.trim_to, "in the future" in texts(blocked)) == (None, True), blocked
    world.delete_records(topic, 1)
    assert world.decide(policy(topic), topic).action == "hold"  # the bad stamp is remembered
    assert world.decide(ignoring, topic).trim_to == 3


def test_ignore_future_works_after_the_stamp_was_read_from_a_header(world: World) -> None:
    """G4: what a scan took for the newest event time, before the policy said to ignore the future, is read again."""
    topic = world.topic("event", message_timestamp_type="LogAppendTime")
    times = [*hours_ago(72, 60, 48, 2), NOW + 30 * DAY, *hours_ago(1)]
    world.produce_at(topic, [NOW] * 6, headers=lambda n: [("et", str(times[n]).encode())])
    source = {"retention__eventtime__source": '"header:et"'}
    assert "G4 the record at offset 4 is stamped" in texts(world.decide(policy(topic, **source), topic))
    assert world.decide(policy(topic, retention__eventtime__ignore__future="true", **source), topic).trim_to == 3


# -- event times inside records ---------------------------------------------------------------------


def test_record_above_100_mb_is_read(world: World) -> None:
    """By default librdkafka takes answers of 100,000,000 bytes: the record never came."""
    topic = world.topic("event", message_timestamp_type="LogAppendTime", max_message_bytes=str(100 << 20))
    times = hours_ago(72, 60, 48, 1)
    for n in range(4):
        value = bytes(102_000_000 if n == 1 else 10)
        header = [("et", str(times[n]).encode())]
        world.produce_at(topic, [NOW], value=value, headers=lambda _, header=header: header)  # type: ignore[misc]
    by_header = policy(topic, retention__eventtime__source='"header:et"')
    assert pick(world.decide(by_header, topic), "trim_to", "rule") == (3, "event-time")


def test_records_without_an_event_time_hold(world: World) -> None:
    """R2: it was a keep that said "it holds no data record"."""
    for source, value, headers in (
        ("json:/at", b"\x00\x00\x00\x00\x07\x80\xd0\x95\xff\xbc\x31", []),  # Avro
        ("json:/when", b'{"at": 1700000000000}', []),
        ("header:et", b"x", [("et", (1_700_000_000_000).to_bytes(8, "big"))]),
    ):
        topic = world.topic("event", message_timestamp_type="LogAppendTime")
        world.produce_at(topic, [NOW] * 4, value=value, headers=lambda _, headers=headers: headers)  # type: ignore[misc]
        world.delete_records(topic, 1)
        for more in ({}, {"on__unreadable": "skip"}):
            decision = world.decide(policy(topic, retention__eventtime__source=f"'{source}'", **more), topic)
            why = f"has an event time at {source}, the first of them at offset 1"
            assert (decision.action, why in texts(decision)) == ("hold", True), decision


def test_event_times_come_from_json_values_despite_transactions_and_tombstones(world: World) -> None:
    topic = world.topic("event", message_timestamp_type="LogAppendTime", cleanup_policy="compact,delete")

    def batch(*values: bytes | None, end: str) -> None:
        producer = world.begin_transaction()
        for number, value in enumerate(values):
            producer.produce(topic, value, f"k{number}")
        producer.flush(30)
        end_transaction(producer, commit=end == "commit")

    def at(hours: float) -> bytes:
        return json.dumps({"meta": {"at": NOW - int(hours * HOUR)}}).encode()

    batch(at(72), at(60), end="commit")  # 0, 1, marker 2
    batch(at(0.5), end="abort")  # 3, marker 4: never happened
    batch(at(50), None, at(40), end="commit")  # 5, tombstone 6, 7, marker 8
    batch(at(1), end="commit")  # 9
    source = {"retention__eventtime__source": '"json:/meta/at"', "compacted": "trim"}
    decision = world.decide(policy(topic, **source), topic)
    assert (decision.trim_to, "offset 6 has no event time" in texts(decision)) == (6, True), decision
    # up to the first record that is young
    assert world.decide(policy(topic, on__unreadable="skip", **source), topic).trim_to == 9


# -- G9 in what is read out of records, and across gaps ------------------------------------------------


@pytest.mark.parametrize("kind", ["header", "json"])
def test_event_times_in_seconds_hold_the_topic_and_are_named(world: World, kind: str) -> None:
    """G9: 20 records of now, each with its event time in seconds; and one whose producer got it right."""
    topic = world.topic("event")
    source = {"retention__eventtime__source": "'header:et'" if kind == "header" else "'json:/et'"}

    def write(time: int, count: int) -> None:
        text = str(time).encode()
        world.produce_at(topic, [now_ms()] * count, value=b'{"et": %b}' % text, headers=lambda _: [("et", text)])

    write(NOW // 1000, 20)
    write(NOW, 1)
    first = trim_row(world, policy(topic, **source), topic)
    assert (first["outcome"], world.ends(topic)) == ("held", (0, 21))
    says(said(first), "G9 ", "offset 0,")
    for more in ({}, {"on__unreadable": "skip"}):  # out of the memory, as well
        assert trim_row(world, policy(topic, **source, **more), topic)["outcome"] == "held"
    assert trim_row(world, policy(topic, allow__ancient="true", **source), topic)["log_start"] == 20


def test_compaction_gap_at_the_log_start_is_no_old_timestamp(world: World) -> None:
    """G9: a look-up of 2000 answers behind the gap, and the record that stands there is of today."""
    topic = world.topic(
        "event",
        cleanup_policy="compact,delete",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        min_compaction_lag_ms="0",
    )
    world.produce_at(topic, hours_ago(*[60] * 5))  # keys k0 to k4 …
    world.produce_at(topic, hours_ago(*[50] * 5))  # … again
    time.sleep(0.2)
    world.produce_at(topic, hours_ago(1))

    def cleaned() -> bool:
        world.produce_at(topic, [now_ms()])  # a segment is rolled where one is appended to
        time.sleep(0.2)
        return world.records(topic)[0][0] >= 5

    wait_until(cleaned, "compaction")
    assert world.ends(topic)[0] == 0
    row = trim_row(world, f"version: 1\ntopics: [{{match: {topic}, retention.ms: 24h, compacted: trim}}]", topic)
    assert (row["outcome"], "G9 " in said(row)) == ("trimmed", False), row
    assert world.ends(topic)[0] >= 10


def trim_row(world: World, text: str, topic: str) -> dict[str, Any]:
    path = written(world.state_dir.parent / f"{topic}.yaml", text)
    return rows_of(world, "trim", topic, "-p", str(path), "--yes")[topic]  # type: ignore[no-any-return]


# -- records that can't be read ------------------------------------------------------------------------


LONG_NUMBER = b"1" * 4_400


@pytest.mark.parametrize("kind", ["header name", "header", "json"])
def test_unreadable_record_affects_only_its_partition(world: World, kind: str, tmp_path: Path) -> None:
    """It holds from its offset on, or is passed over where the policy says so; every other topic goes on."""
    source = "'json:/et'" if kind == "json" else "'header:et'"
    bad, good = world.topic("bad"), world.topic("good")
    for topic in (bad, good):
        for number, age in enumerate((100, 100, 100, 100, 1)):
            text = str(NOW - age * HOUR).encode()
            if topic == bad and number == 2:
                text = b'"%b"' % LONG_NUMBER if kind == "json" else LONG_NUMBER
            if topic == bad and number == 2 and kind == "header name":
                send_raw(world, topic, Raw("et"))
            else:
                value = b'{"et": %b}' % text
                world.produce_at(topic, [NOW], value=value, headers=lambda _, text=text: [("et", text)])  # type: ignore[misc]
    more = {"retention__eventtime__source": source}
    path = written(tmp_path / "policy.yaml", policy(f"[{bad}, {good}]", **more))
    world.cli("explain", bad, "-p", str(path), check=0)
    assert "offset 2 has no event time" in said(rows_of(world, "plan", bad, "-p", str(path))[bad])
    trim = ("trim", "-p", str(path), "--yes")
    rows = rows_of(world, *trim, check=None)
    assert (rows[bad]["log_start"], rows[good]["log_start"]) == (2, 4)
    path.write_text(policy(f"[{bad}, {good}]", on__unreadable="skip", **more))
    assert rows_of(world, *trim, check=None)[bad]["log_start"] == 4


def test_non_utf8_header_name_breaks_no_other_command(world: World, tmp_path: Path) -> None:
    """An archive of it is held, and the others are archived; what only looks at records goes on."""
    bad, good = (world.filled([100 * HOUR] * 3, {"g": 3}, stem=stem) for stem in ("bad", "good"))
    send_raw(world, bad, Raw("et"))
    world.commit(f"{bad}-g", bad, 4)
    rules = "retention.commitoffset.enable: true, retention.commitoffset.ms: 0"
    text = f"version: 1\ntopics: [{{match: [{bad}, {good}], {rules}, archive: {tmp_path / 'archive'}}}]"
    path = written(tmp_path / "policy.yaml", text)
    rows = rows_of(world, "trim", "-p", str(path), "--yes", check=None)
    assert pick(rows[good], "outcome", "log_start") == ("trimmed", 3)
    assert (rows[bad]["outcome"], world.ends(bad), "offset 3" in said(rows[bad])) == ("held", (0, 4), True)
    path.write_text(policy(bad, retention__eventtime__source="'header:et'"))
    for more in ((), ("-p", str(path), "--event-time")):
        profile = json_of(world, "profile", bad, *more)["topics"][0]
        assert profile["records"] == 4, profile
    assert profile["no_event_time"] == 4, profile
    world.cli("advise", bad, check=0)


AGES = (72, 60, 48, 1)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apicurio(tmp_path_factory.mktemp("apicurio")) as url:
        yield url


def client_file(tmp_path: Path, url: str, **more: str) -> str:
    return str(properties(tmp_path, **{"schema.registry.url": url, **more}))


def policy_file(tmp_path: Path, topic: str, source: str, **more: str) -> str:
    return str(written(tmp_path / f"{topic}.yaml", policy(topic, retention__eventtime__source=f"'{source}'", **more)))


def planned(world: World, config: str, rules: str) -> dict[str, Any]:
    [row] = json_of(world, "plan", "-p", rules, "-c", config, check=None)["partitions"]
    return {**row, "texts": said(row)}


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
    write = JSONSerializer(
        json.dumps({"title": "Order", "type": "object", "properties": {"at": {"type": "integer"}}}), client
    )
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
    config, rules = client_file(tmp_path, registry), policy_file(tmp_path, topic, source)
    assert pick(planned(world, config, rules), "action", "trim_to") == ("trim", 3)
    by = ("-p", rules, "-c", config)
    assert "bound of event-time" in world.cli("explain", topic, *by, check=0).out
    assert json_of(world, "profile", topic, *by, "--by-event-time")["topics"][0]["no_event_time"] == 0
    world.cli("trim", *by, "--yes", check=0)
    assert world.ends(topic) == (3, 4)


def test_missing_schema_holds_until_it_is_there_and_is_never_remembered(
    world: World, registry: str, tmp_path: Path
) -> None:
    """Nor where records without an event time may be passed over: these may well have one."""
    client = SchemaRegistryClient({"url": registry})
    values = by_avro(client, world.topic("subject"), [NOW - age * HOUR for age in AGES])
    topic = filled(world, values)
    rules = policy_file(tmp_path, topic, "avro:/meta/at", on__unreadable="skip")
    number = int.from_bytes(values[0][1:5], "big")
    with Registry() as other:
        config = client_file(tmp_path, other.url, **{"basic.auth.user.info": "ada:s3cret"})
        for answer, text in ((404, "it has no such schema (HTTP 404)"), (503, "it answered HTTP 503")):
            other.answers[f"/schemas/ids/{number}"] = answer
            where = f"the record at offset 0 is of schema {number}, which could not be fetched"
            held_by(
                planned(world, config, rules), f"R2 its event times could not be read: {where} from {other.url}: {text}"
            )
        wrong = world.cli("profile", topic, "-p", rules, "-c", config, "--by-event-time", check=5)
        assert where in " ".join((wrong.out + wrong.err).split())
        done = world.cli("trim", "-p", rules, "-c", config, "--yes", "-vv")
        assert "s3cret" not in done.out + done.err
        assert world.ends(topic) == (0, 4)
    held_by(planned(world, client_file(tmp_path, other.url), rules), "Connection refused")
    assert planned(world, client_file(tmp_path, registry), rules)["trim_to"] == 3


def test_scan_stops_at_a_missing_schema_and_goes_on_there(world: World, tmp_path: Path) -> None:
    """M0: what was read by one registry's schemas says nothing under another's."""
    with Registry() as first, Registry() as second:
        times = [NOW - age * HOUR for age in AGES]
        topic = filled(world, [framed(1 if n < 2 else 2, avro_long(one)) for n, one in enumerate(times)])
        rules = policy_file(tmp_path, topic, "avro:")
        first.add(1, {"type": "long", "logicalType": "timestamp-millis"})
        held_by(planned(world, client_file(tmp_path, first.url), rules), "the record at offset 2 is of schema 2")
        first.add(2, {"type": "long", "logicalType": "timestamp-millis"})
        assert planned(world, client_file(tmp_path, first.url), rules)["trim_to"] == 3
        # there the same ids are of micros: all of them were in January 1970
        for number in (1, 2):
            second.add(number, {"type": "long", "logicalType": "timestamp-micros"})
        row = planned(world, client_file(tmp_path, second.url), rules)
        assert row["action"] != "trim", row["texts"]


def held_by(row: dict[str, Any], words: str) -> None:
    assert (row["action"], words in row["texts"]) == ("hold", True), row
