"""Run random sequences by seed until one fails, and make that one short: for every simulation."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence

from tests.simulation.scene import Step, ViolationError

Run = Callable[[str, Sequence[Step]], Counter[str]]
"""Carries a sequence out under some rules, and returns what happened how often; raises :class:`ViolationError`."""
_SMALL = 12
"""A number of a step is made smaller only where it is below this, or may be."""


def violation_of(run: Run, rules: str, sequence: Sequence[Step]) -> str | None:
    try:
        run(rules, sequence)
    except ViolationError as error:
        return str(error)
    return None


def fewest(sequence: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Return the steps of a failing sequence that it needs: they are left out, more at first, then one by one."""
    best = list(sequence)
    size = len(best) // 2
    while size:
        start = 0
        while start < len(best):
            shorter = best[:start] + best[start + size :]
            if fails(shorter):
                best = shorter
            else:
                start += size
        size //= 2
    return best


def shortened(run: Run, rules: str, sequence: Sequence[Step], kind_of: Callable[[str], str]) -> list[Step]:
    """Return a shorter sequence that fails alike, with numbers as small as they may be."""
    kind = kind_of(violation_of(run, rules, sequence) or "")

    def fails(tried: Sequence[Step]) -> bool:
        found = violation_of(run, rules, tried)
        return found is not None and kind_of(found) == kind

    best = fewest(sequence, fails)
    for place, step in enumerate(best):
        for number in range(1, len(step)):
            for smaller in range(min(step[number], _SMALL)):
                tried = [*best[:place], (*step[:number], smaller, *step[number + 1 :]), *best[place + 1 :]]
                if fails(tried):
                    best, step = tried, tried[place]  # noqa: PLW2901
                    break
    return best


def main(
    description: str | None,
    sequence_of: Callable[[int], tuple[str, Sequence[Step]]],
    run: Run,
    kind_of: Callable[[str], str] = lambda violation: violation[:12],
) -> int:
    """Run seeds; return 1 if one failed.

    Args:
        description: what ``--help`` says.
        sequence_of: gives the rules and the sequence of a seed.
        run: see there.
        kind_of: says of what sort a violation is.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", default="0-1000")
    parser.add_argument("--steps", type=int, default=None, help="stop after so many")
    parser.add_argument("--rules", nargs="+", default=(), help="only these, in turn, where a simulation has several")
    parser.add_argument("--brief", action="store_true", help="don't shorten what fails")
    parser.add_argument("--keep-going", action="store_true", help="run the other seeds after one that fails")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    began, steps = time.monotonic(), 0
    counts, kinds = Counter[str](), Counter[str]()
    for seed in range(int(first), int(last or first) + 1):
        if given.steps is not None and steps >= given.steps:
            break
        rules, sequence = sequence_of(seed)
        if given.rules:
            rules = f"{given.rules[seed % len(given.rules)]} @{rules.partition(' @')[2]}"
        try:
            counts.update(run(rules, sequence))
        except ViolationError as error:
            kind = kind_of(str(error))
            kinds[kind] += 1
            if kinds[kind] == 1:
                print(f"seed {seed}, after {steps:,} steps: {error}", flush=True)
            if not given.keep_going:
                if not given.brief:
                    short = shortened(run, rules, sequence, kind_of)
                    print(f"    run({rules!r}, {short})\n    {violation_of(run, rules, short)}")
                break
        steps += len(sequence)
    seconds = time.monotonic() - began
    print(f"{steps:,} steps in {seconds:,.0f} s: {steps / max(seconds, 0.001):,.0f} steps/s")
    print(f"outcomes: {dict(sorted(counts.items()))}\nkinds: {dict(kinds.most_common(30))}")
    return int(bool(kinds))
