"""Steps: groups read, commit, go back, come and vanish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.kafka import Group, Tp
from tests.simulation.scene import GROUPS, MANAGED, MINUTE, OTHER, group_name

if TYPE_CHECKING:
    from tests.simulation.world import World


def group_of(world: World, number: int) -> Group:
    name = group_name(world.rules, number)
    if name not in world.kafka.groups:
        kind: Any = "outside" if name not in GROUPS else "consumer" if number % 2 else "classic"
        world.kafka.groups[name] = Group(name, kind)
    return world.kafka.groups[name]


def commit(one: Group, tp: Tp, offset: int, epoch: int | None) -> None:
    """Write a position down: a file has no place for a leader epoch."""
    one.commits[tp] = (offset, None if one.kind == "outside" else epoch)


def do_read(world: World, group: int, number: int, count: int, carry: int) -> None:
    """A group reads on from its commit (or from S), and commits."""
    if (found := world.log(number)) is None:
        return
    tp, log = found
    one = group_of(world, group)
    before = one.commits.get(tp)
    position = log.log.start if before is None or (one.name, tp) in world.truth.stale else before[0]
    there = [r for r in log.committed() if r.offset >= max(position, log.log.start)][: 1 + count % 8]
    offset = there[-1].offset + 1 if there else min(max(position, log.log.start), log.last_stable)
    epoch = there[-1].epoch if there else log.epoch
    world.truth.committed(one.name, tp, log, offset)
    commit(one, tp, offset, epoch if carry % 2 else None)


def do_seek(world: World, group: int, number: int, back: int, carry: int) -> None:
    """A group goes back."""
    found = world.log(number)
    one = group_of(world, group)
    if found is None or found[0] not in one.commits:
        return
    tp, log = found
    offset = max(log.log.start, min(one.commits[tp][0], log.last_stable) - 1 - back % 6)
    world.truth.committed(one.name, tp, log, offset)
    commit(one, tp, offset, log.epoch if carry % 2 else None)


def do_late(world: World, group: int, number: int, ahead: int, how: int) -> None:
    """A consumer of an older log of that name commits into this one."""
    if (found := world.log(number)) is None:
        return
    tp, log = found
    one = group_of(world, group)
    epoch = (None, log.epoch, log.epoch + 3)[how % 3]
    offset = log.high_watermark + 1 + ahead % 12
    if epoch == log.epoch + 3 and ahead % 2:
        offset = max(0, log.high_watermark - ahead % 4)
    world.truth.committed_late(one.name, tp, offset)
    commit(one, tp, offset, epoch)


def do_member(world: World, group: int, topic: int) -> None:
    """A member joins, or leaves."""
    name = (MANAGED, OTHER)[topic % 2]
    one = group_of(world, group)
    if one.kind == "outside":
        return
    if name in one.members:
        one.members.discard(name)
    else:
        _join(world, one, name)


def do_static(world: World, group: int, topic: int, minutes: int) -> None:
    """A static member joins; it stops, which its coordinator learns when its session is over; or it is back."""
    name = (MANAGED, OTHER)[topic % 2]
    one = group_of(world, group)
    if one.kind == "outside":
        return
    if name in one.members:
        one.members.discard(name)
        one.away[name] = world.kafka.now_ms + (1 + minutes) * MINUTE
    else:
        _join(world, one, name)


def _join(world: World, group: Group, topic: str) -> None:
    known = topic in group.listed(world.kafka.now_ms)
    group.away.pop(topic, None)
    group.members.add(topic)
    for number in () if known else range(3):
        if world.tp(number)[0] == topic:
            world.truth.hazard(world.tp(number), "a member came")


def do_delete_group(world: World, group: int) -> None:
    forget_commits(world, world.kafka.groups.pop(group_name(world.rules, group), None))


def do_delete_offsets(world: World, group: int, number: int) -> None:
    one = world.kafka.groups.get(group_name(world.rules, group))
    if one is not None and (tp := world.tp(number)) in one.commits:
        del one.commits[tp]
        world.truth.hazard(tp, "offsets were deleted")
        world.truth.changed[one.name, tp] = world.truth.number
        world.truth.stale.pop((one.name, tp), None)


def forget_commits(world: World, group: Group | None) -> None:
    for tp in () if group is None else group.commits:
        world.truth.hazard(tp, "a group was deleted")
        world.truth.changed[group.name, tp] = world.truth.number  # type: ignore[union-attr]
        world.truth.stale.pop((group.name, tp), None)  # type: ignore[union-attr]
