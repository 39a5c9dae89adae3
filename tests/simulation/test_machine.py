"""The simulation as `make test` runs it: a Hypothesis machine whose failures shrink, and a fixed range of seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.simulation.scene import MEMORIES, RULES, ViolationError
from tests.simulation.sequences import sequence_of
from tests.simulation.settle import settle
from tests.simulation.world import World, run, steps

SMALL = st.integers(0, 11)
REQUESTS = st.one_of(st.just(0), st.integers(1, 60))
RUNS = ("plan", "trim", "saved")
QUICK = settings(
    max_examples=80,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class Machine(RuleBasedStateMachine):
    """Each step of the world is a rule; what they did is printed as a list that test_kept.py can keep."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None
        self.failed = False
        self.taken: list[tuple[Any, ...]] = []

    @initialize(rules=st.sampled_from(list(RULES)), memories=st.sampled_from(MEMORIES))
    def begin(self, rules: str, memories: str) -> None:
        self.world = World(f"{rules} @{memories}")
        for number in (0, 1):  # most clusters have records of some age, and a group that reads them
            self.do("produce", number, 5, 4, 4)
            self.do("read", 0, number, 3, 1)

    def do(self, name: str, *numbers: int) -> None:
        assert self.world is not None
        self.taken.append((name, *numbers))
        try:
            self.world.apply((name, *numbers))
        except ViolationError as error:
            self.failed = True
            raise ViolationError(f"{error}\nrun('{self.world.rules} @{self.world.memories}', {self.taken})") from None

    def teardown(self) -> None:
        if self.world is None:
            return
        try:
            if not self.failed:
                settle(self.world)
        except ViolationError as error:
            raise ViolationError(f"{error}\nrun('{self.world.rules} @{self.world.memories}', {self.taken})") from None
        finally:
            self.world.close()


def _rule_of(name: str, count: int) -> Callable[..., None]:
    """Return a rule that does one step with small numbers."""

    def step(self: Machine, numbers: tuple[int, ...]) -> None:
        self.do(name, *numbers)

    step.__name__ = step.__qualname__ = name
    drawn = [REQUESTS if name in RUNS and place == 1 else SMALL for place in range(count)]
    found: Callable[..., None] = rule(numbers=st.tuples(*drawn))(step)
    return found


for _name, _count in steps().items():
    setattr(Machine, f"step_{_name}", _rule_of(_name, _count))


def test_drawn_sequence_breaks_no_rule() -> None:
    run_state_machine_as_test(Machine, settings=QUICK)


@pytest.mark.parametrize("first", range(0, 150, 50))
def test_sequence_of_a_seed_breaks_no_rule(first: int) -> None:
    for seed in range(first, first + 50):
        run(*sequence_of(seed))
