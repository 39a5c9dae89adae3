"""Narrow a plan to what one pass may trim, in records and bytes, and leave the rest for the next one. Pure.

Every offset up to a row's target may go, so any smaller target may, too: this can only make a trim smaller. Limits
of the policy (G6) refuse a plan as a whole; a ceiling takes what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from retention_cli.core.model import Decision, Reason, TopicPartition
from retention_cli.decide.decision import unread_below
from retention_cli.plan.value import Plan


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that one pass trims; None: no such ceiling. Bytes are the plan's, mostly estimated."""

    max_records: int | None = None
    max_bytes: int | None = None

    @property
    def given(self) -> bool:
        """Whether there is any ceiling."""
        return self.max_records is not None or self.max_bytes is not None


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
    whole: Callable[[str], bool] = lambda _topic: False,
) -> Narrowed:
    """Return the plan with rows narrowed or left out so that it stays within the ceiling.

    Rows get their share in order, beginning with the first one behind ``after``, so that over several passes each gets
    its turn. With a ceiling in bytes, a row whose bytes are unknown is left out. Rows of topics that are ``whole`` (to
    be trimmed at segments' ends) are not cut: what does not fit is left out.
    """
    if not ceiling.given:
        return Narrowed(plan)
    rows = list(plan.decisions)
    trims = [at for at, one in enumerate(rows) if one.action == "trim"]
    turn = trims if after is None else [at for at in trims if rows[at].tp > after] + _up_to(rows, trims, after)
    records, size = ceiling.max_records, ceiling.max_bytes
    cut = later = 0
    last: TopicPartition | None = None
    for at in turn:
        one = rows[at]
        take = one.records if records is None else min(one.records, records)
        if size is not None:
            take = _fitting(take, one, size)
        if take <= 0 or one.log_start is None or (take < one.records and whole(one.topic)):
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


def _up_to(rows: Sequence[Decision], trims: Sequence[int], after: TopicPartition) -> list[int]:
    return [at for at in trims if rows[at].tp <= after]


def _fitting(take: int, one: Decision, size: int) -> int:
    """Return how many of ``take`` records fit into ``size`` bytes, as if a row's records were equally large."""
    if one.size_bytes is None or size <= 0:
        return 0
    if one.size_bytes * take <= size * one.records:
        return take
    return size * one.records // one.size_bytes


def _shortened(one: Decision, trim_to: int) -> Decision:
    start = one.log_start or 0
    records = trim_to - start
    text = f"the pass's ceiling ends it at {trim_to:,}; the plan trims to {one.trim_to or 0:,}"
    return one._replace(
        trim_to=trim_to,
        records=records,
        size_bytes=None if one.size_bytes is None else -(-one.size_bytes * records // one.records),
        size_exact=False,
        unconsumed=unread_below(trim_to, start, one.min_commit),
        reasons=(*one.reasons, Reason("ceiling", text)),
    )


def _left(one: Decision, ceiling: Ceiling) -> Decision:
    text = "left for a later pass: this one is at its ceiling"
    if ceiling.max_bytes is not None and one.size_bytes is None:
        text = "left alone: its bytes are unknown, and --max-bytes is given"
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
