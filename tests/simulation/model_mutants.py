"""Faults in the engine that are the rules which docs/model does without: its traces must show each of them.

Where two places of the engine hold by themselves, both are changed.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import MUTANTS
from tests.support.mutate import Mutant

_GROUPS: Final = "observe/floors/kafka_groups.py"
_STANDING: Final = "observe/floors/standing.py"
_BY_NAME: Final = {one.name: one for one in MUTANTS}

WITHOUT: Final[dict[str, tuple[Mutant, ...]]] = {
    "F1": (
        Mutant(
            "F1",
            _GROUPS,
            '(group.kind != "share" or rules.share == "count")',
            'group.kind not in ("share", "consumer")',
        ),
    ),
    "F2": (_BY_NAME["F2: members don't count"],),
    "F2 added": (
        Mutant(
            "F2",
            "observe/floors/fold.py",
            "self.ages.covered(group, topic, count) if group in self.latest else 0",
            "count if group in self.latest else 0",
        ),
    ),
    "F3": (
        Mutant(
            "F3",
            _GROUPS,
            "for one in reader.read_pending(others, fold.counts, _left(reader, deadline)):",
            "for one in ():",
        ),
    ),
    "F4": (
        Mutant(
            "F4",
            _STANDING,
            "    if lowest is None and not reasons:\n",
            "    lowest = lowest or (high_watermark, '')\n    if lowest is None and not reasons:\n",
        ),
    ),
    "F5": (
        Mutant("F5", _STANDING, "        reasons += _other_log(standing, high_watermark)", "        pass"),
        Mutant("F5", "memory/positions.py", "refused = (offset > high[at]) |", "refused = (offset < 0) |"),
    ),
    "F6": (_BY_NAME["F6: who is gone is forgotten"],),
    "F7": (
        Mutant(
            "F7", _GROUPS, "        fold_outside(fold, metadata, self.recall, reader, self.listener, outside)\n", ""
        ),
    ),
    "F8": (
        Mutant(
            "F8",
            _GROUPS,
            "    if not (everyone := reader.may_describe_cluster()) and rules.scope is None:\n",
            "    everyone = False\n    if False:\n",
        ),
    ),
    "F9": (_BY_NAME["F9: a leaderless coordinator is let be"],),
    "F10": (_BY_NAME["F10 never holds"],),
    "G1": (_BY_NAME["G1 without L"],),
    "G2": (_BY_NAME["G2 never holds"],),
    "G3": (_BY_NAME["G3: the newest sample counts"],),
    "G4": (Mutant("G4", "decide/guards/future.py", "return trigger == Code.R2", "return False"),),
    "G7": (_BY_NAME["G7 never holds"],),
    "G8": (_BY_NAME["G8 never holds"],),
    "G9": (_BY_NAME["G9 never holds"],),
    "M1 groups": (
        Mutant(
            "M1", "memory/group.py", "            self._refuse_recreated(recreated, commits)\n", "            pass\n"
        ),
        Mutant("M1", "memory/group.py", "(known is not None and known != now)", "False"),
    ),
    "M2": (_BY_NAME["M2: memories are never cut"],),
    "M2 groups": (_BY_NAME["F6: beyond its epoch counts"],),
    "M4": (_BY_NAME["M4: unasked is proven"],),
}
