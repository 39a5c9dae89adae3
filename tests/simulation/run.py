"""Random sequences by seed, for hours: ``python -m tests.simulation.run --seeds 0-10000``.

A failing sequence is shortened and printed as a list that ``tests/simulation/test_kept.py`` can keep.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.simulation.scene import ViolationError
from tests.simulation.sequences import sequence_of
from tests.simulation.settle import settle
from tests.simulation.shrink import kind_of, shortened, violation_of
from tests.simulation.world import World


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; return 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-1000")
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--keep-going", action="store_true")
    parser.add_argument("--rules", nargs="+", default=(), help="only these, in turn")
    parser.add_argument("--brief", action="store_true", help="don't shorten what fails")
    parser.add_argument("--steps", type=int, default=None, help="stop after so many")
    given = parser.parse_args(arguments)
    first, _, last = given.seeds.partition("-")
    began, done, total, failed = time.monotonic(), 0, 0, 0
    outcomes: Counter[str] = Counter()
    residues: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for seed in range(int(first), int(last or first) + 1):
        if given.steps is not None and total >= given.steps:
            break
        rules, sequence = sequence_of(seed, given.length)
        if given.rules:
            rules = f"{given.rules[seed % len(given.rules)]} @{rules.partition(' @')[2]}"
        world = World(rules)
        try:
            with world:
                for step in sequence:
                    world.apply(step)
                    total += 1
                settle(world)
        except ViolationError as error:
            failed += 1
            kinds[kind_of(str(error))] += 1
            if not given.keep_going or kinds[kind_of(str(error))] <= 1:
                print(f"seed {seed}, after {done:,} sequences, {total:,} steps: {error}", flush=True)
            if given.brief:
                break
            if not given.keep_going:
                short = shortened(rules, sequence)
                print(f'    run("{rules}", {short})')
                print(f"    {violation_of(rules, short)}")
                break
        done += 1
        outcomes.update(world.outcomes)
        residues.update(world.truth.residues)
    seconds = time.monotonic() - began
    print(f"{done:,} sequences, {total:,} steps in {seconds:,.0f} s: {total / max(seconds, 0.001):,.0f} steps/s")
    print("outcomes:", dict(sorted(outcomes.items())))
    print("residues:", dict(residues.most_common()))
    if kinds:
        print("kinds:", dict(kinds.most_common(30)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
