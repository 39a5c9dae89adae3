"""What plain clients see of many partitions at once, and what they commit: nothing of kretain's is used here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IllegalStateException,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tests.support.world import QUIET, wait_until

Place = tuple[str, int]
"""A topic's name and a partition's index."""


def log_starts(admin: AdminClient, places: Collection[Place]) -> dict[Place, int]:
    """S of each."""
    return _offsets(admin, places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]


def log_ends(admin: AdminClient, places: Collection[Place]) -> dict[Place, int]:
    """H of each."""
    return _offsets(admin, places, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def _offsets(admin: AdminClient, places: Collection[Place], spec: Any) -> dict[Place, int]:
    answers = admin.list_offsets({TopicPartition(*place): spec for place in places})
    return {(tp.topic, tp.partition): answer.result(60).offset for tp, answer in answers.items()}


def read_all(bootstrap: str, places: Collection[Place]) -> dict[Place, dict[int, int]]:
    """Read all that can be read: per partition, offset to timestamp."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "kretain-test-reads",
        "logger": QUIET,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 20,
    }
    consumer = Consumer(config)
    found: dict[Place, dict[int, int]] = {place: {} for place in places}
    waiting = set(places)

    def at_the_end() -> bool:
        first = consumer.poll(0.2)  # a consume() that waits was once seen not to come back
        for message in [] if first is None else [first, *consumer.consume(10_000, timeout=0)]:
            place = (message.topic() or "", message.partition() or 0)
            if (said := message.error()) is None:
                found[place][message.offset() or 0] = message.timestamp()[1]
            elif said.code() == KafkaError._PARTITION_EOF:
                waiting.discard(place)
        return not waiting

    try:
        consumer.assign([TopicPartition(*place, 0) for place in places])  # type: ignore[call-overload]
        wait_until(at_the_end, "the end of every partition")
    finally:
        consumer.close()
    return found


def commit_all(admin: AdminClient, group: str, offsets: Mapping[Place, int]) -> None:
    """Commit all at once, as a group without members."""
    wanted = [TopicPartition(*place, offset) for place, offset in offsets.items()]  # type: ignore[call-overload]
    asked = ConsumerGroupTopicPartitions(group, wanted)

    def done() -> bool:
        try:
            answer = admin.alter_consumer_group_offsets([asked])[group].result(60)
        except KafkaException:  # its coordinator is still loading
            return False
        return all(one.error is None for one in answer.topic_partitions)

    wait_until(done, f"the commits of {group}")


@contextmanager
def meanwhile(*work: Callable[[], None]) -> Iterator[None]:
    """Do each of these over and over while something else goes on; what fails there fails here."""
    done = threading.Event()
    errors: list[BaseException] = []

    def repeat(one: Callable[[], None]) -> None:
        try:
            while not done.is_set():
                one()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


@contextmanager
def kept_alive(*consumers: Any) -> Iterator[None]:
    """Let members heartbeat while something else goes on; close them at the end."""

    def poll() -> None:
        for consumer in consumers:
            with suppress(IllegalStateException):  # a share consumer that has yet to acknowledge what it got
                consumer.poll(0.1)

    try:
        with meanwhile(poll):
            yield
    finally:
        for consumer in consumers:
            consumer.close()
