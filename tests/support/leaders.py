"""Who leads a partition or coordinates a group, how to make another broker lead, and settings and offsets of groups."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any

from confluent_kafka import ElectionType, KafkaException, TopicPartition as ClientTopicPartition
from kafka.admin import KafkaAdminClient
from kafka.protocol.admin import IncrementalAlterConfigsRequest
from kafka.structs import TopicPartition as Partition

from retention_cli.brokers.commits import GroupCommits
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


def _place(world: World, topic: str, replicas: list[int]) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=world.bootstrap)) as admin:
        admin.alter_partition_reassignments({Partition(topic, 0): replicas})


def move_leader(world: World, topic: str) -> None:
    """Make the other replica of a partition its leader, without harm."""
    with reader_for(world.bootstrap) as reader:
        one = reader.metadata([topic]).topics[topic].partitions[0]
    lead(world, topic, list(reversed(one.replicas)))


def lead(world: World, topic: str, replicas: list[int]) -> None:
    """Have partition 0 on these brokers, and the first of them lead it."""

    def led() -> bool:
        with suppress(KafkaException):  # it leads already, or not yet
            world.admin.elect_leaders(ElectionType.PREFERRED, [ClientTopicPartition(topic, 0)]).result(60)
        return leaders(world, topic)[0] == replicas[0]

    _place(world, topic, replicas)
    wait_until(led, f"{topic} led by broker {replicas[0]}")


def epoch_now(world: World, topic: str) -> int:
    with reader_for(world.bootstrap) as reader:
        return reader.metadata([topic]).topics[topic].partitions[0].leader_epoch


def lead_by(world: World, topic: str, broker: int) -> None:
    """Give partition 0 to one broker, which begins a leader epoch."""
    _place(world, topic, [broker])
    wait_until(lambda: leaders(world, topic)[0] == broker, f"{topic} on broker {broker}")


def configure_group(world: World, group: str, settings: Mapping[str, str]) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [resource.AlterableConfig(name=key, config_operation=0, value=value) for key, value in settings.items()]
    of_group = resource(resource_type=32, resource_name=group, configs=configs)
    with reader_for(world.bootstrap) as reader:
        wire = reader.wire
        answer = wire.run(wire.ask, IncrementalAlterConfigsRequest(resources=[of_group], validate_only=False))
    assert [one.error_code for one in answer.responses] == [0]


def from_the_start(world: World, group: str) -> None:
    configure_group(world, group, {"share.auto.offset.reset": "earliest"})


def share_offsets(world: World, group: str) -> dict[str, list[Any]]:
    found: list[Any] = []
    with reader_for(world.bootstrap) as reader:
        reader.read_share_offsets([group], found.append)
    [one] = found
    assert isinstance(one, GroupCommits), one
    return {topic: list(rows) for topic, rows in one.topics.items()}
