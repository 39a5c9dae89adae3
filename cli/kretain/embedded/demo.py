"""The demo's cluster: topics with data, and consumer groups at typical positions.

Its records are a year of invented flights by carrier, and of hourly weather by airport. Always the same ones.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # (it exists)

from kretain.embedded.cluster import EmbeddedKafka
from kretain.embedded.jars import EmbeddedError, Progress

TOPICS: Final = {"flights": 4, "weather": 3}
POLICY: Final = """\
version: 1
groups:
  require: [billing]        # no billing group, no trim
limits: {max.percent: 95}   # refuse a plan that would trim more
topics:
  - match: flights
    retention.commitoffset.enable: true
    retention.commitoffset.hours: 72
  - match: weather
    retention.commitoffset.enable: true
    retention.commitoffset.hours: 72
"""
_READ_SECONDS: Final = 60.0
FLIGHTS: Final = 100_000
AIRPORTS: Final = ("EWR", "JFK", "LGA")
WEATHER: Final = 365 * 24 * len(AIRPORTS)
_CARRIERS: Final = {"UA": 58, "B6": 54, "EV": 54, "DL": 48, "AA": 32, "MQ": 26, "US": 20, "9E": 18, "WN": 12, "VX": 5}
"""Carriers, and how often each of them flies."""
_START_MS: Final = 1_356_998_400_000
"""2013-01-01, in Unix ms."""
_HOUR_MS: Final = 3_600_000
_YEAR_MS: Final = 365 * 24 * _HOUR_MS


Record = tuple[str, Mapping[str, object], int]
"""A record to produce: key, value to be written as JSON, and event time in Unix ms."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A consumer group to run: the share of each topic's partitions that it reads, and where it does not commit."""

    group: str
    shares: Mapping[str, float]
    without: Sequence[tuple[str, int]] = ()


READERS: Final = (
    Reader("billing", {"flights": 1.0, "weather": 1.0}),
    Reader("delays", {"flights": 0.9}),
    Reader("archive", {"weather": 0.5}),
    Reader("forecast", {"weather": 1.0}, without=[("weather", 2)]),
)


def load(kafka: EmbeddedKafka, progress: Progress) -> None:
    """Create the topics and produce their records, with their event times.

    Raises:
        EmbeddedError: a record was not accepted.
    """
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    # The data is from 2013: without this the brokers' own retention (7 days) would delete it at once.
    config = {"retention.ms": "-1", "segment.bytes": "1048576"}
    wanted = [NewTopic(name, partitions, 1, config=config) for name, partitions in TOPICS.items()]
    for future in admin.create_topics(wanted).values():
        future.result()
    progress(f"loading {FLIGHTS + WEATHER:,} records …")
    _produce(kafka, "flights", flights())
    _produce(kafka, "weather", weather())


def _produce(kafka: EmbeddedKafka, topic: str, produced: Iterator[Record]) -> None:
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
            "log_level": 0,  # delivery reports name what fails; the election of a first leader is not worth a log line
        }
    )
    for key, value, timestamp_ms in produced:
        # Three airports, three partitions: hashing would leave one of them empty.
        producer.produce(
            topic,
            json.dumps(value).encode(),
            key,
            AIRPORTS.index(key) if topic == "weather" else -1,
            timestamp=timestamp_ms,
            on_delivery=on_delivery,
        )
        producer.poll(0)
    if producer.flush(60) or failed:
        raise EmbeddedError(f"the demo's data was not accepted: {failed[0] if failed else 'time-out'}")


def run_groups(kafka: EmbeddedKafka, progress: Progress) -> None:
    """Run :data:`READERS` as real consumers side by side, until each has reached its position.

    Raises:
        EmbeddedError: a consumer did not reach its position in time.
    """
    progress(f"running {len(READERS)} consumer groups …")
    with ThreadPoolExecutor(len(READERS)) as pool:
        list(pool.map(lambda reader: _run(kafka.bootstrap, reader), READERS))  # raises what a consumer raised


def _run(bootstrap: str, reader: Reader) -> None:
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
        goals: dict[tuple[str, int], int] = {}
        for topic, share in reader.shares.items():
            for partition in range(TOPICS[topic]):
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
                goals[topic, partition] = low + int((high - low) * share)
        consumer.subscribe(list(reader.shares))
        _read_until(consumer, goals)
        consumer.commit(
            offsets=[TopicPartition(*tp, goal) for tp, goal in goals.items() if tp not in reader.without],
            asynchronous=False,
        )
    finally:
        consumer.close()


def _read_until(consumer: Any, goals: Mapping[tuple[str, int], int]) -> None:
    position = dict.fromkeys(goals, 0)
    deadline = time.monotonic() + _READ_SECONDS
    while any(position[tp] < goal for tp, goal in goals.items()):
        if time.monotonic() > deadline:
            raise EmbeddedError("a demo consumer did not finish its topic in time")
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is None:
                position[message.topic(), message.partition()] = message.offset() + 1


def flights() -> Iterator[Record]:
    """Yield flights, keyed by carrier, in the order of their schedule; the event time is the departure."""
    chance = random.Random(2013)  # noqa: S311  (the same data each time)
    for number, carrier in enumerate(chance.choices(list(_CARRIERS), list(_CARRIERS.values()), k=FLIGHTS)):
        delay_minutes = int(chance.expovariate(1 / 15)) - 8
        value = {
            "carrier": carrier,
            "flight": 1000 + number % 5000,
            "origin": AIRPORTS[number % len(AIRPORTS)],
            "dep_delay": delay_minutes,
        }
        yield carrier, value, _START_MS + number * _YEAR_MS // FLIGHTS + delay_minutes * 60_000


def weather() -> Iterator[Record]:
    """Yield every hour's weather at the airports, keyed by airport."""
    chance = random.Random(365)  # noqa: S311  (the same data each time)
    for number in range(WEATHER):
        hour, airport = divmod(number, len(AIRPORTS))
        value = {"origin": AIRPORTS[airport], "temp": chance.randint(-10, 35), "wind_speed": chance.randint(0, 40)}
        yield AIRPORTS[airport], value, _START_MS + hour * _HOUR_MS
