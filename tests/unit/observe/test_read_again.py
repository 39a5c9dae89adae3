"""R2: what a scan remembers, and records that give other event times when they are read again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.records import OnRecord, Range
from retention_cli.brokers.schemas import SchemaRegistry
from retention_cli.brokers.security.registry_settings import RegistrySettings
from retention_cli.core.model import EventMax, EventPrefix, Maybe, PartitionFacts, TopicPartition, Unknown
from retention_cli.memory.partition import PartitionMemory
from retention_cli.observe.event_times import EventTimes, read_event_times
from retention_cli.observe.lineage import Reading
from retention_cli.policy.settings import Settings, event_source
from tests.support import facts
from tests.support.facts import HOUR, NOW, Log
from tests.support.schema_registry import Registry, avro_long, framed

TP = TopicPartition("orders", 0)
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


@dataclass
class Message:
    at: int
    raw: bytes | None

    def timestamp(self) -> tuple[int, int]:
        return 0, -1

    def offset(self) -> int:
        return self.at

    def leader_epoch(self) -> int | None:
        return None

    def value(self) -> bytes | None:
        return self.raw


class Partition:
    """A partition of Avro records, with what kretain remembers of it."""

    def __init__(self, registry: Registry, values: list[bytes | None], source: str) -> None:
        self.registry, self.records = registry, dict(enumerate(values))
        self.settings = Settings(event_time_ms=24 * HOUR, event_source=event_source(source), skip_unreadable=True)
        self.memory = PartitionMemory()

    def read(self, start: int = 0) -> tuple[Maybe[EventMax | None], Maybe[EventPrefix]]:
        """Run R2's reading once more, with schemas that are fetched anew."""
        schemas = SchemaRegistry(RegistrySettings(self.registry.url), 5)
        reader: Any = SimpleNamespace(
            schemas=schemas, read_ranges=self._read_ranges, timeout_s=1, clock=SimpleNamespace(monotonic=lambda: 0.0)
        )
        reading = Reading(reader, {}, {"orders": self.settings}, {TP: self.memory}, NOW, None, lambda *_: None)
        end = max(self.records) + 1
        log = Log(start, [0] * (end - start))
        one: PartitionFacts = log.facts(self.settings, facts.topic(timestamp_type="LogAppendTime"), {})
        found: EventTimes = read_event_times(reading, {TP: one})
        return found.newest[TP], found.prefix[TP]

    def _read_ranges(
        self, ranges: Mapping[TopicPartition, Range], _deadline: object, on_record: OnRecord, **_: object
    ) -> dict[TopicPartition, RequestFailedError | None]:
        ended: dict[TopicPartition, RequestFailedError | None] = dict.fromkeys(ranges)
        for tp, part in ranges.items():
            try:
                for at in range(part.start, part.end):
                    if at in self.records and on_record(tp, Message(at, self.records[at])):  # type: ignore[arg-type]
                        break
            except RequestFailedError as error:
                ended[tp] = error
        return ended


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as one:
        yield one


def aged(*hours: int) -> list[bytes | None]:
    return [framed(7, avro_long(NOW - one * HOUR)) for one in hours]


def order(*hours: int) -> list[bytes | None]:
    """Return records of two times, the second so old: both are longs, so that they decode in any order."""
    return [framed(7, avro_long(NOW - (one + 100) * HOUR) + avro_long(NOW - one * HOUR)) for one in hours]


def of_longs(*names: str) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": one, "type": MILLIS} for one in names]}


@pytest.mark.parametrize(("schema", "kind"), [("{}", "JSON"), ("boolean", "AVRO"), ("string", "AVRO")])
@pytest.mark.parametrize("start", [0, 1])
def test_records_that_had_event_times_and_have_none_now_hold(
    registry: Registry, schema: str, kind: str, start: int
) -> None:
    """A registry that was replaced under its URL: young records would count as records without an event time."""
    registry.add(7, MILLIS)
    one = Partition(registry, [*aged(72, 60), None, *aged(1, 0)], "avro:")
    newest, prefix = one.read()
    assert isinstance(prefix, EventPrefix)
    assert prefix.offset == 3
    registry.add(7, schema if kind == "JSON" else json.dumps(schema), kind)
    one.records |= dict(enumerate(aged(0, 0), len(one.records)))
    again, prefix = one.read(start)
    assert again == newest
    assert isinstance(prefix, Unknown)
    assert re.search(r"the record at offset \d has none now; does the registry return other", prefix.reasons[0].text)


@pytest.mark.parametrize("start", [0, 1, 4])
def test_records_that_are_all_older_than_they_were_hold(registry: Registry, start: int) -> None:
    """Another field stands where the event time stood."""
    registry.add(7, of_longs("written", "at"))
    one = Partition(registry, [None, *order(72, 60), None, *order(1, 0)], "avro:/at")
    _, prefix = one.read()
    assert isinstance(prefix, EventPrefix)
    assert prefix.offset == 4
    registry.add(7, of_longs("at", "written"))
    _, prefix = one.read(start)
    assert isinstance(prefix, Unknown)
    assert "those before offset 6 are all older now; does the registry" in prefix.reasons[0].text


def test_record_that_is_gone_ends_no_prefix_of_what_cannot_change(registry: Registry) -> None:
    """Compaction takes the young record of a block; JSON says what it always said."""
    values: list[bytes | None] = [str(NOW - one * HOUR).encode() for one in (72, 1)]
    one = Partition(registry, [*values, None], "json:")
    _, prefix = one.read()
    assert isinstance(prefix, EventPrefix)
    assert prefix.offset == 1
    del one.records[1]
    _, prefix = one.read()
    assert isinstance(prefix, EventPrefix)
    assert prefix.offset == 3
