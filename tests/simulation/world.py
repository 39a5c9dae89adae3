"""A cluster, its people and its operators: every step is a small tuple of numbers, so that a sequence is data.

``World.apply(step)`` does one; what makes no sense just now does nothing. So any sequence can be shortened, and a
failing one is kept as a plain list (tests/simulation/test_kept.py).
"""

from __future__ import annotations

import inspect
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from tests.simulation import steps_groups, steps_logs, steps_runs
from tests.simulation.clients import SimClock
from tests.simulation.hub import Hub
from tests.simulation.kafka import SimKafka, Tp
from tests.simulation.logs import Partition, Record
from tests.simulation.rules import Rules
from tests.simulation.scene import MANAGED, OTHER, RULES, STATE_ROOT, Operator, Step, ViolationError
from tests.simulation.settle import settle
from tests.simulation.truth import Truth

STEPS: Final[dict[str, Callable[..., None]]] = {
    name.removeprefix("do_"): function
    for module in (steps_logs, steps_groups, steps_runs)
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if name.startswith("do_") and function.__module__ == module.__name__
}
"""What can happen, by name."""


class World:
    """One run of the simulation: ``rules`` names one of :data:`RULES`, and ` @` one of :data:`MEMORIES`."""

    def __init__(self, rules: str) -> None:
        self.rules, _, memories = rules.partition(" @")
        self.memories = memories or "each"
        self.kafka = SimKafka()
        self.hub = Hub()
        self.truth = Truth(self.kafka)
        self.root = Path(tempfile.mkdtemp(prefix="kretain-sim-", dir=STATE_ROOT))
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
                SimClock(self.kafka, self.hub),
                (MANAGED,) if n == 0 else (MANAGED, OTHER),
            )
            for n in range(2)
        ]
        if self.memories != "each":
            self.operators[1].memory = self.operators[0].memory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for one in self.operators:
            if one.process is not None:
                one.process.kill()
        shutil.rmtree(self.root, ignore_errors=True)

    def apply(self, step: Step) -> None:
        """Do one step.

        Raises:
            ViolationError: something happened that docs/rules.md does not allow.
        """
        self.truth.number += 1
        name, *numbers = step
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

    def counts_events(self, tp: Tp, records: Iterable[Record]) -> None:
        """Note that records are there under the present settings."""
        self.truth.counts(self.wanted.source, tp, self.kafka.topics[tp[0]].append_time, records)

    def tp(self, number: int) -> Tp:
        """Return one of the partitions: two of the topic that all manage, one of the other; 9 to 11: of those added."""
        added = (MANAGED, 2) if number % 2 else (OTHER, 1)
        if number >= 9 and self.kafka.partition(added) is not None:
            return added
        return ((MANAGED, 0), (MANAGED, 1), (OTHER, 0))[number % 3]

    def log(self, number: int) -> tuple[Tp, Partition] | None:
        tp = self.tp(number)
        found = self.kafka.partition(tp)
        return None if found is None or found.leader is None else (tp, found)


def steps() -> dict[str, int]:
    """Return each step's name, and how many numbers it takes."""
    return {name: len(inspect.signature(function).parameters) - 1 for name, function in STEPS.items()}


def run(rules: str, sequence: Sequence[Step]) -> World:
    """Carry a whole sequence out, from a new cluster on.

    Raises:
        ViolationError: see :meth:`World.apply`.
    """
    with World(rules) as world:
        for step in sequence:
            world.apply(step)
        settle(world)
        return world
