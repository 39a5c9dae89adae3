"""Which faults come in which round, from a seed. Pure: a round that fails is played again by its seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

Card = TypeVar("Card")
Fault = Literal["kill", "restart", "pause", "cut", "move", "grow", "recreate", "full", "rewind"]
HARMS: Final[tuple[Fault, ...]] = ("kill", "restart", "pause", "cut", "full")
BESIDE: Final[tuple[Fault, ...]] = ("move", "grow", "recreate", "rewind")
"""What may come together with a harm: it takes no broker away, so that a majority remains."""
FAULTS: Final = (*HARMS, *BESIDE)
Mode = Literal[
    "trim", "plan, then trim", "trim, killed at a step", "trim, killed at a moment", "watch", "watch, killed"
]
MODES: Final[tuple[Mode, ...]] = (
    *("trim", "trim, killed at a step", "plan, then trim", "watch", "trim, killed at a moment", "watch, killed"),
)
STEPS: Final = (
    *("before-plan", "before-recheck", "after-recheck", "before-line", "torn-line", "after-line", "before-head"),
    *("before-delete", "after-delete", "after-read-back", "before-ledger", "after-ledger"),
)
"""Where ``runs.py`` can kill kretain: lines and head are the audit log's."""


@dataclass(frozen=True)
class Round:
    """What happens in one round.

    Args:
        number: from 1.
        faults: what happens, in this order.
        broker: the broker that it happens to, from 1.
        lost: what a cut link held back is lost; else it arrives when the link is back.
        delay_s: how long after kretain's start.
        lasting_s: how long a fault lasts at the least.
        mode: how kretain runs.
        step: where it is killed (``trim, killed at a step``), at the ``nth`` time that it comes there.
        nth: see there.
        moment_s: when it is killed (``killed at a moment``, ``watch, killed``), after its start.
        seed: for all that is drawn meanwhile.
    """

    number: int
    faults: tuple[Fault, ...]
    broker: int
    lost: bool
    delay_s: float
    lasting_s: float
    mode: Mode
    step: str
    nth: int
    moment_s: float
    seed: str


def rounds(seed: int, count: int) -> Iterator[Round]:
    """Deal rounds. Each harm, mode and step comes once before any comes again; the first rounds have two faults each."""
    harms, besides = _deck(HARMS, f"{seed}/harms"), _deck(BESIDE, f"{seed}/besides")
    modes, steps = _deck(MODES, f"{seed}/modes"), _deck(STEPS, f"{seed}/steps")
    for number in range(1, count + 1):
        rng = random.Random(f"{seed}/{number}")
        faults = (next(harms), next(besides))
        mode = next(modes)
        step = next(steps) if mode == "trim, killed at a step" else "before-plan"
        yield Round(
            number,
            faults if number <= len(HARMS) or rng.random() < 0.4 else (rng.choice(faults),),
            rng.randint(1, 3),
            rng.random() < 0.5,
            rng.choice((0.0, rng.uniform(0, 1.5))),
            rng.uniform(1.0, 4.5),
            mode,
            step,
            # Lines and heads are written at least four times by a trim that sends something: run, batch, result, end.
            rng.randint(1, 4) if step in ("before-line", "torn-line", "after-line", "before-head") else 1,
            rng.uniform(0.3, 2.5),
            f"{seed}/{number}/meanwhile",
        )


def _deck(cards: tuple[Card, ...], seed: str) -> Iterator[Card]:
    rng = random.Random(seed)
    while True:
        yield from rng.sample(cards, len(cards))
