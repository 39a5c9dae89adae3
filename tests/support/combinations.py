"""KIP-870's own test plan: every combination of its settings, on one log, and what must come of each.

The log: four records with event times 72 h and 48 h before a moment, 2 h before it and 10 h after it. All are
written at that moment; kretain looked then, when the first two were there, and 15 h later. It decides 30 h later.
Forced age is 24 h, event time 36 h, the wall clock guard 20 h; a group has read one record.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

HOUR: Final = 3_600_000
EVENT_HOURS: Final = (-72, -48, -2, 10)
LOOKED_AGAIN_MS, DECIDED_MS = 15 * HOUR, 30 * HOUR
AGE_MS, EVENT_MS, WALL_MS = 24 * HOUR, 36 * HOUR, 20 * HOUR
COMMITTED: Final = 1


@dataclass(frozen=True)
class Combination:
    """One choice of everything. ``watched``: the topic is older than the ledger's first sample of it."""

    age: bool
    event: bool
    wall: bool
    log_append: bool
    watched: bool
    unconsumed: str

    @property
    def name(self) -> str:
        words = ["age" * self.age, "event" * self.event, "wall" * self.wall]
        kind = "LogAppendTime" if self.log_append else "CreateTime"
        return "-".join([*filter(None, words), kind, "watched" if self.watched else "new", self.unconsumed])

    @property
    def expected(self) -> tuple[str, int | None]:
        """Action and trim_to, worked out by hand.

        Forced age reaches the first record that is younger than 24 h by the broker's stamp: the fourth (its event
        time is 20 h ago), or the end, where all are stamped 30 h ago. Event time reaches the third, but what the
        group has not read only by the operator's word. The wall clock guard lets the two go that were there when
        kretain first looked; where it never looked it knows nothing; and append times need no memory.
        """
        bounds = []
        if self.age:
            bounds.append(4 if self.log_append else 3)
        if self.event:
            bounds.append(2 if self.unconsumed == "trim" else COMMITTED)
        if not bounds:
            return "keep", None
        if self.wall and not self.log_append:
            if not self.watched:
                return "hold", None
            bounds = [min(bound, 2) for bound in bounds]
        return "trim", max(bounds)


ALL: Final = [
    Combination(age, event, wall, log_append, watched, unconsumed)
    for age, event, wall, log_append, watched in itertools.product((False, True), repeat=5)
    for unconsumed in ("hold", "trim")
]
