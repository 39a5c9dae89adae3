"""Random sequences by seed: ``python -m tests.simulation.disks.run --seeds 0-1000``. A failing one is made short."""

from __future__ import annotations

import sys

from tests.simulation.disks.sequences import run, sequence_of, told
from tests.simulation.seeds import main

if __name__ == "__main__":
    sys.exit(
        main(
            __doc__,
            lambda seed: ("", told(seed) if seed % 2 else sequence_of(seed)),
            lambda _rules, sequence: run(sequence).judge.counts,
        )
    )
