"""Check rows of evidence: decide them again, and see what their facts allow. Pure: no cluster, no policy, no clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from retention_cli.core.model import Decision, Floor, TopicPartition, Unknown
from retention_cli.decide.decision import after_disks, decide_by, disk_limit, held_by_disks, off_disks
from retention_cli.decide.topic_rules import TopicRules
from retention_cli.evidence.value import Commit, DiskPart, Planned, ReadTimes, RecordedDecision, Result, Row
from retention_cli.plan.reconcile import Target, reconcile

GOOD_FOR_MS: Final = 30_000
"""How old a recheck may be when a request based on it is sent."""
topic_rules: Final = lru_cache(1_000)(TopicRules)
"""Returns the rules of a topic by its facts, settings and now: made once for many rows."""


def decided(row: Row) -> Decision:
    """Return the decision that a row's facts and settings give."""
    facts, settings = row.facts, row.settings
    rules = topic_rules(facts.topic, settings, row.now_ms)
    again = decide_by(facts, rules)
    bound, stopped = row.disks or DiskPart()
    if bound is None:
        return again if stopped is None else held_by_disks(again, stopped)
    limit = off_disks(facts.topic, settings) or disk_limit(facts, rules)
    return after_disks(facts, settings, again, limit, bound, stopped)


def allowed_by(row: Row, again: Decision) -> Target | None:
    """Return what both the plan and the recheck allow, None if nothing."""
    if again.action != "trim":
        return None
    found = reconcile(_planned(row.facts.tp, row.planned), again, row.planned.epoch_end)
    return found if isinstance(found, Target) else None


def _planned(tp: TopicPartition, one: Planned) -> Decision:
    """Return what of the plan's row is kept, as that row."""
    return Decision(
        *(tp.topic, one.topic_id, tp.partition, "trim", None, None, None, one.min_commit, None, one.trim_to, 0, None),
        *(one.unconsumed, None, None, ()),
        leader_epoch=one.leader_epoch,
    )


def wrong_decision(row: Row, again: Decision, *, inventory: bool) -> Iterator[str]:
    """Yield how a row's decision differs from the one that its facts give; with an inventory sizes are not in them."""
    was, now = row.decision, RecordedDecision.of(again)
    if inventory:
        now = now._replace(size_bytes=was.size_bytes, size_exact=was.size_exact)
    if was == now:
        return
    for name, old, new in zip(RecordedDecision._fields, was, now, strict=True):
        if old != new:
            why = "".join(f" ({reason.text})" for reason in again.reasons[:1])
            yield f"{name} was {_shown(old)}; by the facts it is {_shown(new)}{why}"


def _shown(value: object) -> str:
    return "none" if value is None else f"{value:,}" if type(value) is int else str(value)


def wrong_times(reads: ReadTimes, now_ms: int) -> Iterator[str]:
    """Yield what was read in another order than the safe one."""
    for (name, at), (after, later) in pairwise(zip(reads._fields, reads, strict=True)):
        if later < at:
            yield f"read out of order: {after} at {later}, before {name} at {at}"
    if not reads.began - 1 <= now_ms <= reads.done + 1:
        yield f"decided for {now_ms}, which is not within its recheck ({reads.began} to {reads.done})"


def wrong_floor(row: Row, commits: Sequence[Commit]) -> Iterator[str]:
    """Yield why the floor can't be what groups had committed (F1 to F5)."""
    floor, end = row.facts.floor, row.facts.high_watermark
    if isinstance(floor, Unknown) or isinstance(end, Unknown):
        return  # nothing follows from it: guards and R1 hold
    starts = any(note.code == "F2" for note in floor.notes)
    if not commits and not starts:
        yield "F4: the floor is known, and no group has committed"
    for one in commits:
        if one.kind == "missing" and not row.facts.empty:
            yield f"F2: the floor is known, and {one.by} has no commit"
        elif one.kind not in ("commit", "gone", "missing"):
            yield f"F5: the floor is known, and {one.by}'s commit is of another log"
        elif one.offset is not None:
            yield from _wrong_position(floor, end, row.facts.leader_epoch, one, one.offset)
    if commits and not starts and not any(one.by == floor.by for one in commits if one.by):
        yield f"F1: the floor is {floor.by}'s, which has no commit"


class Fact(NamedTuple):
    """What a request may be based on: facts of its row, when they were read, and how far it may go (None: nowhere)."""

    log_start: int | None
    floor: int | None
    rule: str | None
    began_ms: int
    done_ms: int
    allowed: int | None


def _wrong_position(floor: Floor, end: int, epoch: int | None, one: Commit, offset: int) -> Iterator[str]:
    """Yield why the floor can't be where it is, by one group's position."""
    counts = offset if one.kind == "commit" or one.epoch_end is None else min(offset, one.epoch_end)
    if floor.offset > counts:
        yield f"F1: the floor is {floor.offset:,}, and {one.by} is at {counts:,}"
    if one.kind == "commit" and offset > end:
        yield f"F5: {one.by} is at {offset:,}, beyond the log's end {end:,}"
    elif one.kind == "commit" and one.epoch not in (None, epoch) and (one.epoch_end is None or offset > one.epoch_end):
        yield f"F5: {one.by} is at {offset:,}, beyond the end of its leader epoch {one.epoch}"


def wrong_request(one: Result, fact: Fact | None) -> Iterator[str]:
    """Yield what is wrong about a request and its result."""
    if (requested := one.request_offset) is None:
        if one.outcome == "trimmed" or one.records or one.sent_ms is not None:
            yield "counts as trimmed, and nothing was asked for"
        return
    if fact is None:
        yield f"a trim to {requested:,} was asked for, and no recheck has it"
        return
    if fact.allowed is None or requested > fact.allowed:
        yield f"a trim to {requested:,} was asked for; plan and facts allow {_shown(fact.allowed)}"
    yield from _wrong_time(one, fact)
    if one.outcome == "trimmed" and (one.log_start_after is None or one.log_start_after < requested):
        yield f"trimmed, and the log start was not read back at {requested:,} or beyond"
    counts = requested - (fact.log_start or 0) if one.outcome in ("trimmed", "unverified") else 0
    if one.records != counts:
        yield f"{one.outcome}, and counts {one.records:,} records; it is {counts:,}"


def _wrong_time(one: Result, fact: Fact) -> Iterator[str]:
    if one.sent_ms is None:
        if one.answer is not None or one.outcome == "trimmed":
            yield f"{one.outcome}, and lacks the time when it was sent"
    elif not fact.done_ms <= one.sent_ms <= fact.began_ms + GOOD_FOR_MS:
        yield f"sent at {one.sent_ms}; its recheck, from {fact.began_ms} to {fact.done_ms}, was good for 30 s"
