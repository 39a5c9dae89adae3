"""Who leads a partition, and how to make another broker lead it."""

from __future__ import annotations

from confluent_kafka import ElectionType, TopicPartition as ClientTopicPartition
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition as KafkaTopicPartition, TopicPartition as Partition

from tests.conftest import QUICK
from tests.support.world import World, reader_for, wait_until

SETTINGS = {
    **QUICK,
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
    "offsets.topic.num.partitions": "6",
}


def leaders(world: World, topic: str) -> dict[int, int | None]:
    with reader_for(world.bootstrap) as reader:
        return {n: one.leader for n, one in reader.metadata([topic]).topics[topic].partitions.items()}


def move_leader(world: World, topic: str) -> None:
    """Make the other replica of a partition its leader, without harm."""
    with reader_for(world.bootstrap) as reader:
        one = reader.metadata([topic]).topics[topic].partitions[0]
    admin = KafkaAdminClient(bootstrap_servers=world.bootstrap)
    try:
        admin.alter_partition_reassignments({KafkaTopicPartition(topic, 0): list(reversed(one.replicas))})
    finally:
        admin.close()
    world.admin.elect_leaders(ElectionType.PREFERRED, [ClientTopicPartition(topic, 0)]).result(60)
    wait_until(lambda: leaders(world, topic)[0] == one.replicas[-1], "the other leader")


def epoch_now(world: World, topic: str) -> int:
    with reader_for(world.bootstrap) as reader:
        return reader.metadata([topic]).topics[topic].partitions[0].leader_epoch


def lead_by(world: World, topic: str, broker: int) -> None:
    """Give partition 0 to one broker, which begins a leader epoch."""
    admin = KafkaAdminClient(bootstrap_servers=world.bootstrap)
    try:
        admin.alter_partition_reassignments({Partition(topic, 0): [broker]})
    finally:
        admin.close()
    wait_until(lambda: leaders(world, topic)[0] == broker, f"{topic} on broker {broker}")
