"""A broker that the controllers no longer reach, and that goes on answering clients by what it knew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from retention_cli.policy.live import POLICY_TOPIC
from tests.support.clusters import EmbeddedKafka
from tests.support.doors import Door
from tests.support.leaders import SETTINGS, lead, lead_by
from tests.support.world import OLD, World, consumed, group_coordinated_by, reader_for, wait_until, written

NODES, LONELY, OTHER = 3, 1, 2


class CutKafka(EmbeddedKafka):
    """A cluster whose first node reaches the other controllers through doors."""

    def __init__(self, doors: Sequence[Door]) -> None:
        super().__init__(NODES, settings=SETTINGS)
        self.doors = doors

    def _properties(self, node_id: int, port: int, secure: Any, controls: Sequence[int], dirs: Any) -> dict[str, str]:
        voters = [f"127.0.0.1:{one}" for one in controls]
        if node_id == LONELY:
            for door, address in zip(self.doors, voters[1:], strict=True):
                door.leads_to = address
            voters[1:] = [door.address for door in self.doors]
        named = ",".join(f"{number}@{one}" for number, one in enumerate(voters, 1))
        patience = "60000" if node_id == LONELY else "1000"  # the others elect one of them
        own = {"controller.quorum.voters": named, "controller.quorum.election.timeout.ms": patience}
        return super()._properties(node_id, port, secure, controls, dirs) | own


@pytest.fixture
def cut() -> Iterator[CutKafka]:
    with ExitStack() as stack:
        doors = [stack.enter_context(Door()) for _ in range(NODES - 1)]
        yield stack.enter_context(CutKafka(doors))


def isolate(kafka: CutKafka) -> str:
    """Cut the first node off, and wait until the others know; return their addresses."""
    reached = ",".join(kafka.bootstrap.split(",")[1:])
    for door in kafka.doors:
        door.cut()

    def known() -> bool:
        with reader_for(reached) as reader:
            return LONELY not in reader.metadata().brokers

    wait_until(known, "a cluster without it")
    return reached


def planned(kafka: CutKafka, policy: str, folder: Path) -> list[dict[str, Any]]:
    """Plan a few times, from the node that is cut off; return the topic's row of each plan."""
    file, lonely = str(written(folder / "policy.yaml", policy)), kafka.bootstrap.split(",")[0]
    plan = ("plan", "-p", file, "-o", "json", "--timeout", "5s")
    return [World(lonely, folder / str(n)).cli(*plan, check=0).json()["partitions"][0] for n in range(12)]


def test_broker_that_controllers_do_not_reach_does_not_say_where_groups_stand(cut: CutKafka, tmp_path: Path) -> None:
    """F9: it still says that it is a coordinator, and what the group had committed until then."""
    world = World(cut.bootstrap, tmp_path / "state")
    elsewhere, topic = world.filled(OLD, replicas=3), world.filled(OLD, replicas=3)
    lead_by(world, topic, OTHER)
    fast, slow = (group_coordinated_by(world.bootstrap, broker, "g") for broker in (OTHER, LONELY))
    world.commit(slow, elsewhere, 5)
    world.commit(fast, topic, 10)
    World(isolate(cut), tmp_path / "state").commit(slow, topic, 2)
    assert {row["trim_to"] for row in planned(cut, consumed(topic), tmp_path)} <= {2, None}


def test_broker_that_controllers_do_not_reach_does_not_say_what_is_set(cut: CutKafka, tmp_path: Path) -> None:
    """G5: it does not know that the topic is compacted by now."""
    world = World(cut.bootstrap, tmp_path / "state")
    topic = world.filled(OLD, replicas=3, cleanup_policy="delete")
    lead_by(world, topic, OTHER)
    World(isolate(cut), tmp_path / "state").configure(topic, {"cleanup.policy": "compact,delete"})
    policy = f"version: 1\ntopics: [{{match: {topic}, retention.ms: 1h}}]\n"
    assert {row["trim_to"] for row in planned(cut, policy, tmp_path)} == {None}


def test_broker_that_controllers_do_not_reach_does_not_say_what_is_set_live(cut: CutKafka, tmp_path: Path) -> None:
    """It led the policy topic, and knows no later message."""
    world = World(cut.bootstrap, tmp_path / "state")
    topic = world.filled(OLD, replicas=3)
    lead_by(world, topic, OTHER)
    world.cli("cluster", "init", "--yes", check=0)
    lead(world, POLICY_TOPIC, [LONELY, OTHER, NODES])
    policy = f"version: 1\ntopics: [{{match: {topic}, retention.ms: cluster}}]\n"
    setting = ("policy", "set", "-p", str(written(tmp_path / "set.yaml", policy)), topic)
    world.cli(*setting, "retention.ms=1h", check=0)
    World(isolate(cut), tmp_path / "state").cli(*setting, "retention.ms=1000d", check=0)
    assert {row["trim_to"] for row in planned(cut, policy, tmp_path)} == {None}
