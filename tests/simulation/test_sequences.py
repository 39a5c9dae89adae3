"""The simulation as the tests run it: a fixed range of seeds."""

from __future__ import annotations

import pytest

from tests.simulation.sequences import sequence_of
from tests.simulation.world import run


@pytest.mark.parametrize("first", [0, *(pytest.param(one, marks=pytest.mark.thorough) for one in (50, 100))])
def test_sequence_of_a_seed_breaks_no_rule(first: int) -> None:
    for seed in range(first, first + 50):
        run(*sequence_of(seed))
