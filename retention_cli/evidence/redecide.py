"""Decide recorded rows again, under another policy: by columns where R1 alone is on, else row by row. Pure.

Facts are those of the evidence. One that the recorded policy did not ask for, or asked for otherwise, is unknown, and
holds. If a look-up for the new cutoff is missing, its answer lies between those for an earlier and a later cutoff: if
both give the same decision, that is the decision; else it is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from retention_cli.core.model import (
    ANCIENT_MS,
    Decision,
    LookUp,
    Maybe,
    PartitionFacts,
    Reason,
    Unknown,
    Usage,
    known,
)
from retention_cli.decide.decision import decide, held_by_disks
from retention_cli.decide.lookups import Lookups
from retention_cli.evidence import columns
from retention_cli.evidence.columns import Mask
from retention_cli.evidence.format import from_json, rows_of
from retention_cli.evidence.value import NONE, Numbers, Row
from retention_cli.policy.model import Policy
from retention_cli.policy.settings import DiskRules, Settings

_CODE: Final = "evidence"
_NO_LOOKUP: Final = Unknown.because("evidence", "the run looked up other times than this policy asks for")
_GROUPS: Final = Unknown.because(
    "evidence", "the run required other groups (groups.require), and its floor counts those"
)
_EVENTS: Final = Unknown.because("evidence", "the run did not read event times, or read them otherwise")
_WRITTEN: Final = Unknown.because(
    "evidence", "the run did not ask when records were written (retention.min.wallclock.ms)"
)
_SIZES: Final = Unknown.because("evidence", "the run did not calculate with this size limit")
_USAGE: Final = Unknown.because("evidence", "how full disks were is not in the evidence (watermarks)")
_CEILING: Final = Unknown.because(
    "evidence", "a disk ceiling is decided over all disks, and these are not in the evidence"
)


def redecide(row: Row, settings: Settings, rules: DiskRules) -> Decision:
    """Return the decision for a recorded row under other settings, at the time of its recheck."""
    facts, now_ms = _as_known(row, settings, rules), row.now_ms
    wanted = Lookups(facts.topic, settings, now_ms).of(facts)
    end = known(facts.high_watermark) or 0
    low, high, lacking = facts, facts, facts
    for name, times in (("lookups", wanted.times), ("data_lookups", wanted.data)):
        answers: Mapping[int, Maybe[LookUp]] = getattr(facts, name)
        if missing := {at: _between(answers, at, end) for at in times if at not in answers}:
            low, high, lacking = (
                one._replace(**{name: {**answers, **more}})  # type: ignore[arg-type]  # (mypy: of any field)
                for one, more in (
                    (low, {at: ends[0] for at, ends in missing.items()}),
                    (high, {at: ends[1] for at, ends in missing.items()}),
                    (lacking, dict.fromkeys(missing, _NO_LOOKUP)),
                )
            )
    found = decide(low, settings, now_ms)
    if high is not low:
        other = decide(high, settings, now_ms)
        if found.action == "hold" or (found.action, found.trim_to) != (other.action, other.trim_to):
            found = decide(lacking, settings, now_ms)
    return found if rules.percent is None else held_by_disks(found, _CEILING)


def _between(answers: Mapping[int, Maybe[LookUp]], at_ms: int, end: int) -> tuple[LookUp, LookUp]:
    """Return what allows least and most of all that a look-up can have given: of a later time it gives no less."""
    found = [(time, one) for time, one in answers.items() if not isinstance(one, Unknown)]
    low = max((one.offset for time, one in found if time < at_ms), default=0)
    high = min(
        (one.offset for time, one in found if time > at_ms and one.note is None and time != ANCIENT_MS), default=end
    )
    ends = LookUp(low), LookUp(max(low, high))
    return ends[::-1] if at_ms == ANCIENT_MS else ends  # there the larger offset allows less (G9)


def _as_known(row: Row, settings: Settings, rules: DiskRules) -> PartitionFacts:
    """Return a row's facts without those that its policy's own settings have shaped, where the new ones differ."""
    facts, was = row.facts, row.settings
    gone: dict[str, Any] = {"usage": None}
    if {*settings.require_groups} != {*was.require_groups}:
        gone["floor"] = _GROUPS
    if settings.event_time_ms is not None:
        if was.event_time_ms is None or _events(settings) != _events(was):
            gone |= {"newest": _EVENTS, "event_prefix": _EVENTS}
        elif settings.event_time_ms != was.event_time_ms:
            gone["event_prefix"] = _EVENTS
    if settings.min_wallclock_ms != was.min_wallclock_ms:
        gone |= {"samples": _WRITTEN, "stamped_below": _WRITTEN}
    if (settings.max_bytes, settings.max_topic_bytes) != (was.max_bytes, was.max_topic_bytes):
        gone["tails"] = dict.fromkeys(("retention.bytes", "retention.topic.bytes"), _SIZES)
    if rules.watermarks:
        use = facts.usage
        percent = use.percent if isinstance(use, Usage) else -1.0
        reached = max((mark for mark in rules.watermarks if mark.percent <= percent), default=None)
        gone["usage"] = use if isinstance(use, Usage) and use.mark == reached else _USAGE
    return facts._replace(**gone)


def _events(settings: Settings) -> tuple[object, ...]:
    return settings.event_source, settings.ignore_future, settings.skip_unreadable, settings.max_ahead_ms


class Redecided(NamedTuple):
    """Decisions by row: where the new log start would be (−1: nothing to trim), what is held, and for lack of evidence.

    ``plain`` rows were decided by columns.
    """

    target: Numbers
    held: Mask
    lacking: Mask
    plain: int


class Deciding:
    """Decides tables of recorded rows under one policy.

    Args:
        policy: the other policy.
        told: called with the reasons of rows that are held, and how many rows that is.
    """

    def __init__(self, policy: Policy, told: Callable[[tuple[Reason, ...], int], None]) -> None:
        self._policy = policy
        self._told = told
        self._settings_for = cache(policy.settings_for)
        self._kind = cache(self._kind_of)

    def decide(self, table: Any) -> Redecided:
        """Return what the policy decides for each row of a recheck's table."""
        facts = columns.Facts.of(table, self._kind)
        good = facts.plain
        exact = facts.looked_up()
        found = low = high = columns.decide(facts, exact)
        if any((one < 0).any() for one in exact):
            low, high = (columns.decide(facts, one) for one in facts.between(exact))
        sure = (low.action == high.action) & (low.target == high.target) & (low.action != columns.HOLD)
        action = np.where(sure, low.action, found.action)
        target = np.where(good & (action == columns.TRIM), np.where(sure, low.target, found.target), NONE)
        held: Mask = good & (action == columns.HOLD)
        lacking = np.zeros_like(held)
        _, first, which, counts = np.unique(
            (facts.group << columns.WHY_BITS | found.why)[held],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        alike = rows_of(table.take(np.flatnonzero(held)[first]))  # all rows of a key have the same reasons
        lack = [self._lacks(self._again(row), count) for row, count in zip(alike, counts.tolist(), strict=True)]
        lacking[held] = np.array(lack, np.bool_)[which]
        if self._policy.disks.percent is not None:
            idle = good & (action == columns.KEEP) & (facts.start != facts.end)
            self._told(_CEILING.reasons, int(idle.sum()))
            held, lacking = held | idle, lacking | idle
        odd = np.flatnonzero(~good)
        for n, row in zip(odd.tolist(), rows_of(table.take(odd)), strict=True):
            again = self._again(row)
            if again is not None and again.action == "hold":
                held[n], lacking[n] = True, self._lacks(again, 1)
            elif again is not None and again.trim_to is not None:
                target[n] = again.trim_to
        return Redecided(target, held, lacking, int(good.sum()))

    def _again(self, row: Row) -> Decision | None:
        settings = self._settings_for(row.facts.topic.name)
        return None if settings is None else redecide(row, settings, self._policy.disks)

    def _lacks(self, held: Decision | None, count: int) -> bool:
        """Tell why rows are held, and return whether that is for lack of evidence."""
        reasons = () if held is None else held.reasons
        self._told(reasons, count)
        return any(reason.code == _CODE for reason in reasons)

    def _kind_of(self, about: str, was: str) -> tuple[int, ...]:
        """Return what a topic's facts come to under the policy, given the settings of the run."""
        topic, old = from_json("topic", about), from_json("settings", was)
        settings = self._settings_for(topic.name)
        if settings is None:
            return columns.fixed_kind(columns.SKIP)
        if self._policy.disks.watermarks:
            return columns.OTHER
        return columns.kind_of(topic, settings, blind={*settings.require_groups} != {*old.require_groups})


def identity(about: str) -> tuple[str, str]:
    """Return the name and the id of the topic that a ``topic_facts`` text is about; no id if it is unknown."""
    found = json.loads(about)
    return str(found["name"]), found["topic_id"] if isinstance(found["topic_id"], str) else ""
