"""Random sequences by seed: ``python -m tests.simulation.protect.run --seeds 0-1000``. A failing one is made short."""

from __future__ import annotations

import sys

from tests.simulation.protect.world import run, sequence_of
from tests.simulation.seeds import main

if __name__ == "__main__":
    sys.exit(main(__doc__, lambda seed: ("", sequence_of(seed)), lambda _rules, sequence: run(sequence).counts))
