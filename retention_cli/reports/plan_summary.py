"""What a plan comes to, for a page: exact totals, and the first few topics, consumers and reasons. Pure.

It takes as much memory as the plan has topics, consumers and different reasons, and returns as little as is asked for.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from retention_cli.core.codes import Code
from retention_cli.core.model import Action, Decision, Reason, TopicPartition
from retention_cli.plan.value import Plan, Totals

_PLACES = 3


@dataclass(slots=True)
class TopicSum:
    """A topic: its partitions, their records now (H − S), and how many of them would go, or stay for being on hold.

    ``size_bytes`` are those that would go, None if unknown.
    """

    name: str
    partitions: int = 0
    records: int = 0
    going: int = 0
    size_bytes: int | None = 0
    unconsumed: int = 0
    on_hold: int = 0
    held_records: int = 0

    @property
    def staying(self) -> int:
        """The records that neither go nor are on hold."""
        return max(0, self.records - self.going - self.held_records)


@dataclass(slots=True)
class ConsumerSum:
    """A consumer, on the partitions where it is the furthest behind: how many, and how many records it has to read."""

    name: str
    partitions: int = 0
    topics: set[str] = field(default_factory=set)
    records: int = 0


@dataclass(slots=True)
class ReasonSum:
    """A reason for an action: of how many partitions and topics, and the first of them."""

    action: Action
    reason: Reason
    partitions: int = 0
    topics: set[str] = field(default_factory=set)
    places: list[TopicPartition] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """The totals of all; the first of each kind, the largest first; and how many there are of each kind.

    ``topics`` are those of which most would go, ``largest`` those that have most records now.
    """

    totals: Totals
    topics: Sequence[TopicSum]
    largest: Sequence[TopicSum]
    topic_count: int
    consumers: Sequence[ConsumerSum]
    consumer_count: int
    reasons: Sequence[ReasonSum]
    reason_count: int


def summarize(plan: Plan, most: int) -> PlanSummary:
    """Return what a plan comes to, with at most so many of each kind."""
    topics: dict[str, TopicSum] = {}
    consumers: dict[str, ConsumerSum] = {}
    reasons: dict[tuple[str, Reason], ReasonSum] = {}
    for one in plan.decisions:
        _add_to(topics.setdefault(one.topic, TopicSum(one.topic)), one)
        if one.action != "skip" and one.min_commit is not None and one.min_commit_by is not None:
            behind = (one.high_watermark or 0) - max(one.min_commit, one.log_start or 0)
            if behind > 0:
                consumer = consumers.setdefault(one.min_commit_by, ConsumerSum(one.min_commit_by))
                consumer.partitions += 1
                consumer.topics.add(one.topic)
                consumer.records += behind
        for reason in one.reasons:
            here = reasons.setdefault((one.action, reason), ReasonSum(one.action, reason))
            here.partitions += 1
            here.topics.add(one.topic)
            if len(here.places) < _PLACES:
                here.places.append(one.tp)
    order = {"hold": 0, "trim": 1, "keep": 2, "skip": 3}
    return PlanSummary(
        totals=plan.totals,
        topics=heapq.nsmallest(most, topics.values(), key=lambda one: (-one.going, -one.records, one.name)),
        largest=heapq.nsmallest(most, topics.values(), key=lambda one: (-one.records, one.name)),
        topic_count=len(topics),
        consumers=heapq.nsmallest(most, consumers.values(), key=lambda one: (-one.records, one.name)),
        consumer_count=len(consumers),
        reasons=heapq.nsmallest(
            most, reasons.values(), key=lambda one: (order[one.action], -one.partitions, one.reason.text)
        ),
        reason_count=len(reasons),
    )


def _add_to(topic: TopicSum, one: Decision) -> None:
    known = one.log_start is not None and one.high_watermark is not None
    records = (one.high_watermark or 0) - (one.log_start or 0) if known else 0
    topic.partitions += 1
    topic.records += records
    if one.action == "trim":
        topic.going += one.records
        topic.unconsumed += one.unconsumed
        known = topic.size_bytes is not None and one.size_bytes is not None
        topic.size_bytes = (topic.size_bytes or 0) + (one.size_bytes or 0) if known else None
    elif one.action == "hold":
        topic.on_hold += 1
        topic.held_records += records


_HELP: Final[Mapping[str, Collection[str]]] = {
    "kretain groups": {Code.F1, Code.F2, Code.F3, Code.F4, Code.F6, Code.F8, Code.G2},
    "kretain offsets --groups {topic}": {Code.F5, Code.F7, Code.F9, Code.R1},
    "kretain ledger show {topic}": {Code.G3, "ledger", Code.M4},
    "kretain profile {topic}": {Code.G4, Code.G9, Code.R2},
    "kretain disk": {Code.R5, Code.R6, Code.R7, "disk", "inventory", "size", "granularity"},
    "kretain policy show {topic}": {Code.G5, Code.G6, Code.G7, "policy", "policy-topic", "archive"},
    "kretain doctor": {Code.G8, "metadata", "offsets", "topic-settings", "topic-id"},
}


def command_for(reason: ReasonSum) -> str:
    """Return the command that shows more of a reason; ``{topic}`` and ``{place}`` stand for its first partition."""
    return next((line for line, codes in _HELP.items() if reason.reason.code in codes), "kretain explain {place}")
