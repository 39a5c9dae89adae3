"""Mutants of guards, floors, memory, recheck and report: how many sequences until the simulation finds each.

``python -m tests.simulation.mutants``: each is applied to a copy of the tree, which is run up to ``--steps``.
"""

from __future__ import annotations

import sys
from typing import Final

from tests.support.mutate import Mutant, try_by_simulation

_STANDING: Final = "observe/floors/standing.py"
_GROUPS: Final = "observe/floors/kafka_groups.py"
_VERDICT: Final = "trim/state.py"

MUTANTS: Final = (
    Mutant(
        "G1 without L",
        "decide/guards/log_end.py",
        "min(bound, high, stable)",
        "min(bound, high)",
    ),
    Mutant(
        "G2 never holds",
        "decide/guards/unconsumed.py",
        'return guarded and settings.unconsumed == "hold"',
        "return False",
    ),
    Mutant(
        "G2: an unknown floor lets go",
        "decide/guards/unconsumed.py",
        "return Unknown((_NO_GROUP,)) if facts.floor.reasons == (NO_GROUP,) else facts.floor",
        "return bound",
    ),
    Mutant(
        "G2 without R2",
        "decide/guards/unconsumed.py",
        "frozenset({Code.R2, Code.R3, Code.R5, Code.R6, Code.R7})",
        "frozenset({Code.R3, Code.R5, Code.R6, Code.R7})",
    ),
    Mutant(
        "G3: a switched topic's stamps count",
        "decide/guards/wall_clock.py",
        "facts.log_start < facts.stamped_below:",
        "False:",
    ),
    Mutant(
        "G3: the newest sample counts", "decide/guards/wall_clock.py", "if samples[n].wall_ms <= time_ms", "if True"
    ),
    Mutant("G3: CreateTime is append time", "decide/guards/wall_clock.py", 'if kind != "LogAppendTime":', "if False:"),
    Mutant(
        "G3: who stamped the front is not looked at",
        "observe/times.py",
        "found[tp] = 0 if fronts[tp] else facts[tp].high_watermark",
        "found[tp] = 0",
    ),
    Mutant("G3: the switch is forgotten", "observe/times.py", "elif known.created_below > start:", "elif False:"),
    Mutant(
        "G7 never holds",
        "decide/guards/frozen.py",
        "return None if settings.hold is None else",
        "return None if True else",
    ),
    Mutant(
        "G8 never holds",
        "decide/guards/our_clock.py",
        "return bound if facts.clock is None else facts.clock",
        "return bound",
    ),
    Mutant("G9 never holds", "decide/guards/old_stamps.py", "if answer.offset > facts.log_start:", "if False:"),
    Mutant(
        "R4 an hour early",
        "decide/triggers/forced_age.py",
        "now_ms - settings.forced_age_ms",
        "now_ms + 3_600_000 - settings.forced_age_ms",
    ),
    Mutant(
        "R1 without the floor",
        "decide/triggers/consumed.py",
        "bound = floor if floor.offset < old.offset else old",
        "bound = old",
    ),
    Mutant(
        "R1 without the age",
        "decide/triggers/consumed.py",
        "bound = floor if floor.offset < old.offset else old",
        "bound = floor",
    ),
    Mutant(
        "F10 never holds",
        "decide/triggers/consumed.py",
        "    if settings.watch_first_ms is None:\n",
        "    if True:\n",
        rules="R1 watched",
    ),
    Mutant(
        "F10: a pause does not matter",
        "memory/ages.py",
        "now_ms <= self.last_ms + PAUSE_MS",
        "now_ms",
        rules="R1 watched",
    ),
    Mutant(
        "F10: groups are watched before they are listed",
        "memory/ledger_rows.py",
        "done_ms if since_ms is None else",
        "began_ms if since_ms is None else",
        rules="R1 watched",
    ),
    Mutant(
        "R2 an hour early",
        "observe/event_times.py",
        "newest.time_ms - keep_ms",
        "newest.time_ms - keep_ms + 3_600_000",
    ),
    Mutant(
        "R2: a record whose schema is missing has no event time",
        "observe/event_times.py",
        "        raise error.of_record(message.offset()) from None\n",
        "        return None\n",
    ),
    Mutant(
        "R2: a marker's time counts",
        "observe/event_times.py",
        "            unsure[tp] = answer\n",
        "            found.newest[tp] = EventMax(answer.timestamp, answer.offset)\n",
    ),
    Mutant(
        "a look-up's -1 is the end",
        "observe/times.py",
        "if isinstance(newest, Found) and newest.timestamp is not None and newest.timestamp < time_ms:",
        "if True:",
    ),
    Mutant(
        "F2: a missing commit is none",
        "observe/floors/fold.py",
        "if there < self.counts[topic]:",
        "if False:",
    ),
    Mutant(
        "F2: members don't count",
        "observe/floors/fold.py",
        "for topic in {*live, *known, *unset} & self.topics.keys():",
        "for topic in {*known, *unset} & self.topics.keys():",
    ),
    Mutant(
        "F2: a live member starts back by now",
        "observe/floors/fold.py",
        "                if live:\n",
        "                if False:\n",
        rules="R1 start",
    ),
    Mutant(
        "F2: a start counts for nothing",
        _STANDING,
        "elif lowest is not None and irregular.start_at < lowest[0]:",
        "elif False:",
        rules="R1 start",
    ),
    Mutant(
        "F3 never holds",
        "observe/floors/fold.py",
        "            self.failed.add(reason)\n",
        "            pass\n",
    ),
    Mutant("F8 and F9 never hold", _GROUPS, "            fold.fail_all(doubt.reason)", "            pass"),
    Mutant(
        "F8: rights are not asked",
        _GROUPS,
        "        return None if everyone else",
        "        return None if True else",
    ),
    Mutant(
        "F8: a scope's rights are not asked",
        _GROUPS,
        'elif (rights := reader.group_rights([absent := f"{scope}{_NO_GROUP}"], brokers)[absent]) == {True}:',
        "elif True:",
        rules="R1 tenant",
    ),
    Mutant(
        "F9: a leaderless coordinator is let be",
        _GROUPS,
        "if not (offline := [one for one in numbers if one not in leaders or leaders[one][0] not in metadata.brokers]):",
        "if True:",
    ),
    Mutant(
        "F9: a coordinator that moved is let be",
        _GROUPS,
        "    if all((one.brokers, _offsets_leaders",
        "    if True or all((one.brokers, _offsets_leaders",
    ),
    Mutant("F5: beyond H counts", _STANDING, "if standing.high > high_watermark:", "if False:"),
    Mutant("F5: beyond its epoch counts", _STANDING, "elif offset > end:", "elif False:"),
    Mutant("F5: an epoch ahead counts", _GROUPS, "fold.at(*tp).ends[epoch] = None", "fold.at(*tp).ends[epoch] = 2**62"),
    Mutant(
        "F5: an unasked epoch counts",
        _STANDING,
        "            yield from end.reasons\n        elif end is None:\n            ahead",
        "            pass\n        elif end is None:\n            ahead",
    ),
    Mutant("F6: who is gone is forgotten", "memory/group.py", ".joined(left.with_seen(self.seen_ms))", ""),
    Mutant(
        "F6: beyond its epoch counts",
        _STANDING,
        "(min(one.offset, end), one.group), one",
        "(one.offset, one.group), one",
    ),
    Mutant(
        "F6: a refused commit comes back",
        "memory/group.py",
        "stood = self.counted.joined(self.open)",
        "stood = self.counted.joined(self.open).joined(self.refused.with_proven(0))",
    ),
    Mutant(
        "F5: a log in doubt refuses nothing",
        "observe/recall.py",
        "            return LogNow(high_watermark, epoch, in_doubt=True)",
        "            return LogNow(2**63 - 1, epoch, in_doubt=True)",
    ),
    Mutant(
        "F5: beyond the end of its epoch counts once it is gone",
        "memory/positions.py",
        "known &= ~self._beyond(at, own, offset)",
        "pass",
    ),
    Mutant("F5: what was refused counts later", "memory/positions.py", ".where(known & ~refused)", ".where(known)"),
    Mutant("M2: memories are never cut", "observe/lineage.py", "cut = end if end < reach else None", "cut = None"),
    Mutant(
        "M2: an epoch that is not known proves",
        "observe/lineage.py",
        "leader_epoch > leader_epoch or isinstance(answer, NotFound):",
        "leader_epoch > leader_epoch:",
    ),
    Mutant(
        "M4: unasked is proven",
        "observe/lineage.py",
        "    if isinstance(answer, RequestFailedError):\n        return _end_unknown(known",
        "    if False:\n        return _end_unknown(known",
    ),
    Mutant("M2: an earlier run's log is not asked about", "observe/lineage.py", "if not memory.earlier:", "if True:"),
    Mutant("M3: a start that moved back is let be", "memory/partition.py", "log_start < self.log_start\n", "False\n"),
    Mutant(
        "reads of another log are believed",
        "observe/lineage.py",
        "return other_log(reader, old, leaders) if old else {}",
        "return {}",
    ),
    Mutant(
        "recheck: the plan's target",
        "plan/reconcile.py",
        "offset = min(planned.trim_to, fresh.trim_to)",
        "offset = planned.trim_to",
    ),
    Mutant(
        "recheck: the larger target",
        "plan/reconcile.py",
        "offset = min(planned.trim_to, fresh.trim_to)",
        "offset = max(planned.trim_to, fresh.trim_to)",
    ),
    Mutant(
        "recheck: a topic recreated is the same",
        "plan/reconcile.py",
        "fresh.topic_id is None or fresh.topic_id != planned.topic_id",
        "False",
    ),
    Mutant(
        "recheck: is good for ever", "trim/batches.py", "RECHECK_SECONDS: Final = ", "RECHECK_SECONDS: Final = 1e9 + "
    ),
    Mutant(
        "recheck: holds are not read again",
        "trim/recheck.py",
        "        selection = self.selection()\n",
        "        selection = vars(reader).setdefault('first', self.selection())\n",
    ),
    Mutant(
        "unread records are none",
        "decide/decision.py",
        "return trim_to - (log_start if floor is None",
        "return 0 * (log_start if floor is None",
    ),
    Mutant(
        "report: what others moved is ours",
        _VERDICT,
        'return _row(tp, target, "unchanged", start, Reason("gone", _moved_elsewhere(start)))',
        'return _row(tp, target, "trimmed", start)',
    ),
    Mutant(
        "report: doubt is ours",
        _VERDICT,
        'return _row(tp, target, "unverified", start, Reason("verify", text))\n    if isinstance',
        'return _row(tp, target, "trimmed", start)\n    if isinstance',
    ),
    Mutant(
        "report: no answer is a failure",
        _VERDICT,
        '    return _row(tp, target, "unverified", start, Reason("verify", text))\n\n\n@',
        '    return _row(tp, target, "failed", start, Reason("verify", text))\n\n\n@',
    ),
    Mutant(
        "report: an error means that nothing went",
        _VERDICT,
        "    if refused(answer):",
        "    if isinstance(answer, RequestFailedError):",
    ),
    Mutant("report: a failure counts", _VERDICT, 'if outcome in ("trimmed", "unverified"):', "if True:"),
)


_TWICE: Final = (
    "a trim goes by its recheck, which lists again: the same must happen at the very same request of both; "
    "tests/kafka/trim/test_failures.py and tests/unit/observe/test_fold.py have it"
)
ELSEWHERE: Final = {
    "F8 and F9 never hold": _TWICE,
    "F9: a coordinator that moved is let be": _TWICE,
    "F5: beyond the end of its epoch counts once it is gone": "a recreated topic, an election and an expired commit "
    "have to meet: tests/simulation/test_kept.py has the sequence",
    "F5: a log in doubt refuses nothing": "a lost answer, an election and a foreign commit have to meet: "
    "tests/simulation/test_kept.py has the sequence",
    "report: no answer is a failure": "what was not answered is sent again after a recheck, until it is; "
    "tests/unit/trim has the table",
    "report: doubt is ours": "an answer is lost, the delete with it, and somebody else moves the log start beyond the "
    "target before it is read back; tests/unit/trim has the table",
    "G3: CreateTime is append time": "the stamps of a topic that is CreateTime are not looked up for it, so it is unknown "
    "all the same; tests/unit/decide has it",
    "M2: an epoch that is not known proves": "a leader knows all epochs up to its own, and one above is told before",
    "M2: an earlier run's log is not asked about": "two runs, two leaders and a cut have to meet; tests/unit/memory has it",
    "M3: a start that moved back is let be": "what stood at the front is remembered with its offset, and a scan with its "
    "own beginning",
    "report: what others moved is ours": "a delete that was refused is tried again after a recheck, which sees what others "
    "did; tests/kafka/trim/test_trim.py has it on brokers",
    "recheck: a topic recreated is the same": "the fresh decision, of the new log, is as safe by itself; that the plan "
    "spoke of another is the report's matter",
}
"""Why the simulation can't find some: another part holds. ``python -m tests.mutants`` says which test does."""

UNDER: Final = {
    "G3": "R4 G3",
    "R2: ": "R2",
    "F": "R1",
    "M2: an earlier": "R1 @cluster",
    "M3": "R2 header",
    "M": "R1",
    "reads": "R2 header",
    "recheck: the": "R3 live",
    "recheck": "R1",
    "unread": "R4",
    "report": "R4",
}
"""Rules under which mutants show soonest, by how their names begin."""


def options_for(mutant: Mutant) -> list[str]:
    rules = [mutant.rules or "", *(rules for name, rules in UNDER.items() if mutant.name.startswith(name))]
    return next((["--rules", one] for one in rules if one), [])


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
        Mutant("F5", _STANDING, "    reasons += _other_log(standing, high_watermark)", "    pass"),
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
            "    if not everyone and rules.scope is None:\n",
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
            "M1",
            "memory/group.py",
            "            self._refuse_recreated(recreated, cut, commits)\n",
            "            pass\n",
        ),
        Mutant("M1", "memory/group.py", "(known is not None and known != now)", "False"),
    ),
    "M2": (_BY_NAME["M2: memories are never cut"],),
    "M2 groups": (_BY_NAME["F6: beyond its epoch counts"],),
    "M4": (_BY_NAME["M4: unasked is proven"],),
}


if __name__ == "__main__":
    sys.exit(
        try_by_simulation(__doc__, "tests.simulation.run", MUTANTS, ELSEWHERE, options_for, steps=100_000, first=0)
    )
