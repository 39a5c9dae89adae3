"""Mutants of protection: after how many sequences the simulation finds each (run it as a module)."""

from __future__ import annotations

import sys
from typing import Final

from tests.support.mutate import Mutant, try_by_simulation

_DECISION: Final = "protect/decision.py"
_MEMORY: Final = "protect/memory.py"
_RUN: Final = "protect/run.py"

MUTANTS: Final = (
    Mutant("P2: only a pass ahead", _DECISION, "3 * terms.every_ms + facts.check_ms", "terms.every_ms"),
    Mutant(
        "P3: an unknown position has read all",
        "protect/reading.py",
        "return Unread(group, span.start, span, commit)",
        "return Unread(group, span.end, span, commit)",
    ),
    Mutant("P3: a partition that can't be read has none unread", "protect/reading.py", " | unreadable", ""),
    Mutant("P3: leader epochs do not count", "protect/reading.py", "or at > end.offset:", "and False:"),
    Mutant(
        "P3: what a plan has refused counts",
        "protect/reading.py",
        "if _is_other_logs(remembered[group]",
        "if False and _is_other_logs(remembered[group]",
    ),
    Mutant(
        "P3: a log that was cut is the same", "protect/reading.py", "elif epoch is None and cut", "elif False and cut"
    ),
    Mutant("P3: what machines disagree on counts", "protect/reading.py", ".joined(memory.doubted)", ""),
    Mutant("P3: a lost ledger lowers", "protect/reading.py", "if ledger.lost is not None:", "if False:"),
    Mutant(
        "P3: an unknown default lowers",
        _DECISION,
        "replace(terms, lowers=False), replace(facts",
        "terms, replace(facts",
    ),
    Mutant(
        "P4: the default does not count",
        _DECISION,
        "live.default if record is not None and record.original is None else",
        "",
    ),
    Mutant("P4: a default without a limit does not count", _DECISION, "if original is None:", "if False:"),
    Mutant("P4: a default that has changed counts", _RUN, "if new is None and now.default != default:", "if False:"),
    Mutant(
        "P4: another broker's default does not count", _DECISION, "(above := facts.live", "not (above := facts.live"
    ),
    Mutant("P4: max does not bound", _DECISION, "yield most_ms, f", "yield math.inf, f"),
    Mutant(
        "P4: a full disk does not bound",
        _DECISION,
        'yield at(room), f"{disk}',
        'yield math.inf, f"{disk}',
    ),
    Mutant(
        "P4: restores below the original",
        _DECISION,
        "int(min(max(original, min(wanted, most)), 2**63 - 1))",
        "int(min(max(original // 2, min(wanted, most)), 2**63 - 1))",
    ),
    Mutant("P4: what will be freed is room", _DECISION, "left if each > 0 else max(left, 0)", "2**63"),
    Mutant("P5: no record before the change", _RUN, 'self.note(known, "changing", new, old)', "pass"),
    Mutant("P5: what it replaced is forgotten", _DECISION, "(record.before, record.value)", "(record.value,)"),
    Mutant("P5: a record counts that knew less", _MEMORY, "return self.record.after == other.place and", "return"),
    Mutant(
        "P5: it goes on from what was read since",
        _MEMORY,
        "after=self._known.get(key), again=None",
        "after=self._counts[key].place if key in self._counts else None, again=None",
    ),
    Mutant("P5: a change under way may be overtaken", _MEMORY, "and (free or late)", "and True"),
    Mutant("P5: a request is sent at any time", _RUN, "since_boot() + SENT_S", "since_boot() + 10**6"),
    Mutant("P5: what counts is not put back", _MEMORY, "for key in self.overtaken:", "for key in ():"),
    Mutant("P5: what is put back is another record", _MEMORY, "again=one.place", "again=None"),
    Mutant("P5: resume forgets an original", _RUN, "elif ours:", "elif False:"),
    Mutant("P5: a change left open stays open", _RUN, "known = self.settled(one.record)", "known = one.record"),
    Mutant("P5: another topic's id counts", _DECISION, "one.topic_id == ids.get(one.topic)", "one.topic in ids"),
    Mutant(
        "P5: the default is restored as a value",
        _RUN,
        'known.original if one.action == "restore"',
        'str(known.limit) if one.action == "restore"',
    ),
    Mutant(
        "P6: one broker says what is live",
        _RUN,
        "self.own_values(known)) != {value}",
        "self.own_values(known)) < {value}",
    ),
    Mutant("P6: a value set by hand is overwritten", _DECISION, "or live.own not in expected(known)", "or False"),
    Mutant("P6: one broker says that it is not", _RUN, "set() if self.silent else", "set() if True else"),
    Mutant(
        "P6: it is not looked at again before the change",
        _RUN,
        "if others := others | {now.own} - {old}:",
        "if others:",
    ),
)
"""What stands in the tree, and by what it is replaced."""
ELSEWHERE: Final = {
    "P3: leader epochs do not count": "test_races lets a log be as long again as before an unclean election",
    "P3: what a plan has refused counts": "test_races lets a plan refuse a commit",
    "P3: a log that was cut is the same": "test_races cuts a log after a plan",
    "P3: what machines disagree on counts": "test_races lets another machine refuse a commit",
    "P3: a lost ledger lowers": "test_races loses the ledger",
    "P3: an unknown default lowers": "tests/unit/protect",
    "P4: a default without a limit does not count": "test_races takes the limit from a default",
    "P4: a default that has changed counts": "test_races changes the default right before the request",
    "P4: what will be freed is room": "tests/unit/protect",
    "P5: it goes on from what was read since": "test_races changes a setting between a plan and its change",
    "P5: what is put back is another record": "test_races compacts the segment that it is in",
    "P5: resume forgets an original": "test_races resumes a topic that is raised",
    "P6: one broker says what is live": "test_races has a broker that is late",
    "P6: one broker says that it is not": "test_races has a broker that is late",
    "P5: a request is sent at any time": "test_races pauses a run right before its request",
    "P5: a change left open stays open": "test_races sets a value by hand after a refused change",
    "P5: another topic's id counts": "test_races makes a topic again that is raised",
}


if __name__ == "__main__":
    sys.exit(try_by_simulation(__doc__, "tests.simulation.protect.run", MUTANTS, ELSEWHERE, steps=40_000, first=0))
