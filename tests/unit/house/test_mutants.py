"""The lists of mutants follow the code: one that changes nothing proves nothing."""

from __future__ import annotations

import pytest

from tests.mutants import MUTANTS
from tests.simulation.disks.mutants import MUTANTS as OF_DISKS
from tests.support.mutate import ROOT, Mutant


@pytest.mark.parametrize("mutants", [MUTANTS, OF_DISKS], ids=["all", "disks"])
def test_each_mutant_changes_something(mutants: tuple[Mutant, ...]) -> None:
    lost = [
        one.name for one in mutants if one.old not in (ROOT / "retention_cli" / one.file).read_text(encoding="utf-8")
    ]
    assert lost == []
    assert len({one.name for one in mutants}) == len(mutants)
