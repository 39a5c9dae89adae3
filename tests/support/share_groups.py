"""Share groups: where they begin, where they stand, and members that poll."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.protocol.admin import IncrementalAlterConfigsRequest

from retention_cli.brokers.commits import GroupCommits
from tests.support.world import World, reader_for


def configure_group(world: World, group: str, settings: Mapping[str, str]) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [resource.AlterableConfig(name=key, config_operation=0, value=value) for key, value in settings.items()]
    of_group = resource(resource_type=32, resource_name=group, configs=configs)
    with reader_for(world.bootstrap) as reader:
        wire = reader.wire
        answer = wire.run(wire.ask, IncrementalAlterConfigsRequest(resources=[of_group], validate_only=False))
    assert [one.error_code for one in answer.responses] == [0]


def from_the_start(world: World, group: str) -> None:
    """Have a share group begin with the oldest record."""
    configure_group(world, group, {"share.auto.offset.reset": "earliest"})


def share_offsets(world: World, group: str) -> dict[str, list[Any]]:
    found: list[Any] = []
    with reader_for(world.bootstrap) as reader:
        reader.read_share_offsets([group], found.append)
    [one] = found
    assert isinstance(one, GroupCommits), one
    return {topic: list(rows) for topic, rows in one.topics.items()}
