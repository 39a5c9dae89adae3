"""Narrow a plan: to partitions that a trim is asked for, to what one pass may trim, to what a recheck leaves. Pure.

Every offset up to a row's target may go, so any smaller target may, too: this can only make a trim smaller. Limits
of the policy (G6) refuse a complete plan; a ceiling takes what fits. Partition by partition,
:func:`~retention_cli.plan.reconcile.reconcile` decides what a recheck leaves (docs/plan.md, Saved plans).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from retention_cli.core.grouping import by_key
from retention_cli.core.model import Decision, Maybe, Reason, TopicPartition
from retention_cli.decide.decision import unread_below
from retention_cli.decide.guards.limits import Amount, over_limits
from retention_cli.plan.approval import approval_notes
from retention_cli.plan.reconcile import Held, Target, Unchanged, reconcile
from retention_cli.plan.value import Plan, Totals
from retention_cli.policy.selection import NothingMatchesError, Selection
from retention_cli.policy.settings import Limits
from retention_cli.trim.report import TrimRow


def limited_to(plan: Plan, max_partitions: int | None) -> Plan:
    """Return the plan of those partitions alone that a trim takes: the first ones that trim, all of them (None)."""
    if max_partitions is None:
        return plan
    return _of_rows(plan, tuple(islice((one for one in plan.decisions if one.action == "trim"), max_partitions)))


def of_partitions(plan: Plan, selection: Selection, past_day: Callable[[], Amount]) -> Plan:
    """Return the plan of those partitions alone that TOPIC:PARTITION arguments name; without these, the plan itself.

    The plan was decided over complete topics, as without them: rows stay unchanged, and no row is added. So nothing is
    trimmed further than the complete plan would.

    Args:
        plan: the plan of the complete topics.
        selection: the arguments, and the policy with its limits.
        past_day: returns what other runs trimmed in the last 24 hours.

    Raises:
        NothingMatchesError: the plan has no such partition.
    """
    if not selection.partitions:
        return plan
    rows = tuple(one for one in plan.decisions if selection.asks_for(one.tp))
    if missing := sorted(selection.partitions - {one.tp for one in rows}):
        topic, partition = missing[0]
        there = [one.partition for one in plan.decisions if one.topic == topic]
        has = f"it has {min(there)} to {max(there)}" if there else "the plan has none of its partitions"
        raise NothingMatchesError(f"{topic} has no partition {partition} here: {has}")
    selected = _of_rows(plan, rows)
    if tuple(plan.topics) == selection.given:  # its makers counted these partitions alone (G2)
        selected = replace(selected, unconsumed_by=plan.unconsumed_by)
    return replace(
        selected,
        notes=[
            *(one for one in plan.notes if one.code != "approval"),
            *approval_notes(selected.totals, selection.policy.approve),
        ],
        refusals=exceeded(plan, selected, past_day(), selection.policy.limits),
    )


def _of_rows(plan: Plan, rows: tuple[Decision, ...]) -> Plan:
    """Return the plan of these rows. Of those who have yet to read a row, only its slowest consumer is known."""
    unread: Counter[str] = Counter()
    for one in rows:
        if one.unconsumed and one.min_commit_by is not None:
            unread[one.min_commit_by] += one.unconsumed
    return replace(
        plan, decisions=rows, unconsumed_by=dict(unread), refusals=(), disks=(), space=None, counted=Totals.of(rows)
    )


def exceeded(plan: Plan, selected: Plan, past_day: Amount, limits: Limits) -> list[Reason]:
    """Return a reason for each limit that a trim of these partitions would exceed (G6).

    Args:
        plan: the complete plan, whose partitions are the managed ones.
        selected: the part of it that is trimmed.
        past_day: what other runs trimmed in the last 24 hours.
        limits: the policy's limits.
    """
    managed = sum(
        one.high_watermark - one.log_start
        for one in plan.decisions
        if one.action != "skip" and one.high_watermark is not None and one.log_start is not None
    )
    totals = selected.totals
    return over_limits(Amount(totals.records, totals.size_bytes), past_day, managed, limits)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that one pass trims; None: no such ceiling. Bytes are the plan's, mostly estimated."""

    max_records: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A plan under the ceiling. ``cut`` rows trim less than planned, ``later`` rows nothing; ``last`` trims last."""

    plan: Plan
    cut: int = 0
    later: int = 0
    last: TopicPartition | None = None


def narrowed(
    plan: Plan,
    ceiling: Ceiling,
    after: TopicPartition | None = None,
    indivisible: Callable[[str], bool] = lambda _topic: False,
) -> Narrowed:
    """Return the plan with rows narrowed or left out so that it stays within the ceiling.

    Rows get their share in order, beginning with the first one behind ``after``, so that over several passes each gets
    its turn. With a ceiling in bytes, a row whose bytes are unknown is left out. Rows of
    ``indivisible`` topics (to be trimmed at segments' ends) are not cut: what does not fit is left out.
    """
    if ceiling == Ceiling():
        return Narrowed(plan)
    rows = list(plan.decisions)
    trims = [at for at, one in enumerate(rows) if one.action == "trim"]
    if after is not None:
        trims.sort(key=lambda at: rows[at].tp <= after)
    records, size = ceiling.max_records, ceiling.max_bytes
    cut = later = 0
    last: TopicPartition | None = None
    for at in trims:
        one = rows[at]
        take = one.records if records is None else min(one.records, records)
        if size is not None:
            take = _fitting(take, one, size)
        if take <= 0 or one.log_start is None or (take < one.records and indivisible(one.topic)):
            rows[at] = _left(one, ceiling)
            later += 1
            continue
        if take < one.records:
            rows[at] = one = _shortened(one, one.log_start + take)
            cut += 1
        last = one.tp
        records = None if records is None else records - one.records
        size = None if size is None or one.size_bytes is None else size - one.size_bytes
    return Narrowed(replace(plan, decisions=tuple(rows), counted=None), cut, later, last)


def _fitting(take: int, one: Decision, size: int) -> int:
    """Return how many of ``take`` records fit into ``size`` bytes, as if a row's records were equally large."""
    if one.size_bytes is None or size <= 0:
        return 0
    return take if one.size_bytes * take <= size * one.records else size * one.records // one.size_bytes


def _shortened(one: Decision, trim_to: int) -> Decision:
    start = one.log_start or 0
    records = trim_to - start
    text = f"this pass's limit stops it at {trim_to:,}; the plan trims to {one.trim_to or 0:,}"
    return one._replace(
        trim_to=trim_to,
        records=records,
        size_bytes=None if one.size_bytes is None else -(-one.size_bytes * records // one.records),
        size_exact=False,
        unconsumed=unread_below(trim_to, start, one.min_commit),
        reasons=(*one.reasons, Reason("ceiling", text)),
    )


def _left(one: Decision, ceiling: Ceiling) -> Decision:
    text = (
        "not trimmed: its size is unknown, and --max-bytes is set"
        if ceiling.max_bytes is not None and one.size_bytes is None
        else "left for a later pass: this pass reached its limit"
    )
    return one._replace(
        action="keep",
        trim_to=None,
        records=0,
        size_bytes=0,
        size_exact=False,
        unconsumed=0,
        rule=None,
        limited_by=None,
        reasons=(*one.reasons, Reason("ceiling", text)),
    )


PARTITIONS_A_LEADER: Final = 1_000


def wanted(
    planned: Mapping[TopicPartition, Decision],
    waiting: Sequence[TopicPartition],
    decisions: Mapping[TopicPartition, Decision],
    unreadable: Mapping[TopicPartition, Reason],
    epoch_end: Callable[[TopicPartition, int | None], Maybe[int | None]],
) -> tuple[dict[TopicPartition, Target], list[TrimRow]]:
    """Return what a recheck still allows of the plan, and the rows of partitions of which it allows nothing.

    A row is ``failed`` if the partition could not be rechecked.

    Args:
        planned: the plan's rows that trim.
        waiting: the partitions that are not yet settled.
        decisions: the recheck's.
        unreadable: partitions whose leader is missing or did not answer.
        epoch_end: returns where a leader epoch ends; None if the leader does not know it.
    """
    targets: dict[TopicPartition, Target] = {}
    ended: list[TrimRow] = []
    for tp in waiting:
        plan = planned[tp]
        if (reason := unreadable.get(tp)) is not None:
            ended.append(TrimRow(tp, "failed", plan.trim_to, reasons=(reason,)))
            continue
        match reconcile(plan, decisions.get(tp), epoch_end(tp, plan.leader_epoch)):
            case Held(reasons):
                ended.append(TrimRow(tp, "held", reasons=reasons))
            case Unchanged(reasons, log_start):
                ended.append(TrimRow(tp, "unchanged", log_start=log_start, reasons=reasons))
            case Target() as target:
                targets[tp] = target
    return targets, ended


def batches_of(
    targets: Mapping[TopicPartition, Target], leaders: Mapping[TopicPartition, int | None]
) -> Iterator[dict[TopicPartition, Target]]:
    """Cut targets into batches, each with one request of bounded size per leader (broker id)."""
    by_leader = by_key((leaders[tp], tp) for tp in sorted(targets))
    for start in range(0, max((len(tps) for tps in by_leader.values()), default=0), PARTITIONS_A_LEADER):
        yield {tp: targets[tp] for tps in by_leader.values() for tp in tps[start : start + PARTITIONS_A_LEADER]}


def requests_of(
    batch: Mapping[TopicPartition, Target], leaders: Mapping[TopicPartition, int | None]
) -> dict[int, dict[TopicPartition, int]]:
    """Return a batch's target offsets by leader (broker id). Partitions without a leader are left out."""
    by_leader = by_key((leaders[tp], (tp, target.offset)) for tp, target in batch.items())
    return {leader: dict(offsets) for leader, offsets in by_leader.items() if leader is not None}
