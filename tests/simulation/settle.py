"""When all is over: whatever a fresh kretain would trim, one with a memory must come to trim, too."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from retention_cli.core.consumers import plain_name
from retention_cli.core.model import Decision
from tests.simulation.clients import SimClock
from tests.simulation.kafka import BROKERS
from tests.simulation.runs import memories_of, planned, reading_of
from tests.simulation.scene import GROUPS, Operator, ViolationError, group_name
from tests.simulation.steps_logs import do_end_transaction, do_hold
from tests.simulation.steps_runs import do_finish, do_forget
from tests.simulation.truth import YEAR_2000_MS, told

if TYPE_CHECKING:
    from tests.simulation.world import World


def settle(world: World) -> None:
    """Heal everything, carry out each remedy that was told, and see that nothing stays for ever.

    Raises:
        ViolationError: a fresh kretain would trim what this one never does.
    """
    heal(world)
    one = world.operators[0]
    for passed in (3 if world.wanted.start else 2, 2, 2):  # first as far as the longest groups.start goes back
        _carry_out_remedies(world, one)
        _carry_out_remedies(world, one)
        world.apply(("time", passed))
        world.apply(("trim", 0))
    _carry_out_remedies(world, one)  # some say more when records are old enough
    world.apply(("trim", 0))
    fresh = Operator("fresh", world.root / "fresh", SimClock(world.kafka, world.hub), one.topics)
    reading, reader = reading_of(world, fresh)
    with closing(memories_of(world, fresh)) as memories:
        wanted = planned(world, fresh, reading, reader, memories)
    world.apply(("plan", 0))
    assert one.saved is not None
    mine = {row.tp: row for row in one.saved.decisions}
    for row in wanted.decisions:
        own = mine[row.tp]
        if any(reason.code == "F10" for reason in own.reasons):
            raise ViolationError(f"{row.tp}: groups have been watched for long enough: {own}")
        if row.action != "trim" or _says_truly(world, own):
            continue
        if one.memory.clock_was_off and "G3" in {own.limited_by, *(reason.code for reason in own.reasons)}:
            world.truth.residues["our clock was ahead when it was noted how far the log had come: held until then"] += 1
            continue
        if (own.trim_to or own.log_start or 0) < (row.trim_to or 0):
            raise ViolationError(f"{row.tp}: stands still: {own}\na fresh kretain: {row}")


def _carry_out_remedies(world: World, one: Operator) -> None:
    world.apply(("plan", 0))
    told = [] if one.saved is None else [reason.text for row in one.saved.decisions for reason in row.reasons]
    for number in range(len(GROUPS)):
        name = plain_name(group_name(world.rules, number))
        if any(f": kretain groups forget -b HOST:PORT {name}" in text for text in told):
            do_forget(world, 0, number)


def heal(world: World) -> None:
    for number in range(2):
        do_finish(world, number)
    world.kafka.failing, world.kafka.lost, world.kafka.loading, world.kafka.may_describe = {}, [], False, True
    world.kafka.offsets_hidden, world.kafka.deposed, world.kafka.may_describe_scope = False, 0, True
    for one in world.operators:
        one.clock.off_ms = 0
    world.kafka.offsets_leaders = [
        (BROKERS[n % 3] if leader is None else leader, epoch)
        for n, (leader, epoch) in enumerate(world.kafka.offsets_leaders)
    ]
    if world.hold:
        do_hold(world)
    while world.open:
        do_end_transaction(world, 1)
    for group in world.kafka.groups.values():  # as its message says: no cluster has these topics
        if group.kind == "outside":
            group.commits = {tp: one for tp, one in group.commits.items() if tp[0] in world.kafka.topics}
    for name in world.kafka.topics:
        for number, log in enumerate(world.kafka.topics[name].partitions):
            if log.leader is None:
                log.leader, log.epoch = min(log.in_sync), log.epoch + 1
                log.log.begin_epoch(log.epoch)
            for broker in list(log.replicas):
                log.catch_up(broker)
            for group in world.kafka.groups.values():  # what F2 and F5 say: let it commit (again)
                group.members.clear()
                group.away.clear()
                group.pending.clear()
                group.pattern, group.rebalancing = None, False
                tp = (name, number)
                if any(one[0] == name for one in group.commits):
                    here = group.commits.get(tp, (log.log.start, None))
                    offset = min(here[0] if here[0] >= 0 else log.log.start, log.last_stable)
                    world.truth.committed(group.name, tp, log, offset)
                    again = group.commits.get(tp) == (offset, log.epoch)  # a reset carries no leader epoch
                    group.commits[tp] = (offset, None if again or group.kind == "outside" else log.epoch)


def _says_truly(world: World, own: Decision) -> bool:
    """Return whether it holds for a record stamped before 2000 that is there, and that a fresh kretain has not come to.

    One that remembers a newer event time than is left passes over more records, and meets it (G9).
    """
    log = world.kafka.partition((own.topic, own.partition))
    old = log is not None and any(
        time_ms is not None and time_ms < YEAR_2000_MS
        for one in log.committed()
        for time_ms in (told(one.header) if world.wanted.header else one.stamp,)
    )
    return old and own.action == "hold" and [reason.code for reason in own.reasons] == ["G9"]
