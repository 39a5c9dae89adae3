"""What a trim is asked for: a plan, or its first partitions; and which limits these exceed (G6). Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

from retention_cli.core.model import Reason
from retention_cli.decide.guards.limits import Amount, over_limits
from retention_cli.plan.value import Plan, Totals
from retention_cli.policy.settings import Limits


def asked_for(plan: Plan, max_partitions: int | None) -> Plan:
    """Return the plan of those partitions alone that a trim takes: the first ones that trim, all of them (None)."""
    if max_partitions is None:
        return plan
    rows = tuple(islice((one for one in plan.decisions if one.action == "trim"), max_partitions))
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
