"""Check rows of evidence: decide them again, and see what their facts allow. Pure: no cluster, no policy, no clock.

:func:`check_columns` is derived from the checks of one row, and decides only where both must agree. All rows where
that is not certain, and those that look wrong, are left to the checks of one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, cast

import numpy as np

from retention_cli.core.model import Decision, Floor, TopicFacts, TopicPartition, Unknown
from retention_cli.decide.decision import after_disks, decide_by, disk_limit, held_by_disks, off_disks
from retention_cli.decide.topic_rules import TopicRules
from retention_cli.evidence.columns import (
    ACTIONS,
    LIMITS,
    RULES,
    TRIM,
    Decided,
    Facts,
    Mask,
    decide_columns,
    kind_of,
    numbers,
)
from retention_cli.evidence.format import EvidenceError, Part, coded, from_json, texts_in
from retention_cli.evidence.value import (
    KINDS,
    NONE,
    Commit,
    DiskPart,
    Numbers,
    Planned,
    ReadTimes,
    RecordedDecision,
    Result,
    Row,
)
from retention_cli.plan.reconcile import Target, reconcile
from retention_cli.policy.settings import Settings

GOOD_FOR_MS: Final = 30_000
"""How old a recheck may be when a request based on it is sent."""


def decided(row: Row) -> Decision:
    """Return the decision that a row's facts and settings give."""
    facts, settings = row.facts, row.settings
    rules = TopicRules(facts.topic, settings, row.now_ms)
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
        elif one.kind == "refused":
            yield f"F5: the floor is known, and {one.by}'s commit is of another log"
        elif one.offset is not None:
            yield from _wrong_position(floor, end, row.facts.leader_epoch, one, one.offset)
    if commits and not starts and not any(one.by == floor.by for one in commits):
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


_BIG: Final = 2**31


class Plain(NamedTuple):
    """Which rows' decisions, floors and times are right, and how far a request may go.

    ``allowed`` is of rows whose decision is right, by columns or not. −1: nowhere; where the decision is not right by
    columns, that is not sure.
    """

    decided: Mask
    floors: Mask
    times: Mask
    allowed: Numbers


def check_columns(part: Part, *, inventory: bool) -> Plain:
    """Check a recheck's rows; with an inventory sizes are not in the facts."""
    table = part.table
    if any(table.column(name).null_count for name in ("recheck", "topic", "partition")):
        raise EvidenceError("a row has no topic, partition or recheck")
    about: dict[str, TopicFacts] = {}

    @cache
    def chosen(text: str) -> Settings:
        return cast(Settings, from_json("settings", text))

    @cache
    def kind(topic: str, settings: str) -> tuple[int, ...]:
        about[topic] = from_json("topic", topic)
        return kind_of(about[topic], chosen(settings))

    facts = Facts.of(table, kind)
    found = decide_columns(facts, facts.looked_up())
    column = {name: numbers(table, name) for name in _NUMBERS}
    good = facts.plain & _matches_recorded(table, column, facts, found, sized=not inventory)
    reads = [column[f"{name}_ms"] for name in ReadTimes._fields]
    times: Mask = (reads[0] - 1 <= facts.now) & (facts.now <= reads[-1] + 1)
    for before, later in pairwise(reads):
        times &= before <= later
    texts, which = coded(table, "topic_facts")
    ids = [about[one].topic_id if one in about else None for one in texts]
    good &= texts_in(table, "topic") == np.array([about[one].name if one in about else None for one in texts])[which]
    target, epoch = column["trim_to"], column["plan_epoch"]
    least = np.minimum(column["plan_trim_to"], target)
    same = (epoch == column["leader_epoch"]) & (epoch >= 0) & (column["plan_min_commit"] <= facts.floor)
    same &= texts_in(table, "plan_topic_id") == np.array([one if isinstance(one, str) else None for one in ids])[which]
    unread = least - np.minimum(np.maximum(facts.start, facts.floor), least)
    sent = same & facts.sound & (target >= 0) & (least > facts.start) & (unread <= column["plan_unconsumed"])
    floors = facts.sound & (facts.lost | _floor_holds(part, column, facts))
    return Plain(good, floors, times, np.where(sent, least, NONE))


_NUMBERS: Final = (
    *("size_bytes", "trim_to", "trim_bytes", "plan_trim_to", "plan_min_commit", "plan_unconsumed", "plan_epoch"),
    *("leader_epoch", *(f"{name}_ms" for name in ReadTimes._fields)),
)


def _matches_recorded(table: Any, column: dict[str, Numbers], facts: Facts, found: Decided, *, sized: bool) -> Mask:
    """Return where the decision in the table is the one that was found."""
    start, end, target, sizes = facts.start, facts.end, found.target, column["size_bytes"]
    good: Mask = (column["trim_to"] == target) & (table.column("trim_to").is_null().to_numpy() == (target < 0))
    for name, names, which in (
        ("action", ACTIONS, found.action),
        ("rule", RULES, found.rule),
        ("limited_by", LIMITS, found.limited_by),
    ):
        texts, index = coded(table, name)
        good &= np.array([*(names.index(one) if one in names else -2 for one in texts), NONE])[index] == which
    if not sized:
        return good
    trims, span = found.action == TRIM, np.maximum(end - start, 1)
    some, part = np.where(trims, target - start, 0), np.minimum(span, _BIG - 1)
    share = sizes // span * some + sizes % part * np.minimum(some, part) // part  # without an overflow
    good &= ~trims | ((sizes >= 0) & (span < _BIG))
    good &= (column["trim_bytes"] == np.where(trims, share, 0)) & ~table.column("trim_bytes_exact").fill_null(
        True
    ).to_numpy()
    return good


def _floor_holds(part: Part, column: dict[str, Numbers], facts: Facts) -> Mask:
    """Return where every commit is plain, in the current epoch, within the log, and not below the floor."""
    commits = part.commits
    row = np.repeat(np.arange(len(facts.floor)), np.diff(commits.start))
    epoch = commits.epoch
    irregular = (commits.kind != KINDS.index("commit")) | ((epoch != NONE) & (epoch != column["leader_epoch"][row]))
    irregular |= (commits.offset > facts.end[row]) | (commits.offset < facts.floor[row])
    good: Mask = np.diff(commits.start).astype(np.bool_)
    good[row[irregular]] = False
    names, whose = coded(part.table, "floor_by")
    place = {name: n for n, name in enumerate(names)}
    by = np.array([*(place.get(name, -2) for name in commits.names), -2])
    lowest = np.zeros(len(good), np.bool_)
    lowest[row[by[commits.by] == whose[row]]] = True
    return good & lowest
