"""What the judge sees of the logs, with its own client.

kafka-python, because a reading by librdkafka was seen not to come to any end while brokers had only just come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from kafka import KafkaConsumer
from kafka.errors import KafkaError
from kafka.structs import TopicPartition

from tests.kafka.faults.judge import Log
from tests.support.world import wait_until

Place = tuple[str, int]
"""A topic's name and a partition's index."""


@contextmanager
def _consumer(bootstrap: str) -> Iterator[KafkaConsumer]:
    """One that has heard nothing of earlier leaders, and hides nothing: aborted and open transactions are there, too."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="none",
        enable_auto_commit=False,
        isolation_level="read_uncommitted",
        check_crcs=False,
        request_timeout_ms=10_000,
        max_poll_records=5_000,
    )
    try:
        yield consumer
    finally:
        consumer.close()


def log_starts(bootstrap: str, places: Mapping[Place, Log]) -> dict[Log, int]:
    """S of each log, once all leaders answer."""
    found: dict[Log, int] = {}

    def read(consumer: KafkaConsumer) -> None:
        starts = consumer.beginning_offsets([TopicPartition(*place) for place in places])
        found.update({places[tp.topic, tp.partition]: offset for tp, offset in starts.items()})

    _until_answered(bootstrap, read, "log start offsets")
    return found


def records(
    bootstrap: str, places: Mapping[Place, Log], starts: Mapping[Log, int]
) -> dict[Log, dict[int, tuple[bytes, int]]]:
    """Read each log from its start to the end that it has by now: value and timestamp by offset."""
    found: dict[Log, dict[int, tuple[bytes, int]]] = {}

    def read(consumer: KafkaConsumer) -> None:
        found.update({log: {} for log in starts})
        by_partition = {TopicPartition(*place): log for place, log in places.items() if log in starts}
        ends = consumer.end_offsets(list(by_partition))
        consumer.assign(list(by_partition))
        for tp, log in by_partition.items():
            consumer.seek(tp, starts[log])

        def at_the_end() -> bool:
            for tp, batch in consumer.poll(timeout_ms=200).items():
                found[by_partition[tp]].update({one.offset: (one.value, one.timestamp) for one in batch})
            for tp in [tp for tp in consumer.assignment() if consumer.position(tp) >= ends[tp]]:
                consumer.pause(tp)
            return len(consumer.paused()) == len(by_partition)

        wait_until(at_the_end, "the ends of all logs", 30)

    _until_answered(bootstrap, read, "records")
    return found


def _until_answered(bootstrap: str, read: Callable[[KafkaConsumer], None], what: str) -> None:
    """Read anew while leaders move."""

    def answered() -> bool:
        try:
            with _consumer(bootstrap) as consumer:
                read(consumer)
        except KafkaError:
            return False
        return True

    wait_until(answered, what)
