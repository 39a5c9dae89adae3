"""Random sequences by seed, for hours: ``python -m tests.simulation.run --seeds 0-10000``.

A failing sequence is shortened and printed as a list that ``tests/simulation/test_kept.py`` can keep.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.simulation.scene import Step
from tests.simulation.seeds import main
from tests.simulation.sequences import sequence_of
from tests.simulation.world import run

_KINDS: Final = (
    *("stands still", "below zero", "first offset is pending", "changed its protocol", "rebalancing"),
    *("pending elsewhere", "offsets topic is hidden", "regular expression", "partition that was added"),
    *("where one is remembered", "event time of other settings", "the report claims", "the report says"),
    *("gone since", "had yet to read", "no group says"),
    *("G1:", "G3:", "G7:", "G9:", "R1:", "R2:", "R3:", "R4:"),
)


def kind_of(violation: str) -> str:
    """Return what sort of violation it is, without names and numbers."""
    return next((kind for kind in _KINDS if kind in violation), "other")


def counted(rules: str, sequence: Sequence[Step]) -> Counter[str]:
    """Carry a sequence out; return what came of it, and what it could not rule out."""
    world = run(rules, sequence)
    return world.outcomes + Counter({f"residue: {name}": count for name, count in world.truth.residues.items()})


if __name__ == "__main__":
    sys.exit(main(__doc__, sequence_of, counted, kind_of))
