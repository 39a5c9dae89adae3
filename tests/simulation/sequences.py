"""Sequences by seed: what happens often, and what happens together."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from tests.simulation.scene import BY_SEED, MEMORIES, Step
from tests.simulation.world import steps

OFTEN = {
    "produce": 14,
    "read": 10,
    "trim": 12,
    "plan": 6,
    "time": 6,
    "step": 4,
    "until": 3,
    "finish": 2,
    "elect": 3,
    "fall_behind": 2,
    "late": 2,
    "delete_offsets": 2,
}


Told = str | tuple[str | int | None, ...]
"""A step of a story: its name, and those of its numbers that matter; None where any will do."""

_EPOCH_ENDS: Final = 6
_LIST: Final = 2
_DELETE: Final = 10
STORIES: tuple[tuple[Told, ...], ...] = (
    ("fall_behind", "produce", "read", "plan", "elect", "produce", "time"),
    ("fall_behind", "produce", "read", "trim", "elect", "produce", "read"),
    ("fall_behind", "produce", "read", "elect", "produce", ("fail", _EPOCH_ENDS), "time", "trim"),
    ("fall_behind", "produce", "read", "plan", "delete_group", "elect", "produce", "time", "trim"),
    ("fall_behind", "produce", "plan", "elect", "produce", ("fail", _EPOCH_ENDS), "trim"),
    ("recreate", "late", "plan", "delete_offsets", "produce", "produce", "time"),
    ("late", "plan", "delete_group", "produce", "produce", "time"),
    ("trim", "undo_start", "trim"),
    ("lose_delete", "trim", "retention", "finish"),
    ("append_time", "time", "produce", "time"),
    ("append_time", "produce", "plan", "append_time", "plan", "produce", "append_time", "plan", "produce", "trim"),
    ("copy_state", "trim", "produce", "restore_state"),
    ("plan", "seek", "saved"),
    ("plan", "delete_group", "time", "produce"),
    (("trim", None, 1), "until", "seek", "until", "elect", "finish"),
    (("trim", None, 1), ("until", None, _DELETE), "seek", "retention", "finish"),
    (("trim", None, 1), ("until", None, _LIST), "coordinator", ("until", None, _LIST), "coordinator", "finish"),
    (("trim", None, 1), "until", "recreate", "produce", "finish"),
    (
        *("produce", ("read", 1, None, 0), ("read", 0), "time", ("trim", None, 1)),
        *(("until", None, _LIST), ("coordinator", 0, 1), ("until", None, _LIST), ("coordinator", 0, 0), "finish"),
    ),
    (
        "produce",
        ("read", 1, None, 0),
        ("read", 0),
        "time",
        ("trim", None, 1),
        ("until", None, _LIST),
        "rights",
        "finish",
    ),
    ("lose_delete", ("trim", None, 1), ("until", None, _DELETE), ("step", None, 0), "retention", "finish"),
    ("policy", "produce", "plan", "policy", "saved"),
    ("produce", "fall_behind", "produce", "elect", "produce", ("deposed", 2), "trim"),
    ("produce", "static", "read", "plan", "static", "produce", "time", "static", "trim"),
    ("produce", "static", "static", ("trim", None, 1), "until", "static", "time", "finish"),
)
"""What happens together: in such an order faults meet more often than single steps drawn one by one would."""


def sequence_of(seed: int, length: int = 40) -> tuple[str, list[Step]]:
    """Return the rules and the sequence of a seed. Some kinds of step are left out, so that rare ones meet (swarm)."""
    chance = random.Random(seed)
    rules = f"{chance.choice(BY_SEED)} @{chance.choice(('each', *MEMORIES))}"
    known = steps()
    names = [name for name in known if name in ("produce", "read", "trim", "time") or chance.random() < 0.45]
    weights = [OFTEN.get(name, 1) for name in names]
    stories = chance.sample(STORIES, chance.randrange(4))
    some: list[Step] = _healthy(chance)
    while len(some) < length:
        story: Sequence[Told] = chance.choices(names, weights)
        number, group, operator = chance.randrange(12), chance.randrange(12), chance.randrange(12)
        if stories and chance.random() < 0.15:
            story = [told for told in chance.choice(stories) if chance.random() < 0.9]
        for told in story:
            name, *fixed = (told,) if isinstance(told, str) else told
            assert isinstance(name, str)
            numbers = [chance.randrange(0, 12) for _ in range(known[name])]
            if name in ("plan", "trim", "saved"):
                numbers[1] = 0 if chance.random() < 0.7 else chance.randrange(1, 60)
            if len(story) > 1 and chance.random() < 0.8:  # a story is about one partition, and mostly about one group
                for place, about in enumerate(_ABOUT.get(name, ())):
                    numbers[place] = {
                        "partition": number,
                        "group": group,
                        "topic": number % 3 // 2,
                        "operator": operator,
                    }[about]
            for place, value in enumerate(fixed):
                if isinstance(value, int):
                    numbers[place] = value
            some.append((name, *numbers))
    return rules, some


_ABOUT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("fall_behind", "produce", "elect", "undo_start", "retention", "lose_tail", "transaction", "compact"),
        ("partition",),
    ),
    **dict.fromkeys(("trim", "plan", "until", "step", "finish", "saved"), ("operator",)),
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
