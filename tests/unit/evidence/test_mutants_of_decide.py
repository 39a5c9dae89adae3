"""Each mutant of ``decide`` is found by ``verify``: of evidence that the right code wrote, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.mutants import MUTANTS
from tests.support.evidence import write, wrong
from tests.support.mutate import Mutant, mutated, run_in

OF_WHOLE_PLANS: Final = ("decide/guards/limits.py", "decide/guards/approval.py")
"""Limits (G6) and approvals are of a whole plan and of the policy: no row rests on them."""
OF_DECIDE: Final = [one for one in MUTANTS if one.file.startswith("decide/") and one.file not in OF_WHOLE_PLANS]


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("right")
    write(folder)
    assert wrong(folder) == 0
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("mutant", OF_DECIDE, ids=lambda one: one.name)
def test_mutant_of_decide_is_found_both_ways(mutant: Mutant, right: Path, tmp_path: Path) -> None:
    with mutated(["tests/support"], mutant) as copy:
        done = run_in(copy, "tests.support.evidence", str(tmp_path), str(right))
    looser = mutant.name == "unread records are none"  # it allows all that is right, and more
    assert int(done.stdout) > 0 or looser, "the mutant accepts what the right code wrote"
    assert wrong(tmp_path) > 0, "the right code accepts what the mutant wrote"
