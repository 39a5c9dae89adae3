"""A plan's sums, for a page: its totals, and those of each topic, consumer and reason. Pure.

It takes as much memory as the plan has topics, consumers and different reasons.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from retention_cli.core.model import Action, Code, Decision, Reason, TopicPartition
from retention_cli.plan.value import Plan, Totals

_NAMED = 3


@dataclass(frozen=True, slots=True)
class TopicSum:
    """A topic: what a trim would delete, its records now (H − S), and how many of them are on hold."""

    name: str
    totals: Totals
    records: int
    held_records: int

    @property
    def staying(self) -> int:
        """The records that neither go nor are on hold."""
        return max(0, self.records - self.totals.records - self.held_records)


@dataclass(slots=True)
class Sum:
    """Partitions: how many, of which topics, the first of them, and how many records of theirs count."""

    partitions: int = 0
    topics: set[str] = field(default_factory=set)
    first: list[TopicPartition] = field(default_factory=list)
    records: int = 0

    def add(self, tp: TopicPartition, records: int = 0) -> None:
        """Count one more partition."""
        self.partitions += 1
        self.topics.add(tp.topic)
        self.records += records
        if len(self.first) < _NAMED:
            self.first.append(tp)


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """The totals of all, and of each topic, consumer and reason, the largest first: topics of which most would go.

    A consumer's are the partitions where it is the furthest behind, with the records that it has to read. A reason is
    one for an action.
    """

    totals: Totals
    topics: Sequence[TopicSum]
    consumers: Sequence[tuple[str, Sum]]
    reasons: Sequence[tuple[tuple[Action, Reason], Sum]]


def summarize(plan: Plan) -> PlanSummary:
    """Return a plan's sums."""
    topics: list[TopicSum] = []
    consumers: defaultdict[str, Sum] = defaultdict(Sum)
    reasons: defaultdict[tuple[Action, Reason], Sum] = defaultdict(Sum)
    for name, some in groupby(plan.decisions, lambda one: one.topic):
        rows = list(some)
        held = sum(_records_in(one) for one in rows if one.action == "hold")
        topics.append(TopicSum(name, Totals.of(rows), sum(map(_records_in, rows)), held))
        for one in rows:
            if one.action != "skip" and one.min_commit is not None and one.min_commit_by is not None:
                behind = (one.high_watermark or 0) - max(one.min_commit, one.log_start or 0)
                if behind > 0:
                    consumers[one.min_commit_by].add(one.tp, behind)
            for reason in one.reasons:
                reasons[one.action, reason].add(one.tp)
    order = {"hold": 0, "trim": 1, "keep": 2, "skip": 3}
    return PlanSummary(
        totals=plan.totals,
        topics=sorted(topics, key=lambda one: (-one.totals.records, -one.records, one.name)),
        consumers=sorted(consumers.items(), key=lambda pair: (-pair[1].records, pair[0])),
        reasons=sorted(reasons.items(), key=lambda pair: (order[pair[0][0]], -pair[1].partitions, pair[0][1].text)),
    )


def _records_in(one: Decision) -> int:
    """Return a partition's records now, 0 if that is unknown."""
    return 0 if one.log_start is None or one.high_watermark is None else one.high_watermark - one.log_start


_HELP: Final[Mapping[str, Collection[str]]] = {
    "kretain groups": {Code.F1, Code.F2, Code.F3, Code.F4, Code.F6, Code.F8, Code.G2},
    "kretain offsets --groups {topic}": {Code.F5, Code.F7, Code.F9, Code.R1},
    "kretain ledger show {topic}": {Code.G3, "ledger", Code.M4},
    "kretain profile {topic}": {Code.G4, Code.G9, Code.R2},
    "kretain disk": {Code.R5, Code.R6, Code.R7, "disk", "inventory", "size", "granularity"},
    "kretain policy show {topic}": {Code.G5, Code.G6, Code.G7, "policy", "policy-topic", "archive"},
    "kretain doctor": {Code.G8, "metadata", "offsets", "topic-settings", "topic-id"},
}


def command_for(code: str) -> str:
    """Return the command that shows more of a reason; ``{topic}`` and ``{place}`` stand for its first partition."""
    return next((line for line, codes in _HELP.items() if code in codes), "kretain explain {place}")
