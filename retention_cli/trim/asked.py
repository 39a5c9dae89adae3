"""What a trim is asked for: a plan or some partitions of it; and which limits these exceed (G6). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from retention_cli.core.model import Decision, Reason
from retention_cli.decide.guards.limits import Amount, over_limits
from retention_cli.plan.value import Plan, Totals
from retention_cli.policy.selection import NothingMatchesError, Selection
from retention_cli.policy.settings import Limits


def asked_for(plan: Plan, max_partitions: int | None) -> Plan:
    """Return the plan of those partitions alone that a trim takes: the first ones that trim, all of them (None)."""
    if max_partitions is None:
        return plan
    return _of_rows(plan, tuple(islice((one for one in plan.decisions if one.action == "trim"), max_partitions)))


def of_partitions(plan: Plan, selection: Selection, past_day: Callable[[], Amount]) -> Plan:
    """Return the plan of those partitions alone that TOPIC:PARTITION arguments name; without these, the plan itself.

    The plan was decided over whole topics, as without them: a row is as it was, and no row is added. So nothing is
    trimmed further than the whole plan would.

    Args:
        plan: the plan of the whole topics.
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
    asked = _of_rows(plan, rows)
    if tuple(plan.topics) == selection.given:  # its makers counted these partitions alone (G2)
        asked = replace(asked, unconsumed_by=plan.unconsumed_by)
    return replace(asked, refusals=exceeded(plan, asked, past_day(), selection.policy.limits))


def _of_rows(plan: Plan, rows: tuple[Decision, ...]) -> Plan:
    """Return the plan of these rows. Who has yet to read them is known of each row's slowest consumer alone."""
    unread: Counter[str] = Counter()
    for one in rows:
        if one.unconsumed and one.min_commit_by is not None:
            unread[one.min_commit_by] += one.unconsumed
    return replace(
        plan, decisions=rows, unconsumed_by=dict(unread), refusals=(), disks=(), space=None, counted=Totals.of(rows)
    )


def exceeded(plan: Plan, asked: Plan, past_day: Amount, limits: Limits) -> list[Reason]:
    """Return a reason for each limit that a trim of these partitions would exceed (G6).

    Args:
        plan: the whole plan, whose partitions are the managed ones.
        asked: what is trimmed of it.
        past_day: what other runs trimmed in the last 24 hours.
        limits: the policy's limits.
    """
    managed = sum(
        one.high_watermark - one.log_start
        for one in plan.decisions
        if one.action != "skip" and one.high_watermark is not None and one.log_start is not None
    )
    totals = asked.totals
    return over_limits(Amount(totals.records, totals.size_bytes), past_day, managed, limits)
