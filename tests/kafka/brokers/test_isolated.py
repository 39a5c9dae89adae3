"""A broker that the controllers no longer reach, and that goes on answering clients by what it knew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters import EmbeddedKafka
from tests.support.doors import Door
from tests.support.leaders import SETTINGS, lead_by
from tests.support.world import OLD, World, consumed, coordinator_of, reader_for, wait_until, written

LONELY = 3


class CutKafka(EmbeddedKafka):
    """A cluster whose last node reaches the other controllers through doors."""

    def __init__(self, doors: Sequence[Door]) -> None:
        super().__init__(LONELY, settings=SETTINGS)
        self.doors = doors

    def _properties(self, node_id: int, port: int, secure: Any, controls: Sequence[int], dirs: Any) -> dict[str, str]:
        voters = [f"127.0.0.1:{one}" for one in controls]
        if node_id == LONELY:
            for door, address in zip(self.doors, voters, strict=False):
                door.leads_to = address
            voters = [*(door.address for door in self.doors), voters[-1]]
        named = ",".join(f"{number}@{one}" for number, one in enumerate(voters, 1))
        return super()._properties(node_id, port, secure, controls, dirs) | {"controller.quorum.voters": named}


@pytest.fixture
def cut() -> Iterator[CutKafka]:
    with ExitStack() as stack:
        doors = [stack.enter_context(Door()) for _ in range(LONELY - 1)]
        yield stack.enter_context(CutKafka(doors))


def test_broker_that_controllers_do_not_reach_does_not_say_where_groups_stand(cut: CutKafka, tmp_path: Path) -> None:
    """F9: it still says that it is a coordinator, and what the group had committed until then."""
    *others, lonely = cut.bootstrap.split(",")
    reached = ",".join(others)
    world = World(cut.bootstrap, tmp_path / "state")
    elsewhere, topic = world.filled(OLD, replicas=3), world.filled(OLD, replicas=3)
    lead_by(world, topic, 1)
    fast, slow = (
        next(one for n in range(99) if coordinator_of(world.bootstrap, one := f"g{n}") == broker)
        for broker in (1, LONELY)
    )
    world.commit(slow, elsewhere, 5)
    world.commit(fast, topic, 10)
    for door in cut.doors:
        door.cut()

    def moved() -> bool:
        with reader_for(reached) as reader:
            return LONELY not in reader.metadata().brokers

    wait_until(moved, "a coordinator in place of it")
    World(reached, tmp_path / "state").commit(slow, topic, 2)
    policy = str(written(tmp_path / "policy.yaml", consumed(topic)))
    plan = ("plan", "-p", policy, "-o", "json", "--timeout", "5s")
    known = [World(lonely, tmp_path / f"{n}").cli(*plan, check=0).json()["partitions"][0] for n in range(12)]
    assert {row["trim_to"] for row in known} <= {2, None}, known
