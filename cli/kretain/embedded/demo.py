"""The demo's cluster: topics with real data, and consumer groups at typical positions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kretain.embedded import flights
from kretain.embedded.cluster import EmbeddedKafka
from kretain.embedded.errors import EmbeddedError
from kretain.embedded.flights import Record
from kretain.embedded.jars import Progress

TOPICS: Final = {"flights": 4, "weather": 3}
POLICY: Final = """\
version: 1
groups:
  require: [billing]        # no billing group, no trim
limits: {max.percent: 95}   # a plan that would take more is refused
topics:
  - match: flights
    retention.commitoffset.enable: true
    retention.commitoffset.hours: 72
  - match: weather
    retention.commitoffset.enable: true
    retention.commitoffset.hours: 72
"""
_AIRPORTS: Final = ("EWR", "JFK", "LGA")
_READ_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Reader:
    """A consumer group to run: the share of each partition that it reads, and the partitions without its commits."""

    group: str
    topic: str
    share: float
    story: str
    without: Sequence[int] = ()


READERS: Final = (
    Reader("billing", "flights", 1.0, "reads all of flights"),
    Reader("delays", "flights", 0.9, "reads nine tenths of flights, and stops"),
    Reader("billing", "weather", 1.0, "reads all of weather"),
    Reader("archive", "weather", 0.5, "reads half of weather, and stops"),
    Reader("forecast", "weather", 1.0, "reads weather and commits on all but partition 2", without=(2,)),
)


def load(kafka: EmbeddedKafka, progress: Progress) -> None:
    """Create the topics and produce all flights and weather, with their event times.

    Raises:
        EmbeddedError: a record was not accepted.
    """
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # (it is there)

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    # The data is from 2013: without this the brokers' own retention (7 days) would delete it at once.
    config = {"retention.ms": "-1", "segment.bytes": "1048576"}
    wanted = [NewTopic(name, partitions, 1, config=config) for name, partitions in TOPICS.items()]
    for future in admin.create_topics(wanted).values():
        future.result()
    progress(f"loading {flights.FLIGHTS:,} flights and {flights.WEATHER:,} hours of weather …")
    _produce(kafka, "flights", flights.flights())
    _produce(kafka, "weather", flights.weather())


def _produce(kafka: EmbeddedKafka, topic: str, records: Iterator[Record]) -> None:
    from confluent_kafka import Producer

    failed: list[str] = []

    def on_delivery(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "linger.ms": 50,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
        }
    )
    for record in records:
        # Three airports, three partitions: hashing would leave one of them empty.
        partition = _AIRPORTS.index(record.key) if topic == "weather" else -1
        producer.produce(
            topic, record.value, record.key, partition, timestamp=record.timestamp_ms, on_delivery=on_delivery
        )
        producer.poll(0)
    if producer.flush(60) or failed:
        raise EmbeddedError(f"the demo's data was not taken: {failed[0] if failed else 'time-out'}")


def run_groups(kafka: EmbeddedKafka, progress: Progress) -> None:
    """Run each of :data:`READERS` as a real consumer, until it has reached its position.

    Raises:
        EmbeddedError: a consumer did not reach its position in time.
    """
    for reader in READERS:
        progress(f"group {reader.group} {reader.story} …")
        _run(kafka.bootstrap, reader)


def _run(bootstrap: str, reader: Reader) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": reader.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": 16_777_216,
        }
    )
    try:
        goals: dict[int, int] = {}
        for partition in range(TOPICS[reader.topic]):
            low, high = consumer.get_watermark_offsets(TopicPartition(reader.topic, partition), timeout=10)
            goals[partition] = low + int((high - low) * reader.share)
        consumer.subscribe([reader.topic])
        _read_until(consumer, goals)
        there = [TopicPartition(reader.topic, p, goal) for p, goal in goals.items() if p not in reader.without]
        consumer.commit(offsets=there, asynchronous=False)
    finally:
        consumer.close()


def _read_until(consumer: Any, goals: Mapping[int, int]) -> None:
    position = dict.fromkeys(goals, 0)
    deadline = time.monotonic() + _READ_SECONDS
    while any(position[partition] < goal for partition, goal in goals.items()):
        if time.monotonic() > deadline:
            raise EmbeddedError("a demo consumer did not get through its topic in time")
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is None:
                position[message.partition()] = message.offset() + 1
