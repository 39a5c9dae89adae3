"""Run random sequences by seed until one fails, and make that one short: for the simulations of disks and protection."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.scene import ViolationError
from tests.simulation.shrink import fewest

Step = tuple[Any, ...]
Run = Callable[[Sequence[Any]], Counter[str]]
"""Carries out a sequence, and returns what happened how often; raises :class:`ViolationError`."""


def violation_of(run: Run, sequence: Sequence[Step]) -> str | None:
    try:
        run(sequence)
    except ViolationError as error:
        return str(error)
    return None


def shortened(run: Run, sequence: Sequence[Step]) -> list[Step]:
    """Return a shorter sequence that fails, too."""
    kind = (violation_of(run, sequence) or "")[:12]
    return fewest(sequence, lambda tried: (violation_of(run, tried) or "no")[:12] == kind)


def main(description: str | None, sequence_of: Callable[[int], Sequence[Step]], run: Run) -> int:
    """Run seeds; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", default="0-200")
    parser.add_argument("--steps", type=int, default=None, help="stop after so many")
    parser.add_argument("--brief", action="store_true", help="don't shorten what fails")
    parser.add_argument("--keep-going", action="store_true", help="run the other seeds after one that fails")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    began, steps, counts = time.monotonic(), 0, Counter[str]()
    failed = False
    for seed in range(int(first), int(last or first) + 1):
        if given.steps is not None and steps >= given.steps:
            break
        sequence = sequence_of(seed)
        try:
            counts.update(run(sequence))
        except ViolationError as error:
            failed = True
            print(f"seed {seed}, after {steps:,} steps: {error}")
            if not given.brief:
                short = shortened(run, sequence)
                print(f"    {short}\n    {violation_of(run, short)}", flush=True)
            if not given.keep_going:
                break
        steps += len(sequence)
    seconds = time.monotonic() - began
    print(f"{steps:,} steps in {seconds:,.0f} s: {steps / max(seconds, 0.001):,.0f} steps/s; {dict(counts)}")
    return int(failed)
