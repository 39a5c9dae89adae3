"""Sequences by seed: what happens often, and what happens together."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.simulation.scene import MEMORIES, RULES, Step
from tests.simulation.world import steps

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
    ("append_time", "produce", "plan", "append_time", "plan", "produce", "append_time", "plan", "produce", "trim"),
    ("copy_state", "trim", "produce", "restore_state"),
    ("plan", "seek", "saved"),
    ("plan", "delete_group", "time", "produce"),
)
"""What happens together: in such an order faults meet more often than single steps drawn one by one would."""


def sequence_of(seed: int, length: int = 40) -> tuple[str, list[Step]]:
    """Return the rules and the sequence of a seed. Some kinds of step are left out, so that rare ones meet (swarm)."""
    chance = random.Random(seed)
    rules = f"{chance.choice(list(RULES))} @{chance.choice(('each', *MEMORIES))}"
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
                    numbers[place] = {"partition": number, "group": group, "topic": number % 3 // 2}.get(
                        about, numbers[place]
                    )
            some.append((name, *numbers))
    return rules, some


_ABOUT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("fall_behind", "produce", "elect", "undo_start", "retention", "lose_tail", "transaction", "compact"),
        ("partition",),
    ),
    **dict.fromkeys(("read", "late", "delete_offsets", "seek"), ("group", "partition")),
    "delete_group": ("group",),
    "append_time": ("topic",),
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
