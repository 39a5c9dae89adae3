"""Random sequences by seed: ``python -m tests.simulation.protect.run --seeds 0-1000``. A failing one is made short."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.simulation.protect.world import Step, run, sequence_of
from tests.simulation.scene import ViolationError
from tests.simulation.shrink import fewest


def violation_of(sequence: Sequence[Step]) -> str | None:
    try:
        run(sequence)
    except ViolationError as error:
        return str(error)
    return None


def shortened(sequence: Sequence[Step]) -> list[Step]:
    """Return a shorter sequence that fails, too."""
    kind = (violation_of(sequence) or "")[:12]
    return fewest(sequence, lambda tried: (violation_of(tried) or "no")[:12] == kind)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; return 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-200")
    parser.add_argument("--steps", type=int, default=None, help="stop after so many")
    parser.add_argument("--brief", action="store_true", help="don't shorten what fails")
    given = parser.parse_args(arguments)
    first, _, last = given.seeds.partition("-")
    began, steps, counts = time.monotonic(), 0, Counter[str]()
    failed = False
    for seed in range(int(first), int(last or first) + 1):
        if given.steps is not None and steps >= given.steps:
            break
        sequence = sequence_of(seed)
        try:
            counts.update(run(sequence).counts)
        except ViolationError as error:
            failed = True
            print(f"seed {seed}, after {steps:,} steps: {error}")
            if not given.brief:
                short = shortened(sequence)
                print(f"    {short}\n    {violation_of(short)}")
            break
        steps += len(sequence)
    seconds = time.monotonic() - began
    print(f"{steps:,} steps in {seconds:,.0f} s: {steps / max(seconds, 0.001):,.0f} steps/s; {dict(counts)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
