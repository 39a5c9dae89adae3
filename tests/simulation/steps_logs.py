"""Steps: what happens to logs and topics: elections, lost tails, retention, compaction, topics recreated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.scene import MANAGED, OTHER
from tests.simulation.truth import Moved

if TYPE_CHECKING:
    from tests.simulation.world import World


def do_fall_behind(world: World, number: int) -> None:
    if (found := world.log(number)) is not None:
        for broker in found[1].replicas:
            found[1].fall_behind(broker)


def do_catch_up(world: World, number: int) -> None:
    if (found := world.log(number)) is not None:
        for broker in list(found[1].replicas):
            found[1].catch_up(broker)


def do_elect(world: World, number: int, skip: int) -> None:
    """The other replica leads: where it is behind, the election is unclean."""
    if (found := world.log(number)) is None:
        return
    tp, log = found
    other = next(broker for broker in log.replicas if broker != log.leader)
    start, end, unclean = log.log.start, log.log.end, other not in log.in_sync
    log.elect(other, skip=1 + skip % 2)
    if unclean or log.log.start < start:
        world.counts_events(tp, log.log.live())
        name = "an unclean election" if unclean else "a log start went back"
        world.truth.log_changed(tp, log, name, lost=log.log.end < end)


def do_lose_tail(world: World, number: int, count: int) -> None:
    """A broker of one replica loses power: what it had not synced is gone."""
    if (found := world.log(number)) is None or len(found[1].in_sync) > 1:
        return
    tp, log = found
    log.log.cut(max(log.log.start, log.log.end - 1 - count % 6))
    log.epoch += 1
    log.log.begin_epoch(log.epoch)
    world.truth.log_changed(tp, log, "a lost tail", lost=True)


def do_undo_start(world: World, number: int) -> None:
    """A broker is killed before it has written its log start offset down: it is where it was."""
    if (found := world.log(number)) is None:
        return
    tp, log = found
    there = [one.offset for one in log.log.records if one.offset < log.log.start]
    if not there:
        return
    for broker in log.in_sync:
        log.replicas[broker].start = min(there)
    log.epoch += 1
    log.log.begin_epoch(log.epoch)
    world.counts_events(tp, log.log.live())
    world.truth.log_changed(tp, log, "a trim was undone", lost=False)


def do_no_leader(world: World, number: int) -> None:
    tp = world.tp(number)
    log = world.kafka.partition(tp)
    if log is None:
        return
    if log.leader is None:
        log.leader, log.epoch = min(log.in_sync), log.epoch + 1
        log.log.begin_epoch(log.epoch)
    else:
        log.leader = None


def do_retention(world: World, number: int, count: int) -> None:
    """A broker's own retention moves S."""
    if (found := world.log(number)) is not None:
        tp, log = found
        before = log.log.start
        start = log.move_start(min(log.last_stable, before + 1 + count % 6))
        world.truth.moves.append(Moved(world.truth.number, tp, before, start))


def do_sweep(world: World, number: int) -> None:
    if (found := world.log(number)) is not None:
        for replica in found[1].replicas.values():
            replica.sweep()


def do_compact(world: World, number: int, every: int) -> None:
    if (found := world.log(number)) is not None:
        world.kafka.compact(found[0], 2 + every % 3)


def do_recreate(world: World, topic: int, clear: int) -> None:
    """A topic is deleted and recreated; brokers before 4 keep its commits."""
    name = (MANAGED, OTHER)[topic % 2]
    if name not in world.kafka.topics:
        return
    old = world.kafka.topics[name]
    world.kafka.delete(name, clear_commits=bool(clear % 2))
    world.kafka.create(name, len(old.partitions), append_time=old.append_time, cleanup=old.cleanup)
    for number in range(len(old.partitions)):
        tp = (name, number)
        world.truth.forget_events(tp)
        world.truth.log_changed(tp, world.kafka.partition(tp), "a topic was recreated", lost=True)
        world.open = [one for one in world.open if one[0] != tp]


def do_add_partition(world: World, topic: int) -> None:
    """A topic gets one partition more, one at the most: its readers start at 0 there (KIP-1327)."""
    found = world.kafka.topics.get((MANAGED, OTHER)[topic % 2])
    if found is not None and len(found.partitions) == (2, 1)[topic % 2]:
        tp = world.kafka.add_partition(found.name)
        world.truth.added.add((found.topic_id, tp[1]))


def do_append_time(world: World, topic: int) -> None:
    if (found := world.kafka.topics.get((MANAGED, OTHER)[topic % 2])) is not None:
        found.append_time = not found.append_time
        for number, log in enumerate(found.partitions):
            tp = (found.name, number)
            world.truth.hazard(tp, "message.timestamp.type was set")
            world.counts_events(tp, log.log.live())
