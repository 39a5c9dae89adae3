"""Steps: groups read, commit, go back, come and vanish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retention_cli.core.consumers import is_outside
from tests.simulation.kafka import Group, Tp
from tests.simulation.scene import MANAGED, MINUTE, OTHER, SenselessError, group_name

if TYPE_CHECKING:
    from tests.simulation.world import World


def group_of(world: World, number: int) -> Group:
    name = group_name(world.rules, number)
    if name not in world.kafka.groups:
        kind: Any = "outside" if is_outside(name) else "consumer" if number % 2 else "classic"
        world.kafka.groups[name] = Group(name, kind)
    return world.kafka.groups[name]


def group_in_kafka(world: World, number: int) -> Group:
    """Return a group that brokers know.

    Raises:
        SenselessError: it keeps its positions elsewhere.
    """
    one = group_of(world, number)
    if one.kind == "outside":
        raise SenselessError
    return one


def commit(one: Group, tp: Tp, offset: int, epoch: int | None) -> None:
    """Write a position down: a file has no place for a leader epoch."""
    one.commits[tp] = (offset, None if one.kind == "outside" else epoch)


def do_read(world: World, group: int, number: int, count: int, carry: int) -> None:
    """A group reads on from its commit (or from S), and commits; some clients always name leader epoch 0."""
    tp, log = world.log(number)
    one = group_of(world, group)
    before = one.commits.get(tp)
    if tp in one.pending:
        return
    if one.pattern is not None:
        one.assigned.add(tp[0])
    position = log.log.start if before is None or (one.name, tp) in world.truth.stale else before[0]
    there = [r for r in log.committed() if r.offset >= max(position, log.log.start)][: 1 + count % 8]
    offset = there[-1].offset + 1 if there else min(max(position, log.log.start), log.last_stable)
    epoch = there[-1].epoch if there else log.epoch
    world.truth.committed(one.name, tp, log, offset)
    commit(one, tp, offset, 0 if carry >= 10 else epoch if carry % 2 else None)


def do_reset(world: World, group: int, number: int, how: int) -> None:
    """A client lets its group start anew by an offset that is no position (KafkaJS stores -2)."""
    tp, _ = world.log(number)
    one = group_in_kafka(world, group)
    world.truth.starts_anew(one.name, tp)
    one.commits[tp] = ((-2, -1, -2, -3)[how % 4], None)


def do_pend(world: World, group: int, number: int, count: int, carry: int) -> None:
    """A group reads on in a transaction that is open: the offset is in it, and may yet be taken back."""
    tp, log = world.log(number)
    one = group_in_kafka(world, group)
    if tp in one.pending:
        return
    before = one.commits.get(tp, (-1, None))[0]
    if before < 0:
        world.truth.starts_anew(one.name, tp)
    world.truth.came(one.name, tp)
    position = log.log.start if (one.name, tp) in world.truth.stale else max(before, log.log.start)
    there = [r for r in log.committed() if r.offset >= position][: 1 + count % 8]
    offset = there[-1].offset + 1 if there else min(position, log.last_stable)
    one.pending[tp] = offset, log.epoch if carry % 2 else None
    world.truth.pending_in[one.name, tp] = world.truth.life_of(tp)


def do_end_pending(world: World, group: int, how: int) -> None:
    """The transactions of a group end."""
    one = world.kafka.groups.get(group_name(world.rules, group))
    while one is not None and one.pending:
        tp, (offset, epoch) = one.pending.popitem()
        log = world.kafka.partition(tp)
        if how % 2 == 0:
            continue
        if world.truth.pending_in[one.name, tp] == world.truth.life_of(tp) and offset <= log.high_watermark:
            world.truth.committed(one.name, tp, log, offset)
        else:
            world.truth.committed_late(one.name, tp, offset)
        commit(one, tp, offset, epoch)


def do_seek(world: World, group: int, number: int, back: int, carry: int) -> None:
    one = group_of(world, group)
    tp, log = world.log(number)
    if tp not in one.commits:
        return
    offset = max(log.log.start, min(one.commits[tp][0], log.last_stable) - 1 - back % 6)
    world.truth.committed(one.name, tp, log, offset)
    commit(one, tp, offset, log.epoch if carry % 2 else None)


def do_late(world: World, group: int, number: int, ahead: int, how: int) -> None:
    """A consumer of an older log of that name commits into this one."""
    tp, log = world.log(number)
    one = group_of(world, group)
    epoch = (None, log.epoch, log.epoch + 3)[how % 3]
    offset = log.high_watermark + 1 + ahead % 12
    if epoch == log.epoch + 3 and ahead % 2:
        offset = max(0, log.high_watermark - ahead % 4)
    world.truth.committed_late(one.name, tp, offset)
    commit(one, tp, offset, epoch)


def do_member(world: World, group: int, topic: int) -> None:
    one, name = group_in_kafka(world, group), world.topic(topic).name
    if name in one.members:
        one.members.discard(name)
    else:
        _join(world, one, name)


def do_regex(world: World, group: int) -> None:
    """A member of the newer protocol joins, or leaves, that reads each topic that matches a regular expression."""
    one = group_of(world, group)
    if one.kind != "consumer":
        return
    if one.pattern is not None:
        one.pattern = None
        one.assigned.clear()
        return
    known = one.reads(world.kafka.now_ms)
    one.pattern = f"[{MANAGED}{OTHER}]"
    for name in (MANAGED, OTHER):
        if name not in known:
            _starts(world, one, name)


def do_upgrade(world: World, group: int) -> None:
    """A group changes its protocol while its members go on."""
    one = group_in_kafka(world, group)
    if one.pattern is not None:
        return
    one.kind = "classic" if one.kind == "consumer" else "consumer"
    world.truth.upgraded[one.name] = world.truth.number


def do_rebalance(world: World, group: int) -> None:
    one = group_of(world, group)
    one.rebalancing = not one.rebalancing


def do_static(world: World, group: int, topic: int, minutes: int) -> None:
    """A static member joins; it stops, which its coordinator learns when its session is over; or it is back."""
    one, name = group_in_kafka(world, group), world.topic(topic).name
    if name in one.members:
        one.members.discard(name)
        one.away[name] = world.kafka.now_ms + (1 + minutes) * MINUTE
    else:
        _join(world, one, name)


def _join(world: World, group: Group, topic: str) -> None:
    known = topic in group.listed(world.kafka.now_ms)
    group.away.pop(topic, None)
    group.members.add(topic)
    if not known:
        _starts(world, group, topic)


def _starts(world: World, group: Group, topic: str) -> None:
    """A group's first member of a topic comes: it starts anew where there is no commit (F2)."""
    for number in range(len(world.kafka.topics[topic].partitions)):
        tp = (topic, number)
        world.truth.hazard(tp, "a member came")
        if tp not in group.commits and tp not in group.pending:
            world.truth.released[group.name, tp] = set()


def do_delete_group(world: World, group: int) -> None:
    gone = world.kafka.groups.pop(group_name(world.rules, group), None)
    for tp in () if gone is None else gone.commits:
        world.truth.hazard(tp, "a group was deleted")
        world.truth.stale.pop((gone.name, tp), None)  # type: ignore[union-attr]


def do_delete_offsets(world: World, group: int, number: int) -> None:
    one = world.kafka.groups.get(group_name(world.rules, group))
    if one is not None and (tp := world.tp(number)) in one.commits:
        if tp[0] in one.reads(world.kafka.now_ms):
            return  # GROUP_SUBSCRIBED_TO_TOPIC
        del one.commits[tp]
        world.truth.hazard(tp, "offsets were deleted")
        world.truth.stale.pop((one.name, tp), None)
