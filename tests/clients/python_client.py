"""One command of one client in Python: CLIENT BOOTSTRAP GROUP TOPIC COMMAND [ARGUMENT]; see test_clients.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

WAIT_S = 12.0
QUIET_S = 2.0


def follow(
    command: str, argument: str, poll: Callable[[], Iterable[Any]], commit: Callable[[Any], object]
) -> dict[str, int]:
    """Read and commit so many records; or look at which offset each partition goes on, until nothing more comes."""
    first: dict[str, int] = {}
    read, until = 0, time.monotonic() + WAIT_S
    while time.monotonic() < until and (command == "where" or read < int(argument)):
        for partition, offset, record in poll():
            if command == "where":
                first.setdefault(str(partition), offset)
                until = time.monotonic() + QUIET_S
            else:
                commit(record)
                read += 1
    return first if command == "where" else {"read": read}


def confluent(bootstrap: str, group: str, topic: str, command: str, argument: str) -> Any:
    from confluent_kafka import Consumer, Producer, TopicPartition

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000,
    }

    def poll() -> Iterator[Any]:
        message: Any = consumer.poll(0.2)
        if message is not None and not message.error():
            yield message.partition(), message.offset(), message

    with contextlib.closing(Consumer(settings)) as consumer:
        if command == "reset":
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)
            start = TopicPartition(topic, 0, low if argument == "start" else high)
            consumer.commit(offsets=[start], asynchronous=False)
        elif command == "transact":
            producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{group}-tx"})
            producer.init_transactions(WAIT_S)
            producer.begin_transaction()
            offsets = [TopicPartition(topic, 0, int(argument))]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_S)
            producer.commit_transaction(WAIT_S)
        else:
            consumer.subscribe([topic])
            return follow(command, argument, poll, lambda one: consumer.commit(message=one, asynchronous=False))
        return {}


def kafka_python(bootstrap: str, group: str, topic: str, command: str, argument: str) -> Any:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    tp = TopicPartition(topic, 0)
    if command == "transact":
        producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), transactional_id=f"{group}-tx")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({tp: OffsetAndMetadata(int(argument), "", -1)}, group)
        producer.commit_transaction()
        producer.close()
        return {}
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
    )

    def poll() -> Iterator[Any]:
        for place, records in consumer.poll(timeout_ms=500, max_records=1).items():
            for one in records:
                yield one.partition, one.offset, {place: OffsetAndMetadata(one.offset + 1, "", one.leader_epoch)}

    with contextlib.closing(consumer):
        if command == "reset":
            consumer.assign([tp])
            (consumer.seek_to_beginning if argument == "start" else consumer.seek_to_end)(tp)
            consumer.commit({tp: OffsetAndMetadata(consumer.position(tp), "", -1)})
            return {}
        consumer.subscribe([topic])
        return follow(command, argument, poll, consumer.commit)


def aiokafka(bootstrap: str, group: str, topic: str, command: str, argument: str) -> Any:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    tp = TopicPartition(topic, 0)

    async def transact() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{group}-tx")
        async with producer, producer.transaction():
            await producer.send_offsets_to_transaction({tp: int(argument)}, group)

    async def called(work: Callable[..., Any], *arguments: Any) -> Any:
        """Call what is no coroutine and wants a running loop."""
        return work(*arguments)

    async def started() -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=1000,
        )
        await consumer.start()
        return consumer

    with asyncio.Runner() as runner:
        if command == "transact":
            runner.run(transact())
            return {}
        consumer = runner.run(started())

        def poll() -> Iterator[Any]:
            for place, records in runner.run(consumer.getmany(timeout_ms=200, max_records=1)).items():
                for one in records:
                    yield one.partition, one.offset, {place: one.offset + 1}

        try:
            if command == "reset":
                runner.run(called(consumer.assign, [tp]))
                ask = consumer.beginning_offsets if argument == "start" else consumer.end_offsets
                runner.run(consumer.commit(runner.run(ask([tp]))))
                return {}
            runner.run(called(consumer.subscribe, [topic]))
            return follow(command, argument, poll, lambda at: runner.run(consumer.commit(at)))
        finally:
            runner.run(consumer.stop())


if __name__ == "__main__":
    name, *given = sys.argv[1:]
    given += [""] * (5 - len(given))
    run = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}[name]
    sys.stdout.write(json.dumps(run(*given)) + "\n")
