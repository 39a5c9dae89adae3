"""A cluster, its people and its operators: every step is a small tuple of numbers, so that a sequence is data.

``World.apply(step)`` does one; what makes no sense just now does nothing. So any sequence can be shortened, and a
failing one is kept as a plain list (tests/simulation/test_kept.py).
"""

from __future__ import annotations

import contextlib
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from retention_cli.core.consumers import plain_name
from retention_cli.core.model import Decision
from tests.simulation import steps_groups, steps_logs, steps_runs
from tests.simulation.clients import Hub, SimClock
from tests.simulation.kafka import BROKERS, Partition, Record, SimKafka, Topic, Tp
from tests.simulation.scene import (
    GROUPS,
    MANAGED,
    OTHER,
    RULES,
    Operator,
    SenselessError,
    Simulated,
    Step,
    ViolationError,
    group_name,
)
from tests.simulation.steps_logs import do_end_transaction, do_hold
from tests.simulation.steps_runs import do_finish, do_forget, memories_of, planned, reading_of
from tests.simulation.truth import YEAR_2000_MS, Rules, Truth, told
from tests.support.facts import known

STEPS: Final[dict[str, Callable[..., None]]] = {
    name.removeprefix("do_"): function
    for module in (steps_logs, steps_groups, steps_runs)
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if name.startswith("do_") and function.__module__ == module.__name__
}
"""What can happen, by name."""


class World(Simulated):
    """One run of the simulation: ``rules`` names one of :data:`RULES`, and ` @` one of :data:`MEMORIES`."""

    def __init__(self, rules: str) -> None:
        super().__init__()
        self.rules, _, memories = rules.partition(" @")
        self.memories = memories or "each"
        self.kafka = SimKafka()
        self.hub = Hub()
        self.kafka.pause = self.hub.pause
        self.truth = Truth(self.kafka)
        self.hold = False
        self.source = 0
        self.outcomes: Counter[str] = Counter()
        self.open: list[tuple[Tp, int]] = []
        self.kafka.create(MANAGED, 2)
        self.kafka.create(OTHER, 1)
        self.kafka.scope, self.kafka.offsets_hidden = RULES[self.rules].scope, RULES[self.rules].hidden
        self.kafka.may_describe = RULES[self.rules].scope is None
        if RULES[self.rules].live:
            steps_logs.do_policy(self, 0, 1)
            steps_logs.do_policy(self, 1, 1)
        self.operators = [
            Operator(
                f"op{n}",
                self.root / ("op0" if self.memories == "one" else f"op{n}"),
                SimClock(self.kafka),
                (MANAGED,) if n == 0 else (MANAGED, OTHER),
            )
            for n in range(2)
        ]
        if self.memories != "each":
            self.operators[1].memory = self.operators[0].memory
        for one in self.operators:
            self.callback(lambda operator: operator.process.kill(), one)

    def apply(self, *steps: Step) -> None:
        """Do one step after another.

        Raises:
            ViolationError: something happened that docs/rules.md does not allow.
        """
        for name, *numbers in steps:
            self.truth.number += 1
            with contextlib.suppress(SenselessError):
                STEPS[name](self, *numbers)
            if self.truth.violations:
                raise ViolationError("\n".join(self.truth.violations))

    @property
    def wanted(self) -> Rules:
        """What the policy says now: where event times are may change between runs."""
        rules = RULES[self.rules]
        if self.source == 0 or rules.event_h is None:
            return rules
        return replace(rules, header=self.source == 2, explicit=self.source == 1, json=False, avro=False)

    def counts_events(self, tp: Tp, records: Sequence[Record]) -> None:
        """Note that records are there under the present settings, and under those of whoever still runs."""
        running = {one.source for one in self.operators if one.process.alive}
        for source in running | {self.wanted.source}:
            self.truth.counts(source, tp, self.kafka.topics[tp[0]].append_time, records)

    def tp(self, number: int) -> Tp:
        """Return one of the partitions: two of the topic that all manage, one of the other; 9 to 11: of those added."""
        added = (MANAGED, 2) if number % 2 else (OTHER, 1)
        if number >= 9 and added[1] < len(self.kafka.topics[added[0]].partitions):
            return added
        return ((MANAGED, 0), (MANAGED, 1), (OTHER, 0))[number % 3]

    def log(self, number: int) -> tuple[Tp, Partition]:
        """Return one of the partitions.

        Raises:
            SenselessError: it has no leader.
        """
        tp = self.tp(number)
        found = self.kafka.partition(tp)
        if found.leader is None:
            raise SenselessError
        return tp, found

    def topic(self, number: int) -> Topic:
        return self.kafka.topics[(MANAGED, OTHER)[number % 2]]


def steps() -> dict[str, int]:
    """Return each step's name, and how many numbers it takes."""
    return {name: len(inspect.signature(function).parameters) - 1 for name, function in STEPS.items()}


def run(rules: str, sequence: Sequence[Step]) -> World:
    """Carry a whole sequence out, from a new cluster on.

    Raises:
        ViolationError: see :meth:`World.apply`.
    """
    with World(rules) as world:
        world.apply(*sequence)
        settle(world)
        return world


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
        world.apply(("time", passed), ("trim", 0))
    _carry_out_remedies(world, one)  # some say more when records are old enough
    world.apply(("trim", 0))
    fresh = Operator("fresh", world.root / "fresh", SimClock(world.kafka), one.topics)
    reading, reader = reading_of(world, fresh)
    with contextlib.closing(memories_of(world, fresh)) as memories:
        wanted = planned(world, fresh, reading, reader, memories)
    world.apply(("plan", 0))
    mine = {row.tp: row for row in known(one.saved).decisions}
    for row in wanted.decisions:
        own = mine[row.tp]
        if any(reason.code == "F10" for reason in own.reasons):
            raise ViolationError(f"{row.tp}: groups have been watched for long enough: {own}")
        if row.action != "trim" or _says_truly(world, own):
            continue
        late = one.memory.clock_was_off and "G3" in {own.limited_by, *(reason.code for reason in own.reasons)}
        if world.truth.excuses("our clock was ahead when it was noted how far the log had come: held until then", late):
            continue
        other = world.wanted.avro and any("does the registry return other schemas?" in one.text for one in own.reasons)
        if world.truth.excuses("retention took the youngest of a block, as if the registry had changed: held", other):
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
    for tp, log in world.kafka.logs():
        if log.leader is None:
            log.lead(min(log.in_sync))
        log.catch_up()
        for group in world.kafka.groups.values():  # what F2 and F5 say: let it commit (again)
            group.members.clear()
            group.away.clear()
            group.pending.clear()
            group.pattern, group.rebalancing = None, False
            if any(one[0] == tp[0] for one in group.commits):
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
    old = any(
        time_ms is not None and time_ms < YEAR_2000_MS
        for one in log.committed()
        for time_ms in (told(one.header) if world.wanted.header else one.stamp,)
    )
    return old and own.action == "hold" and [reason.code for reason in own.reasons] == ["G9"]
