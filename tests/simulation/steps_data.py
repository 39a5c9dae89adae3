"""Steps: producers write, in transactions or not, with stamps of all sorts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.kafka import Tp
from tests.simulation.logs import NO_STAMP, Record
from tests.simulation.scene import AGES_MS, EDGES_MS, RULES

if TYPE_CHECKING:
    from tests.simulation.world import World


def append_record(world: World, tp: Tp, age: int, event: int, txn: int | None = None) -> Record | None:
    now = world.kafka.now_ms
    stamp: int | None = (
        NO_STAMP if age == 7 else (now // 1000 if age == 6 else now - EDGES_MS.get(age, AGES_MS[age % len(AGES_MS)]))
    )
    event_ms = now - EDGES_MS.get(event, AGES_MS[event % 5])
    header = {5: b"no time", 6: str(event_ms // 1000).encode(), 7: b"9" * 4400, 8: b"\xff"}.get(
        event, str(event_ms).encode()
    )
    timestamped = not RULES[world.rules].header and stamp != NO_STAMP
    record = world.kafka.append(tp, stamp=stamp, event_ms=stamp if timestamped else event_ms, header=header, txn=txn)
    if record is not None:
        world.counts_events(tp, [record])
    return record


def do_produce(world: World, number: int, count: int, age: int, event: int) -> None:
    if (found := world.log(number)) is not None:
        for _ in range(1 + count % 6):
            append_record(world, found[0], age, event)


def do_transaction(world: World, number: int, count: int, age: int) -> None:
    if (found := world.log(number)) is not None and len(world.open) < 2:
        txn = world.kafka.begin_transaction(found[0])
        assert txn is not None
        for _ in range(1 + count % 3):
            append_record(world, found[0], age, age % 5, txn)
        world.open.append((found[0], txn))


def do_end_transaction(world: World, how: int) -> None:
    if world.open:
        tp, txn = world.open.pop(0)
        world.kafka.end_transaction(tp, txn, "committed" if how % 2 else "aborted")
