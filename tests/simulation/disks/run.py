"""Random sequences by seed: ``python -m tests.simulation.disks.run --seeds 0-1000``. A failing one is made short."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from tests.simulation.disks.judge import PERCENT
from tests.simulation.disks.kafka import PLACES, TOTALS
from tests.simulation.disks.world import PARTITIONS, DiskWorld
from tests.simulation.scene import Step, ViolationError
from tests.simulation.seeds import main

STEPS: Final = {
    name.removeprefix("do_"): len(inspect.signature(function).parameters) - 1
    for name, function in inspect.getmembers(DiskWorld, inspect.isfunction)
    if name.startswith("do_") and name != "do_storage"  # of stories alone: kept seeds stay what they were
}
"""What can happen, by name, and how many numbers it takes."""
OFTEN: Final = {"produce": 12, "fill": 6, "time": 8, "trim": 10, "read": 5, "scan": 3, "plan": 3}


def sequence_of(seed: int, length: int = 30) -> list[Step]:
    """Return the sequence of a seed. Some kinds of step are left out, so that rare ones meet (swarm)."""
    chance = random.Random(seed)
    names = [one for one in STEPS if one in ("fill", "trim", "time") or chance.random() < 0.6]
    weights = [OFTEN.get(name, 1) for name in names]
    found: list[Step] = [("fill", 29), ("fill", chance.randrange(30)), ("read", chance.randrange(6), 0)]
    drawn = chance.choices(names, weights, k=length)
    return [*found, *((name, *(chance.randrange(30) for _ in range(STEPS[name]))) for name in drawn)]


_OLD: Final = 4
_ALL: Final = 0
_LOCAL: Final = 0
_OF_ONE: Final = ("fall_behind", "catch_up", "produce", "retention", "storage")
"""Steps whose first number is a partition's."""
STORIES: Final = (
    (("fall_behind",), ("produce", 29, _OLD), ("scan", _ALL), ("catch_up",), ("trim", 0, 1)),
    (("scan", 2), ("produce", 29, _OLD), ("scan", 1), ("scan", 3), ("trim", 0, 1)),
    (("fall_behind",), ("produce", 29, _OLD), ("trim", 1, 0), ("time", 5), ("trim", 1, 0), ("time", 5), ("trim", 1, 0)),
    (("storage", 1), ("trim", 0, 0), ("time", 4), ("trim", 0, 1), ("storage", _LOCAL)),
    (("storage", 2), ("trim", 1, 0), ("time", 4), ("trim", 1, 1), ("storage", _LOCAL)),
    (("trim", 0, 2), ("retention", 5), ("time", 4), ("trim", 1, 0), ("time", 2), ("trim", 1, 0)),
)
"""What happens together, to one partition: a hunt found wrong trims in such orders."""


def told(seed: int) -> list[Step]:
    """Return the sequence of a seed with some stories in it."""
    chance, found = random.Random(seed), sequence_of(seed)
    for story in chance.choices(STORIES, k=3):
        place, number = chance.randrange(3, len(found)), chance.randrange(6)
        found[place:place] = [(name, number, *rest) if name in _OF_ONE else (name, *rest) for name, *rest in story]
    return found


def settle(world: DiskWorld) -> None:
    """Let all faults be over: after some quiet runs R6 has taken what it takes by the true files.

    Without an inventory it holds where S has moved since a replica's size last fell, says so, and counts what may be
    dead of it as on its way (docs/rules.md, R5).
    """
    world.kafka.deaf.clear()
    world.kafka.lost.clear()
    for number in range(len(PARTITIONS)):
        world.do_catch_up(number)
    if not world.in_sync():
        return  # a follower has no room to catch up
    for _ in range(10):
        world.kafka.pass_time(240_000)
        plan = world.do_trim(0, 0)
    held = {(one.topic, one.partition) for one in plan.decisions if any(why.code == "R6" for why in one.reasons)}
    with closing(world.memories(world.folders[0])) as memories:
        files, own, limits = world.moment(memories)
    before, walk = files.excess(PERCENT, own), files.walk(PERCENT, own)
    walk.bounds({tp: one for tp, one in limits.items() if tp not in held})
    dead = {(one.disk.broker, path): one.dead_bytes for one in plan.disks for path in one.disk.dirs}
    said = {(one.broker, one.device) for one in PLACES if dead.get((one.broker, one.path), 0)}
    for one in TOTALS.keys() - said:
        if before[one] > world.judge.segments_on(one) and before[one] - walk.left[one] > world.judge.segments_on(one):
            raise ViolationError(f"stands still: {one} is {before[one]} above its ceiling, {walk.left[one]} would do")
    for _ in range(3):
        world.kafka.pass_time(240_000)
        world.do_trim(0, 2)
    with closing(world.memories(world.folders[0])) as memories:
        files, own, limits = world.moment(memories)
    if more := files.walk(PERCENT, own).bounds(limits):
        raise ViolationError(f"stands still: with a fresh inventory {more} could go")


def run(sequence: Sequence[Step]) -> DiskWorld:
    """Carry a sequence out, from a new cluster on.

    Raises:
        ViolationError: R6 took more than the true files ask for, or less without a word.
    """
    with DiskWorld() as world:
        world.apply(*sequence)
        settle(world)
        return world


if __name__ == "__main__":
    sys.exit(
        main(
            __doc__,
            lambda seed: ("", told(seed) if seed % 2 else sequence_of(seed)),
            lambda _rules, sequence: run(sequence).judge.counts,
        )
    )
