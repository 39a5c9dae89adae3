"""Steps: kretain runs, is stopped, killed, and finds its memory as it was, as it was once, or not at all."""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from retention_cli.audit.lock import LockedError
from retention_cli.brokers.errors import BrokerError
from retention_cli.core.state_dir import StateError
from retention_cli.trim.batches import RefusedError
from tests.simulation.runs import carry_out_saved, memories_of, plan_and_trim, plan_only
from tests.simulation.scene import CLOCKS_MS, MINUTE, Operator, group_name
from tests.simulation.truth import MemoryTruth

if TYPE_CHECKING:
    from tests.simulation.world import World


def do_plan(world: World, number: int, requests: int = 0) -> None:
    start(world, number, "plan", functools.partial(plan_only, world), requests)


def do_trim(world: World, number: int, requests: int = 0) -> None:
    """Plan and trim; with ``requests``, it stops after so many of them and others go on."""
    start(world, number, "trim", functools.partial(plan_and_trim, world), requests)


def do_saved(world: World, number: int, requests: int = 0) -> None:
    """Carry out the plan that was saved last, by whomever."""
    start(world, number, "saved", functools.partial(carry_out_saved, world, number >= 6), requests)


def do_step(world: World, number: int, requests: int) -> None:
    process = world.operators[number % 2].process
    if process is not None:
        process.step(1 + requests % 12)


CALLS: Final = (
    "metadata",
    "list_groups 2",
    "list_groups 3",
    "read_commits",
    "list_offsets latest",
    "list_offsets time",
    "epoch_ends",
    "fetch",
    "sizes",
    "state append",
    "delete_records",
    "delete_records answered",
    "describe_members",
    "delete_records written",
)
"""Where a run can be stopped: before such a request, or between what a broker did and its answer."""


def do_until(world: World, number: int, call: int) -> None:
    """A run goes on until just before the next request of a kind: there a fault does the most."""
    process = world.operators[number % 2].process
    if process is None:
        return
    process.step()
    while process.alive and process.last != CALLS[call % len(CALLS)]:
        process.step()


def do_finish(world: World, number: int) -> None:
    process = world.operators[number % 2].process
    if process is not None:
        process.finish()


def do_kill(world: World, number: int) -> None:
    """SIGKILL: what it writes while it unwinds is undone."""
    one = world.operators[number % 2]
    if one.process is None or not one.process.alive:
        return
    if world.memories == "one":  # what the other writes meanwhile must stay
        do_finish(world, 1 - number % 2)
    kept = copy_of(world, one)
    one.process.kill()
    put_back(one, kept)


def do_clock(world: World, number: int, how: int) -> None:
    """An operator's clock jumps, or is set right."""
    one = world.operators[number % 2]
    one.clock.off_ms = CLOCKS_MS[how % len(CLOCKS_MS)]
    if abs(one.clock.off_ms) > MINUTE:
        for other in world.operators:
            if other.memory is one.memory:
                other.memory.clock_was_off = True
    for name, topic in world.kafka.topics.items():
        for index in range(len(topic.partitions)):
            world.truth.hazard((name, index), "our clock was set")


def do_source(world: World, how: int) -> None:
    """Somebody changes the policy: where event times are."""
    world.source = how % 3
    for topic in world.kafka.topics.values():
        for number, log in enumerate(topic.partitions):
            world.counts_events((topic.name, number), log.log.live())


def do_wipe(world: World, number: int) -> None:
    """Another pod, with an empty state directory."""
    one = world.operators[number % 2]
    finish_all(world)
    shutil.rmtree(one.folder, ignore_errors=True)
    one.state = "fresh"
    remembers(world, one, MemoryTruth())


def do_copy_state(world: World, number: int) -> None:
    one = world.operators[number % 2]
    do_finish(world, number)
    one.copy, one.copied = copy_of(world, one), one.memory.copy()


def do_restore_state(world: World, number: int) -> None:
    """An operator restores a state directory of some time ago, or takes the other's."""
    one, other = world.operators[number % 2], world.operators[(number // 2) % 2]
    if other.copy is None or other.copied is None:
        return
    finish_all(world)
    kept = Path(tempfile.mkdtemp(dir=world.root))
    shutil.copytree(other.copy, kept, dirs_exist_ok=True)
    put_back(one, kept)
    one.state = "older" if one is other else "another's"
    remembers(world, one, other.copied.copy())


def finish_all(world: World) -> None:
    for number in range(2):
        do_finish(world, number)


def remembers(world: World, one: Operator, memory: MemoryTruth) -> None:
    """Note what a state directory knows by now; where all share a topic, that is what is known."""
    if world.memories == "cluster":
        return
    users = world.operators if world.memories == "one" else [one]
    memory.clock_was_off |= any(abs(other.clock.off_ms) > MINUTE for other in users)  # it is off still
    for other in users:
        other.memory = memory


def do_forget(world: World, number: int, group: int) -> None:
    """``kretain groups forget``."""
    one, name = world.operators[number % 2], group_name(world.rules, group)
    do_finish(world, number)
    with contextlib.suppress(StateError), closing(memories_of(world, one)) as memories:
        memories.ledger(world.kafka.cluster_id).forget_group(name)
    one.memory.counted = {key: seen for key, seen in one.memory.counted.items() if key[0] != name}
    one.memory.refused = {key for key in one.memory.refused if key[0] != name}
    one.memory.widths.pop(name, None)
    one.memory.last = {key: seen for key, seen in one.memory.last.items() if key[0] != name}


def copy_of(world: World, one: Operator) -> Path:
    kept = Path(tempfile.mkdtemp(dir=world.root))
    if one.folder.exists():
        shutil.copytree(one.folder, kept, dirs_exist_ok=True)
    return kept


def put_back(one: Operator, kept: Path) -> None:
    shutil.rmtree(one.folder, ignore_errors=True)
    kept.rename(one.folder)


def start(world: World, number: int, name: str, work: Callable[[Operator], None], requests: int) -> None:
    one = world.operators[number % 2]
    if one.process is not None and one.process.alive:
        one.process.finish()

    def run() -> None:
        with contextlib.suppress(BrokerError, LockedError, RefusedError, StateError):
            work(one)

    one.process = world.hub.start(f"{one.name} {name}", run)
    if requests:
        one.process.step(requests)
    else:
        one.process.finish()
