"""Steps: brokers that are away, slow or wrong, and time that passes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.simulation.kafka import BROKERS, HOUR
from tests.simulation.scene import MANAGED, OTHER, TIMES_MS

if TYPE_CHECKING:
    from tests.simulation.world import World


def do_coordinator(world: World, number: int, how: int) -> None:
    """A coordinator goes offline, comes back, or moves."""
    number %= len(world.kafka.offsets_leaders)
    world.truth.coordinators[number] = world.truth.number
    leader, epoch = world.kafka.offsets_leaders[number]
    if how % 2 and leader is not None:
        world.kafka.offsets_leaders[number] = (None, epoch)
    else:
        there = BROKERS[(BROKERS.index(leader) + 1) % 3] if leader is not None else BROKERS[0]
        world.kafka.offsets_leaders[number] = (there, epoch + 1)


def do_loading(world: World) -> None:
    world.kafka.loading = not world.kafka.loading


def do_rights(world: World) -> None:
    world.kafka.may_describe = not world.kafka.may_describe


def do_prefix(world: World) -> None:
    """A tenant loses the right to the groups of a prefix, and keeps the one to a single name; or has it again."""
    world.kafka.may_describe_scope = not world.kafka.may_describe_scope


def do_hide(world: World) -> None:
    """The user may not describe __consumer_offsets any more, or may again."""
    world.kafka.offsets_hidden = not world.kafka.offsets_hidden


def do_fail(world: World, call: int, times: int) -> None:
    """The next requests of a kind get lost."""
    calls = (
        "metadata",
        "read_commits",
        "list_offsets earliest",
        "list_offsets latest",
        "list_offsets time",
        "list_offsets max-timestamp",
        "epoch_ends",
        "fetch",
        "list_offsets last-stable",
        "state",
        "state append",
        "clock",
        "read_pending",
        "describe_members",
        "group_rights",
    )
    world.kafka.failing[calls[call % len(calls)]] = 1 + times % 3


def do_lose_delete(world: World, how: int) -> None:
    world.kafka.lost = [("before", "after", "late", "refused")[how % 4]]  # type: ignore[list-item]


def do_late_delete(world: World) -> None:
    """Brokers come to requests that nobody waits for any more."""
    for one in world.operators:
        for deleter in one.deleters:
            while deleter.late:
                deleter.late.pop()[1]()


def do_time(world: World, much: int) -> None:
    world.kafka.pass_time(TIMES_MS[much % len(TIMES_MS)])


def do_hold(world: World) -> None:
    world.hold = not world.hold
    world.truth.held_since = world.truth.number if world.hold else None


def do_deposed(world: World, times: int) -> None:
    """The next fetches are answered by a broker that leads no more, and does not know it."""
    world.kafka.deposed = 1 + times % 3


def do_compact_state(world: World) -> None:
    """The log cleaner runs over what all share."""
    world.kafka.compact_state()


def do_policy(world: World, topic: int, how: int) -> None:
    """Somebody writes to the policy topic: a minimum, something that nobody understands, or that it is taken back."""
    name = (MANAGED, OTHER)[topic % 2]
    minimum = {"log.retention.min.timestamp": world.kafka.now_ms - (how % 3) * 24 * HOUR}
    value = {9: b"{", 10: None, 11: b'{"log.retention.min.timestamp": "soon"}'}.get(how, json.dumps(minimum).encode())
    world.kafka.policy_messages.append((name.encode(), value, world.truth.number))
