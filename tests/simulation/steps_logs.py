"""Steps: producers write, and what happens to logs, topics, brokers and time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.simulation.kafka import BROKERS, HOUR, NO_STAMP, Tp
from tests.simulation.scene import AGES_MS, EDGES_MS, TIMES_MS
from tests.simulation.truth import Moved

if TYPE_CHECKING:
    from tests.simulation.world import World


def do_fall_behind(world: World, number: int) -> None:
    world.log(number)[1].fall_behind()


def do_catch_up(world: World, number: int) -> None:
    world.log(number)[1].catch_up()


def do_elect(world: World, number: int, skip: int) -> None:
    """The other replica leads: where it is behind, the election is unclean."""
    tp, log = world.log(number)
    start, end, unclean = log.log.start, log.log.end, len(log.in_sync) == 1
    log.elect(skip=1 + skip % 2)
    if unclean or log.log.start < start:
        world.counts_events(tp, log.log.live())
        name = "an unclean election" if unclean else "a log start went back"
        world.truth.log_changed(tp, log, name, lost=log.log.end < end)


def do_lose_tail(world: World, number: int, count: int) -> None:
    """A broker of one replica loses power: what it had not synced is gone."""
    tp, log = world.log(number)
    if len(log.in_sync) > 1:
        return
    log.log.cut(max(log.log.start, log.log.end - 1 - count % 6))
    log.begin_epoch()
    world.truth.log_changed(tp, log, "a lost tail", lost=True)


def do_undo_start(world: World, number: int) -> None:
    """A broker is killed before it has written its log start offset down: it is where it was."""
    tp, log = world.log(number)
    there = [one.offset for one in log.log.records if one.offset < log.log.start]
    if not there:
        return
    for broker in log.in_sync:
        log.replicas[broker].start = min(there)
    log.begin_epoch()
    world.counts_events(tp, log.log.live())
    world.truth.log_changed(tp, log, "a trim was undone", lost=False)


def do_no_leader(world: World, number: int) -> None:
    log = world.kafka.partition(world.tp(number))
    if log.leader is None:
        log.lead(min(log.in_sync))
    else:
        log.leader = None


def do_retention(world: World, number: int, count: int) -> None:
    """A broker's own retention moves S."""
    tp, log = world.log(number)
    before = log.log.start
    start = log.move_start(min(log.last_stable, before + 1 + count % 6))
    world.truth.moves.append(Moved(world.truth.number, tp, before, start))


def do_sweep(world: World, number: int) -> None:
    for replica in world.log(number)[1].replicas.values():
        replica.sweep()


def do_compact(world: World, number: int, every: int) -> None:
    world.kafka.compact(world.log(number)[0], 2 + every % 3)


def do_recreate(world: World, topic: int, clear: int) -> None:
    """A topic is deleted and recreated; brokers before 4 keep its commits."""
    old = world.topic(topic)
    world.kafka.delete(old.name, clear_commits=bool(clear % 2))
    world.kafka.create(old.name, len(old.partitions), append_time=old.append_time)
    for number in range(len(old.partitions)):
        tp = (old.name, number)
        world.truth.forget_events(tp)
        world.truth.log_changed(tp, world.kafka.partition(tp), "a topic was recreated", lost=True)
        world.open = [one for one in world.open if one[0] != tp]


def do_add_partition(world: World, topic: int) -> None:
    """A topic gets one partition more, one at the most: its readers start at 0 there (KIP-1327)."""
    found = world.topic(topic)
    if len(found.partitions) == (2, 1)[topic % 2]:
        world.truth.added.add((found.topic_id, world.kafka.add_partition(found.name)[1]))


def do_append_time(world: World, topic: int) -> None:
    found = world.topic(topic)
    found.append_time = not found.append_time
    for number, log in enumerate(found.partitions):
        tp = (found.name, number)
        world.truth.hazard(tp, "message.timestamp.type was set")
        world.counts_events(tp, log.log.live())


def append_record(world: World, tp: Tp, age: int, event: int, txn: int | None = None) -> None:
    now = world.kafka.now_ms
    stamp: int | None = (
        NO_STAMP if age == 7 else (now // 1000 if age == 6 else now - EDGES_MS.get(age, AGES_MS[age % len(AGES_MS)]))
    )
    event_ms = now - EDGES_MS.get(event, AGES_MS[event % 5])
    header = {5: b"no time", 6: str(event_ms // 1000).encode(), 7: b"9" * 4400, 8: b"\xff"}.get(
        event, str(event_ms).encode()
    )
    world.counts_events(tp, [world.kafka.append(tp, stamp=stamp, header=header, txn=txn)])


def do_produce(world: World, number: int, count: int, age: int, event: int) -> None:
    tp, _ = world.log(number)
    for _ in range(1 + count % 6):
        append_record(world, tp, age, event)


def do_transaction(world: World, number: int, count: int, age: int) -> None:
    tp, _ = world.log(number)
    if len(world.open) < 2:
        txn = world.kafka.begin_transaction(tp)
        for _ in range(1 + count % 3):
            append_record(world, tp, age, age % 5, txn)
        world.open.append((tp, txn))


def do_end_transaction(world: World, how: int) -> None:
    if world.open:
        tp, txn = world.open.pop(0)
        world.kafka.end_transaction(tp, txn, "committed" if how % 2 else "aborted")


def do_coordinator(world: World, number: int, how: int) -> None:
    """A coordinator goes offline, comes back, or moves."""
    number %= len(world.kafka.offsets_leaders)
    leader, epoch = world.kafka.offsets_leaders[number]
    if how % 2 and leader is not None:
        world.kafka.offsets_leaders[number] = (None, epoch)
    else:
        there = BROKERS[(BROKERS.index(leader) + 1) % 3] if leader is not None else BROKERS[0]
        world.kafka.offsets_leaders[number] = (there, epoch + 1)
    world.truth.coordinators[number] = world.truth.number


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


def do_registry(world: World, times: int) -> None:
    world.kafka.failing["schema"] = 1 + times % 3


def do_lose_delete(world: World, how: int) -> None:
    world.kafka.lost = [("before", "after", "late", "refused")[how % 4]]  # type: ignore[list-item]


def do_late_delete(world: World) -> None:
    """Brokers come to requests that nobody waits for any more."""
    for one in world.operators:
        while one.late:
            one.late.pop()[1]()


def do_time(world: World, much: int) -> None:
    world.kafka.pass_time(TIMES_MS[much % len(TIMES_MS)])


def do_hold(world: World) -> None:
    world.hold = not world.hold
    world.truth.held_since = world.truth.number if world.hold else None


def do_deposed(world: World, times: int) -> None:
    """The next fetches are answered by a broker that leads no more, and does not know it."""
    world.kafka.deposed = 1 + times % 3


def do_compact_state(world: World) -> None:
    """The log cleaner runs over what all share: of each key the last word stays."""
    last = {one.key: one for one in world.kafka.state_messages}
    world.kafka.state_messages = sorted(last.values(), key=lambda one: one.offset)


def do_policy(world: World, topic: int, how: int) -> None:
    """Somebody writes to the policy topic: a minimum, something that nobody understands, or that it is taken back."""
    minimum = {"log.retention.min.timestamp": world.kafka.now_ms - (how % 3) * 24 * HOUR}
    value = {9: b"{", 10: None, 11: b'{"log.retention.min.timestamp": "soon"}'}.get(how, json.dumps(minimum).encode())
    world.kafka.policy_messages.append((world.topic(topic).name.encode(), value, world.truth.number))
