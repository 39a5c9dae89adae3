"""Random sequences by seed, for hours: ``python -m tests.simulation.run --seeds 0-10000``.

A failing sequence is shortened and printed as a list that ``tests/simulation/test_kept.py`` can keep.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.simulation.world import RULES, Step, ViolationError, World, run, steps

OFTEN = {
    "produce": 14,
    "read": 10,
    "trim": 12,
    "plan": 6,
    "time": 6,
    "step": 4,
    "finish": 2,
    "elect": 3,
    "fall_behind": 2,
    "late": 2,
    "delete_offsets": 2,
}


STORIES: tuple[tuple[str, ...], ...] = (
    ("fall_behind", "produce", "read", "plan", "elect", "produce", "time"),
    ("fall_behind", "produce", "read", "trim", "elect", "produce", "read"),
    ("recreate", "late", "plan", "delete_offsets", "produce", "produce", "time"),
    ("late", "plan", "delete_group", "produce", "produce", "time"),
    ("trim", "undo_start", "trim"),
    ("lose_delete", "trim", "retention", "finish"),
    ("append_time", "time", "produce", "time"),
    ("copy_state", "trim", "produce", "restore_state"),
    ("plan", "seek", "saved"),
    ("plan", "delete_group", "time", "produce"),
)
"""What happens together: in such an order faults meet more often than single steps drawn one by one would."""


def sequence_of(seed: int, length: int = 40) -> tuple[str, list[Step]]:
    """Return the rules and the sequence of a seed. Some kinds of step are left out, so that rare ones meet (swarm)."""
    chance = random.Random(seed)
    rules = chance.choice(list(RULES))
    known = steps()
    names = [name for name in known if name in ("produce", "read", "trim", "time") or chance.random() < 0.45]
    weights = [OFTEN.get(name, 1) for name in names]
    stories = chance.sample(STORIES, chance.randrange(4))
    some: list[Step] = _healthy(chance)
    while len(some) < length:
        story: Sequence[str] = chance.choices(names, weights)
        number, group = chance.randrange(12), chance.randrange(12)
        if stories and chance.random() < 0.15:
            story = [name for name in chance.choice(stories) if chance.random() < 0.9]
        for name in story:
            numbers = [chance.randrange(0, 12) for _ in range(known[name])]
            if name in ("plan", "trim", "saved"):
                numbers[1] = 0 if chance.random() < 0.7 else chance.randrange(1, 60)
            if len(story) > 1 and chance.random() < 0.8:  # a story is about one partition, and mostly about one group
                for place, about in enumerate(_ABOUT.get(name, ())):
                    numbers[place] = {"partition": number, "group": group}.get(about, numbers[place])
            some.append((name, *numbers))
    return rules, some


_ABOUT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("fall_behind", "produce", "elect", "undo_start", "retention", "lose_tail", "transaction", "compact"),
        ("partition",),
    ),
    **dict.fromkeys(("read", "late", "delete_offsets", "seek"), ("group", "partition")),
    "delete_group": ("group",),
}


def _healthy(chance: random.Random) -> list[Step]:
    """Return how most clusters begin: records of some age, and a group that has read some of them."""
    if chance.random() < 0.1:
        return []
    found: list[Step] = []
    for number in (0, 1) if chance.random() < 0.8 else (0, 1, 2):
        age = chance.choice((1, 2, 3, 4, 4))
        found.append(("produce", number, chance.randrange(6), age, chance.choice((age, 4, 3, 1))))
        found.append(("read", 0, number, chance.randrange(8), chance.randrange(2)))
    return found


def violation_of(rules: str, sequence: Sequence[Step]) -> str | None:
    """Return what a sequence violates, None where nothing."""
    try:
        run(rules, sequence)
    except ViolationError as error:
        return str(error)
    return None


def kind_of(violation: str) -> str:
    """Return what sort of violation it is, without names and numbers."""
    for kind in (
        "stands still",
        "the report claims",
        "the report says",
        "gone since",
        "had yet to read",
        "no group says",
    ):
        if kind in violation:
            return kind
    return next((rule for rule in ("G1", "G3", "G7", "G9", "R1", "R2", "R3", "R4") if f"{rule}:" in violation), "other")


def shortened(rules: str, sequence: Sequence[Step]) -> list[Step]:
    """Return a shorter sequence that fails alike: steps are left out, more at first, then one by one."""
    best = list(sequence)
    kind = kind_of(violation_of(rules, best) or "")

    def fails(tried: Sequence[Step]) -> bool:
        found = violation_of(rules, tried)
        return found is not None and kind_of(found) == kind

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
    for place, step in enumerate(best):
        for number in range(1, len(step)):
            for smaller in range(step[number]):
                tried = [*best[:place], (*step[:number], smaller, *step[number + 1 :]), *best[place + 1 :]]
                if fails(tried):
                    best, step = tried, tried[place]  # noqa: PLW2901
                    break
    return best


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; return 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-1000")
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--keep-going", action="store_true")
    parser.add_argument("--rules", default=None)
    given = parser.parse_args(arguments)
    first, _, last = given.seeds.partition("-")
    began, done, total, failed = time.monotonic(), 0, 0, 0
    pairs: Counter[tuple[str, str, str]] = Counter()
    outcomes: Counter[str] = Counter()
    residues: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for seed in range(int(first), int(last or first) + 1):
        rules, sequence = sequence_of(seed, given.length)
        if given.rules is not None:
            rules = given.rules
        world = World(rules)
        try:
            with world:
                for step in sequence:
                    world.faults.append(step[0])
                    world.apply(step)
                    total += 1
                world.settle()
        except ViolationError as error:
            failed += 1
            kinds[kind_of(str(error))] += 1
            if not given.keep_going or kinds[kind_of(str(error))] <= 1:
                print(f"seed {seed}, after {done:,} sequences, {total:,} steps: {error}", flush=True)
            if not given.keep_going:
                short = shortened(rules, sequence)
                print(f'    run("{rules}", {short})')
                print(f"    {violation_of(rules, short)}")
                break
        done += 1
        pairs.update(world.pairs)
        outcomes.update(world.outcomes)
        residues.update(world.truth.residues)
    seconds = time.monotonic() - began
    print(f"{done:,} sequences, {total:,} steps in {seconds:,.0f} s: {total / max(seconds, 0.001):,.0f} steps/s")
    print("outcomes:", dict(sorted(outcomes.items())))
    print("residues:", dict(residues.most_common()))
    faults = sorted({one[0] for one in pairs})
    seen = {(fault, rule) for fault, rule, _ in pairs}
    missing = [(fault, rule) for fault in faults for rule in RULES if (fault, rule) not in seen]
    print(f"pairs (fault x rules x memory) with a delete: {len(pairs):,}; never met: {missing[:20]}")
    if kinds:
        print("kinds:", dict(kinds.most_common(30)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
