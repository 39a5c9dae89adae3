"""A share group's dead letters, by default pointers into the topic, on a real broker (F3, KIP-1191)."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import AcknowledgeType, ShareConsumer  # type: ignore[attr-defined]
from kafka.protocol.admin import IncrementalAlterConfigsRequest

from tests.support.share_groups import OLD, from_the_start
from tests.support.world import World, consumed, reader_for

REJECTED = 3
ROUNDS = 30


def configure_group(world: World, group: str, settings: dict[str, str]) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [resource.AlterableConfig(name=key, config_operation=0, value=value) for key, value in settings.items()]
    of_group = resource(resource_type=32, resource_name=group, configs=configs)
    with reader_for(world.bootstrap) as reader:
        wire = reader.wire
        answer = wire.run(wire.ask, IncrementalAlterConfigsRequest(resources=[of_group], validate_only=False))
    assert [one.error_code for one in answer.responses] == [0]


def reject_some(world: World, group: str, topic: str, letters: str) -> None:
    """Reject the first records, and accept others until the group's start is written."""
    share: Any = ShareConsumer(
        {"bootstrap.servers": world.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    share.subscribe([topic])
    rounds, deadline = 0, time.monotonic() + 60
    while world.ends(letters)[1] < REJECTED or rounds < ROUNDS:  # what is acknowledged is written with the next ones
        assert time.monotonic() < deadline, world.ends(letters)
        world.produce(topic, OLD[:1])
        for message in share.poll(0.2) or ():
            bad = message.offset() < REJECTED
            share.acknowledge(message, AcknowledgeType.REJECT if bad else AcknowledgeType.ACCEPT)
            rounds += 1
        share.commit_sync()
    share.close()


def test_dead_letters_that_point_to_records_hold_them(world: World) -> None:
    topic = world.topic("share")
    letters = world.topic(name=f"dlq.{topic}", errors_deadletterqueue_group_enable="true")
    world.produce(topic, OLD)
    group = f"{topic}-share"
    from_the_start(world, group)
    configure_group(world, group, {"errors.deadletterqueue.topic.name": letters})
    reject_some(world, group, topic, letters)
    assert world.ends(letters)[1] == REJECTED, "the broker wrote them"
    world.commit(f"{topic}-done", topic, world.ends(topic)[1])

    decision = world.decide(consumed(topic), topic)
    assert decision.action == "hold", "records that dead letters point to would go"
    [reason] = decision.reasons
    assert (reason.code, f"its dead letters in {letters} only point to records here" in reason.text) == ("F3", True)
    listed = world.cli("groups", "-o", "json", "-p", "/dev/null", check=None)
    assert "internal error" not in listed.err

    configure_group(world, group, {"errors.deadletterqueue.copy.record.enable": "true"})
    decision = world.decide(consumed(topic), topic)
    assert (decision.action, decision.min_commit_by) == ("trim", f"share:{group}")
    ignored = consumed(topic).replace("version: 1", f"version: 1\ngroups: {{ignore: [{group}]}}")
    configure_group(world, group, {"errors.deadletterqueue.copy.record.enable": "false"})
    assert world.decide(ignored, topic, remember=False).action == "trim"
    world.delete_group(group)  # tests that share these brokers look at every group
