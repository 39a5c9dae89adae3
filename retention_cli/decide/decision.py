"""Combine triggers, each limited by its guards, into one decision per partition (docs/rules.md, Deciding).

Pure: no clock, no broker, no Spark. The same facts, settings and now give the same decision.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from retention_cli.core.model import (
    Action,
    Code,
    Decision,
    Floor,
    Maybe,
    PartitionFacts,
    Reason,
    RuleName,
    TopicFacts,
    Unknown,
    known,
)
from retention_cli.decide.topic_rules import TopicRules, by_topic
from retention_cli.decide.triggers import Bound, NotEnabled, Trigger
from retention_cli.policy.settings import Settings


class Weighed(NamedTuple):
    """A trigger's bound after its guards.

    ``bound`` is the trigger's bound, ``allowed`` what its guards leave of it: None if there is nothing to trim (not
    beyond S), unknown if the trigger or one of its guards is.
    """

    rule: RuleName | None
    code: Code
    bound: int | None
    allowed: Maybe[int | None]
    limited_by: Code | None
    notes: tuple[Reason, ...]


_ANYWHERE: Final = 2**63 - 1


def weigh(facts: PartitionFacts, settings: Settings, now_ms: int) -> list[Weighed]:
    """Return the guarded bound of each trigger that is on, in the rules' order."""
    return _weigh_all(facts, TopicRules(facts.topic, settings, now_ms))


def decide(facts: PartitionFacts, settings: Settings, now_ms: int) -> Decision:
    """Return the decision for one partition.

    It never trims past min(H, L), nor past the floor if R1 or G2 requires that. An unknown fact stops the triggers
    that depend on it, and its reason is in the decision.
    """
    return decide_by(facts, TopicRules(facts.topic, settings, now_ms))


def decide_each(facts: Iterable[PartitionFacts], settings: Mapping[str, Settings], now_ms: int) -> Iterator[Decision]:
    """Yield the decision for each partition, as :func:`decide` returns it: faster for topics with many partitions."""
    return (decide_by(one, rules) for one, rules in by_topic(facts, settings, now_ms))


def decide_by(facts: PartitionFacts, rules: TopicRules) -> Decision:
    """Return the decision for one partition of the topic that the rules are for; see :func:`decide`."""
    stopped = _stopped(facts, rules)
    return _weighed(facts, rules) if stopped is None else stopped


class Limit(NamedTuple):
    """How far R6 may trim a partition, and the guard that limits it, with a text."""

    offset: int
    guard: Code
    text: str


def disk_limit(facts: PartitionFacts, rules: TopicRules) -> Maybe[Limit]:
    """Return how far the guards let R6 trim a partition; unknown, with the reason, if it must not be trimmed."""
    stopped = _stopped(facts, rules)
    if stopped is not None:
        return Unknown(stopped.reasons or (Reason(Code.R6, "it is empty"),))
    limit: Limit | None = None
    for guard in rules.guards(Code.R6):
        allowed = guard.limit(_ANYWHERE if limit is None else limit.offset, facts, rules.settings, rules.now_ms)
        if isinstance(allowed, Unknown):
            return allowed
        if limit is None or allowed < limit.offset:
            limit = Limit(allowed, guard.code, guard.holds_back(facts, rules.settings))
    return Unknown.because(Code.R6, "no guard says where its log ends") if limit is None else limit


def off_disks(topic: TopicFacts, settings: Settings) -> Unknown | None:
    """Return why R6 leaves a topic alone whose records are not on disks alone (KIP-405, KIP-1150); None if it may."""
    if topic.diskless:
        return Unknown.because(Code.R6, "it is diskless (diskless.enable): a trim would free no disk")
    if topic.tiered and not settings.trim_tiered:
        text = "it has remote storage: a trim would also delete the remote records before it; tiered: trim allows it"
        return Unknown.because(Code.R6, text)
    return None


def raised(
    facts: PartitionFacts, settings: Settings, decision: Decision, bound: int, limit: Limit, why: Reason
) -> Decision:
    """Return the decision with R6's bound, if that is larger than the other rules' bound.

    A ``bound`` beyond ``limit`` is ignored; one equal to ``limit`` was limited by it.
    """
    log_start = known(facts.log_start)
    if log_start is None or bound > limit.offset:
        return decision
    by = limit.guard if bound == limit.offset and bound < (known(facts.high_watermark) or 0) else None
    one = Weighed("disk-usage", Code.R6, bound, bound, by, (why,))
    if settings.whole_segments:
        one = _to_segment_start(one, facts, log_start)
    if not isinstance(one.allowed, int):  # after rounding to segments: unknown, or nothing left to trim
        more = one.allowed.reasons if isinstance(one.allowed, Unknown) else one.notes
        held = isinstance(one.allowed, Unknown) and decision.action == "keep"
        reasons = _reasons((*decision.reasons, *more))
        return decision._replace(action="hold" if held else decision.action, reasons=reasons)
    if one.allowed <= max(log_start, decision.trim_to or 0):
        return decision
    reasons = _reasons((*one.notes, *decision.reasons))
    return _decision(facts, "trim", one.allowed, rule="disk-usage", limited_by=by, reasons=reasons)


def after_disks(
    facts: PartitionFacts,
    settings: Settings,
    decision: Decision,
    limit: Maybe[Limit],
    raise_to: tuple[int, Reason] | None,
    stopped: Unknown | None,
) -> Decision:
    """Return the decision after R6.

    Args:
        facts: the partition's facts.
        settings: its topic's settings.
        decision: the decision by the other rules.
        limit: how far the guards let R6 trim (:func:`disk_limit`).
        raise_to: R6's bound and its reason; None if R6 does not trim the partition.
        stopped: why R6 is unknown for the partition, None if it is known or does not apply.
    """
    if raise_to is not None and not isinstance(limit, Unknown):
        bound, why = raise_to
        decision = raised(facts, settings, decision, bound, limit, why)
    return decision if stopped is None else held_by_disks(decision, stopped)


def held_by_disks(decision: Decision, why: Unknown) -> Decision:
    """Return the decision with the reasons why R6 is unknown. Decisions that need no rule are unchanged."""
    if decision.action == "skip" or decision.log_start == decision.high_watermark or why.reasons == decision.reasons:
        return decision
    action: Action = "hold" if decision.action == "keep" else decision.action
    return decision._replace(action=action, reasons=tuple(dict.fromkeys((*decision.reasons, *why.reasons))))


def _stopped(facts: PartitionFacts, rules: TopicRules) -> Decision | None:
    """Return the decision if it needs no rule (skipped, frozen, empty, or a fact is missing), else None."""
    if isinstance(rules.untouchable, Reason):
        return _decision(facts, "skip", reasons=(rules.untouchable,))
    if rules.frozen is not None:
        return _decision(facts, "hold", reasons=(rules.frozen,))
    if facts.empty:
        return _decision(facts, "keep", reasons=_lost(facts.floor))
    start, end = facts.log_start, facts.high_watermark
    if rules.unknown or isinstance(start, Unknown) or isinstance(end, Unknown):
        missing = [*rules.unknown, *(one for one in (start, end) if isinstance(one, Unknown))]
        return _decision(facts, "hold", reasons=_reasons(reason for fact in missing for reason in fact.reasons))
    return None


def _lost(floor: Maybe[Floor]) -> tuple[Reason, ...]:
    """Return the floor's notes on records lost before a group read them, reported also for empty partitions (F5)."""
    return () if isinstance(floor, Unknown) else tuple(note for note in floor.notes if note.code == Code.F5)


def _weighed(facts: PartitionFacts, rules: TopicRules) -> Decision:
    weighed = _weigh_all(facts, rules)
    held = False
    unknown: list[Reason] = []
    best: Weighed | None = None
    best_offset = -1
    for one in weighed:
        if isinstance(one.allowed, Unknown):
            held = True
            unknown += one.allowed.reasons
        elif one.allowed is not None and one.allowed > best_offset:
            best, best_offset = one, one.allowed
    if best is not None:
        reasons = _reasons((*best.notes, *unknown))
        return _decision(facts, "trim", best_offset, rule=best.rule, limited_by=best.limited_by, reasons=reasons)
    notes = [note for one in weighed for note in one.notes]
    return _decision(facts, "hold" if held else "keep", reasons=_reasons((*unknown, *notes)))


def _weigh_all(facts: PartitionFacts, rules: TopicRules) -> list[Weighed]:
    if isinstance(facts.log_start, Unknown):
        return []
    weighed = [_weigh(trigger, facts, facts.log_start, rules) for trigger in rules.triggers(facts)]
    return [one for one in weighed if one is not None]


def _weigh(trigger: Trigger, facts: PartitionFacts, log_start: int, rules: TopicRules) -> Weighed | None:
    answer = trigger.ask(facts, rules.settings, rules.now_ms)
    if isinstance(answer, NotEnabled):
        return None
    if isinstance(answer, Unknown):
        return Weighed(trigger.rule, trigger.code, None, answer, None, ())
    if answer.offset <= log_start:  # nothing to trim, so no guard is asked
        return Weighed(trigger.rule, trigger.code, answer.offset, None, None, answer.notes)
    guarded = _guarded(trigger, answer, facts, log_start, rules)
    return _to_segment_start(guarded, facts, log_start) if rules.settings.whole_segments else guarded


def _guarded(trigger: Trigger, bound: Bound, facts: PartitionFacts, log_start: int, rules: TopicRules) -> Weighed:
    offset, notes = bound.offset, bound.notes
    allowed, limited_by, held_back = offset, None, ""
    stopped: list[Unknown] = []
    for guard in rules.guards(trigger.code):
        limit = guard.limit(offset, facts, rules.settings, rules.now_ms)
        if isinstance(limit, Unknown):
            stopped.append(limit)
        elif limit < allowed:
            allowed, limited_by, held_back = limit, guard.code, guard.holds_back(facts, rules.settings)
    if allowed <= log_start and limited_by is not None:  # nothing left to trim, so an unknown guard does not matter
        note = Reason(limited_by, f"{trigger.rule} would trim to {offset:,}, but {held_back}")
        return Weighed(
            trigger.rule, trigger.code, offset, None, limited_by, (*notes, note, *_of_floor(limited_by, facts))
        )
    if stopped:
        lost = Unknown(tuple(reason for one in stopped for reason in one.reasons))
        return Weighed(trigger.rule, trigger.code, offset, lost, limited_by, notes)
    return Weighed(trigger.rule, trigger.code, offset, allowed, limited_by, (*notes, *_of_floor(limited_by, facts)))


def _of_floor(limited_by: Code | None, facts: PartitionFacts) -> tuple[Reason, ...]:
    """Return the notes of the floor if it limited the bound, such as a group that no longer exists (F6)."""
    return facts.floor.notes if limited_by == Code.G2 and not isinstance(facts.floor, Unknown) else ()


def _to_segment_start(one: Weighed, facts: PartitionFacts, log_start: int) -> Weighed:
    """Return the bound rounded down to a segment's base offset, for ``granularity: segment``."""
    if not isinstance(one.allowed, int):
        return one
    if isinstance(facts.segment_bases, Unknown):
        return one._replace(allowed=facts.segment_bases)
    place = bisect_right(facts.segment_bases, one.allowed)
    base = facts.segment_bases[place - 1] if place else -1
    if base > log_start:
        return one._replace(allowed=base)
    note = Reason("granularity", f"{one.rule} would trim to {one.allowed:,}, and no segment ends before that")
    return one._replace(allowed=None, notes=(*one.notes, note))


def _decision(
    facts: PartitionFacts,
    action: Action,
    trim_to: int | None = None,
    *,
    rule: RuleName | None = None,
    limited_by: Code | None = None,
    reasons: tuple[Reason, ...] = (),
) -> Decision:
    topic, start, end = facts.topic, known(facts.log_start), known(facts.high_watermark)
    floor, floor_by = (None, None) if isinstance(facts.floor, Unknown) else (facts.floor.offset, facts.floor.by)
    records = unconsumed = 0
    size: int | None = 0
    if trim_to is not None and start is not None and end is not None:
        records = trim_to - start
        unconsumed = unread_below(trim_to, start, floor)
        size = None if isinstance(facts.size_bytes, Unknown) else facts.size_bytes * records // (end - start)
    return Decision(  # by place: by name it takes half as long again
        topic.name,
        known(topic.topic_id),
        facts.partition,
        action,
        start,
        end,
        known(facts.last_stable_offset),
        floor,
        floor_by,
        trim_to,
        records,
        size,
        unconsumed,
        rule,
        limited_by,
        reasons,
        leader_epoch=facts.leader_epoch,
    )


def unread_below(trim_to: int, log_start: int, floor: int | None) -> int:
    """Return how many of the trimmed offsets at least one counting consumer has not read (G2).

    All of them if the floor is unknown (None).
    """
    return trim_to - (log_start if floor is None else min(max(log_start, floor), trim_to))


def _reasons(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return the reasons without repeats, in their first order."""
    return tuple(dict.fromkeys(reasons))
