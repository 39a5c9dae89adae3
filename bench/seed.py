"""A cluster worth measuring on: many partitions with a few old records each, and many groups that have read some."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

TOPICS_A_REQUEST = 100  # KRaft refuses very large CreateTopics requests
GROUPS_AT_ONCE = 40


class Record(NamedTuple):
    """A record to write; those of a partition are written in the order of their stamps."""

    topic: str
    partition: int
    stamp_ms: int
    value: bytes
    headers: Any = None


@dataclass(frozen=True)
class Shape:
    """How large: topics of ten partitions; each group has committed on every partition of its topics.

    ``empty_share`` of the partitions, spread evenly, have no record, and commits beyond their end all the same: what
    deleted and recreated topics leave behind.
    """

    topics: int = 2_000
    partitions_a_topic: int = 10
    groups: int = 1_000
    topics_a_group: int = 86
    records: int = 8
    prefix: str = "bench"
    empty_share: float = 0.0

    @property
    def partitions(self) -> int:
        return self.topics * self.partitions_a_topic

    @property
    def commits(self) -> int:
        return self.groups * self.topics_a_group * self.partitions_a_topic

    def names(self) -> list[str]:
        return [f"{self.prefix}-{number:05d}" for number in range(self.topics)]

    def group_names(self) -> list[str]:
        return [f"group-{number:04d}" for number in range(self.groups)]

    def topics_of(self, group: int) -> list[int]:
        """Return the numbers of the topics that a group has committed on."""
        first = group * self.topics_a_group
        return [(first + number) % self.topics for number in range(min(self.topics_a_group, self.topics))]

    def records_in(self, topic: int, partition: int) -> int:
        spread = (topic * self.partitions_a_topic + partition) * 619 % 1_000
        return 0 if spread < self.empty_share * 1_000 else self.records


def seed(bootstrap: str, shape: Shape, tell: Callable[[str], None]) -> None:
    """Make topics, records of ten days ago, and commits after the third of them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    tell(f"{shape.topics:,} topics")
    names = shape.names()
    for start in range(0, len(names), TOPICS_A_REQUEST):
        wanted = [
            NewTopic(name, shape.partitions_a_topic, 1, config={"retention.ms": "-1"})
            for name in names[start : start + TOPICS_A_REQUEST]
        ]
        for future in admin.create_topics(wanted, operation_timeout=60).values():
            future.result()
    tell(f"{shape.partitions * shape.records:,} records")
    then = time.time_ns() // 1_000_000 - 10 * 86_400_000
    produce(
        bootstrap,
        (
            Record(name, partition, then + record * 3_600_000, b"x" * 50)
            for number, name in enumerate(names)
            for partition in range(shape.partitions_a_topic)
            for record in range(shape.records_in(number, partition))
        ),
    )
    _check_ends(admin, shape)
    tell(f"{shape.commits:,} commits of {shape.groups:,} groups")
    commit(bootstrap, shape, 3)


def produce(bootstrap: str, records: Iterable[Record]) -> None:
    """Write every record, and write again what was refused.

    A client that does not know a new partition yet refuses its records at once: this left a quarter of the partitions
    empty, and a bench that timed another cluster than it named.
    """
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000, "log_level": 3}
    )
    for _attempt in range(20):
        refused: list[Record] = []
        for number, one in enumerate(records):
            producer.produce(
                one.topic,
                one.value,
                partition=one.partition,
                timestamp=one.stamp_ms,
                headers=one.headers,
                on_delivery=partial(_delivered, refused, one),
            )
            producer.poll(0)
            if number % 8_000 == 7_999:
                producer.flush()
        producer.flush()
        if not refused:
            return
        records = sorted(refused)
        time.sleep(1)
    raise RuntimeError(f"{len(refused):,} records were refused, the first on {refused[0].topic}-{refused[0].partition}")


def _delivered(refused: list[Record], one: Record, error: object, _message: object) -> None:
    if error is not None:
        refused.append(one)


def _check_ends(admin: AdminClient, shape: Shape) -> None:
    """Raise where a partition does not hold exactly the records of its shape: nothing is timed on another cluster."""
    names = shape.names()
    for start in range(0, len(names), TOPICS_A_REQUEST):
        wanted = {
            (name, partition): shape.records_in(number, partition)
            for number, name in enumerate(names[start : start + TOPICS_A_REQUEST], start)
            for partition in range(shape.partitions_a_topic)
        }
        asked = {TopicPartition(*one): OffsetSpec.latest() for one in wanted}  # type: ignore[no-untyped-call]
        for one, future in admin.list_offsets(asked).items():
            if future.result().offset != wanted[one.topic, one.partition]:
                raise RuntimeError(f"{one.topic}-{one.partition} ends at {future.result().offset}")


def commit(bootstrap: str, shape: Shape, offset: int) -> None:
    """Let every group commit that offset on all its partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    waiting = list(_commits(shape, offset))
    for _attempt in range(20):
        failed = []
        for start in range(0, len(waiting), GROUPS_AT_ONCE):
            sent = [
                (one, next(iter(admin.alter_consumer_group_offsets([one]).values())))
                for one in waiting[start : start + GROUPS_AT_ONCE]
            ]
            failed += [one for one, future in sent if not _taken(future)]
        waiting = failed
        if not waiting:
            return
        time.sleep(1)
    raise RuntimeError(f"{len(waiting)} groups could not commit")


def _taken(future: Any) -> bool:
    try:
        return all(one.error is None for one in future.result().topic_partitions)
    except Exception:  # noqa: BLE001  (a coordinator that is still loading: it is asked again)
        return False


def _commits(shape: Shape, offset: int) -> Iterator[ConsumerGroupTopicPartitions]:
    names = shape.names()
    for group, group_name in enumerate(shape.group_names()):
        partitions = [
            TopicPartition(names[number], partition, offset)
            for number in shape.topics_of(group)
            for partition in range(shape.partitions_a_topic)
        ]
        yield ConsumerGroupTopicPartitions(group_name, partitions)
