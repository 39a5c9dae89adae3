"""Decide recorded rows under another policy. Pure.

Facts are those of the evidence. One that the recorded policy did not ask for, or asked for otherwise, is unknown, and
holds. If a look-up for the new cutoff is missing, its answer lies between those for an earlier and a later cutoff: if
both give the same decision, that is the decision; else it is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from retention_cli.core.model import ANCIENT_MS, Decision, LookUp, Maybe, PartitionFacts, Unknown, Usage, known
from retention_cli.decide.decision import decide_by, held_by_disks
from retention_cli.evidence.checks import topic_rules
from retention_cli.evidence.value import Row
from retention_cli.policy.settings import DiskRules, Settings

CODE: Final = "evidence"
"""The code of what the evidence lacks."""
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


def redecide(row: Row, settings: Settings, disks: DiskRules) -> Decision:
    """Return the decision for a recorded row under other settings, at the time of its recheck."""
    facts = _as_known(row, settings, disks)
    rules = topic_rules(facts.topic, settings, row.now_ms)
    wanted = rules.wanted(facts)
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
    found = decide_by(low, rules)
    if high is not low and (found.action == "hold" or not _same(found, decide_by(high, rules))):
        found = decide_by(lacking, rules)
    if disks.percent is None:
        return found
    return held_by_disks(found._replace(reasons=()) if found.action == "keep" else found, _CEILING)


def _same(one: Decision, other: Decision) -> bool:
    return (one.action, one.trim_to) == (other.action, other.trim_to)


def _between(answers: Mapping[int, Maybe[LookUp]], at_ms: int, end: int) -> tuple[LookUp, LookUp]:
    """Return what allows least and most of all that a look-up can have given: of a later time it gives no less."""
    found = [(time, one) for time, one in answers.items() if not isinstance(one, Unknown)]
    low = max((one.offset for time, one in found if time < at_ms), default=0)
    high = min(
        (one.offset for time, one in found if time > at_ms and one.note is None and time != ANCIENT_MS), default=end
    )
    ends = LookUp(low), LookUp(max(low, high))
    return ends[::-1] if at_ms == ANCIENT_MS else ends  # there the larger offset allows less (G9)


def _as_known(row: Row, settings: Settings, disks: DiskRules) -> PartitionFacts:
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
    if disks.watermarks:
        use = facts.usage
        percent = use.percent if isinstance(use, Usage) else -1.0
        reached = max((mark for mark in disks.watermarks if mark.percent <= percent), default=None)
        gone["usage"] = use if isinstance(use, Usage) and use.mark == reached else _USAGE
    return facts._replace(**gone)


def _events(settings: Settings) -> tuple[object, ...]:
    return settings.event_source, settings.ignore_future, settings.skip_unreadable, settings.max_ahead_ms
