"""Random sequences by seed, for hours: ``python -m tests.simulation.run --seeds 0-10000``.

A failing sequence is shortened and printed as a list that ``tests/simulation/test_kept.py`` can keep.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.simulation.scene import MEMORIES, RULES, Step
from tests.simulation.seeds import main
from tests.simulation.world import run, steps

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
_DESCRIBE: Final = 12
_WRITE: Final = 13
_OLD: Final = ("produce", None, 5, 4, 4)
_READ: Final = ("read", 0, None, 7)
_READ_OTHER: Final = ("read", 0, 2, 7)
_OTHERS: Final = ("trim", 1, 0)
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
    (_OLD, _READ, ("reset", 1), "time", "trim"),
    (_OLD, _READ, ("pend", 2), "time", "trim", "end_pending", "trim"),
    (
        *(_OLD, _READ, "time", ("member", 1), ("trim", None, 1), ("until", None, _DESCRIBE), ("upgrade", 1)),
        *(("until", None, _DESCRIBE), ("upgrade", 1), "finish"),
    ),
    (
        *(("produce", 2, 5, 4, 4), ("read", 1, 0), ("read", 1, 2, 0), _READ_OTHER, ("plan", 1, 0)),
        *(("delete_offsets", 1, 2), ("pend", 1, 0), _OTHERS),
    ),
    (
        *(("produce", 2, 5, 4, 4), ("read", 2, 0), ("member", 2, 1), ("rebalance", 2), ("pend", 2, 0)),
        *(_READ_OTHER, "time", _OTHERS),
    ),
    (_OLD, ("read", 1, None, 7), _READ, "time", "plan", ("delete_group", 1), ("member", 1), "trim"),
    (
        *(("read", 1, 0), ("plan", 0, 0), ("add_partition", 0), ("produce", 9, 5, 4, 4), ("read", 0, 9, 7)),
        *("time", ("trim", 0, 0)),
    ),
    (_OLD, _READ, ("regex", 1), "time", "trim"),
    (_OLD, ("read", 2, None, 7), ("member", 1), "hide", ("coordinator", 0, 1), ("coordinator", 1, 1), "time", "trim"),
    (
        *(("source", 1), ("append_time", 0), ("produce", 0, 0), ("plan", 0, 0), ("retention", 0, 5)),
        *(("append_time", 0), ("source", 0), ("produce", 0, 5, 3, 3), ("read", 0, 0, 11), ("trim", 0, 0)),
    ),
    (("source", 2), ("produce", 0, 5, 3, 0), ("read", 0, 0, 11), ("plan", 0, 0), ("source", 0), ("trim", 0, 0)),
    (_OLD, ("read", 0, None, 7, 10), "elect", "elect", "produce", ("read", 0, None, 7, 10), "time", "trim"),
    (_OLD, _READ, "time", ("trim", None, 1), ("until", None, _WRITE), "time", "finish"),
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
    **dict.fromkeys(("read", "late", "delete_offsets", "seek", "reset", "pend"), ("group", "partition")),
    **dict.fromkeys(("delete_group", "regex", "upgrade", "rebalance", "end_pending"), ("group",)),
    **dict.fromkeys(("member", "static"), ("group", "topic")),
    **dict.fromkeys(("append_time", "add_partition"), ("topic",)),
}


def _healthy(chance: random.Random) -> list[Step]:
    """Return how most clusters begin: records of some age, and a group that has read some of them."""
    if chance.random() < 0.1:
        return []
    found: list[Step] = []
    for number in (0, 1) if chance.random() < 0.8 else (0, 1, 2):
        age = chance.choice((1, 2, 3, 4, 4))
        found += [
            ("produce", number, chance.randrange(6), age, chance.choice((age, 4, 3, 1))),
            ("read", 0, number, chance.randrange(8), chance.randrange(2)),
        ]
    return found


if __name__ == "__main__":
    sys.exit(main(__doc__, sequence_of, counted, kind_of))
