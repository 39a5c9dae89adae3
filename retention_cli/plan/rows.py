"""What is asked of a plan's rows, wherever they are kept: in memory, or in columns of a file. Pure."""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from retention_cli.core.codes import Code
from retention_cli.core.model import Decision
from retention_cli.plan.columns import row_as_json

ORDER: Final = ("trim", "hold", "keep", "skip")
"""The actions, those that matter most first."""


@dataclass(slots=True)
class TopicRows:
    """What a topic's decisions come to: how many there are, and what keeps how many from being trimmed further.

    ``records`` and ``size_bytes`` (None: unknown) are what would go. ``held`` counts :func:`held_back_by`.
    """

    topic: str
    actions: Counter[str] = field(default_factory=Counter)
    records: int = 0
    size_bytes: int | None = 0
    held: Counter[str] = field(default_factory=Counter)

    def add(self, action: str, records: int, size_bytes: int | None, held: Iterable[str], count: int = 1) -> None:
        """Add so many decisions, with the sum of their records and bytes."""
        self.actions[action] += count
        for one in held:
            self.held[one] += count
        if action == "trim":
            self.records += records
            self.size_bytes = None if size_bytes is None or self.size_bytes is None else self.size_bytes + size_bytes

    def add_row(self, one: Decision) -> None:
        """Add a decision."""
        self.add(one.action, one.records, one.size_bytes, held_back_by(one))

    def take(self, other: TopicRows) -> None:
        """Add other decisions of the topic."""
        self.actions += other.actions
        self.held += other.held
        self.records += other.records
        known = self.size_bytes is not None and other.size_bytes is not None
        self.size_bytes = (self.size_bytes or 0) + (other.size_bytes or 0) if known else None


class StoredDecisions(Sequence[Decision]):
    """Decisions that are kept in columns and not in memory: they answer for many rows at once."""

    @abstractmethod
    def tables(self) -> Iterator[Any]:
        """Yield the decisions as Arrow tables of the columns that are saved, a row group of Parquet each."""

    @abstractmethod
    def as_json(self) -> Iterator[dict[str, Any]]:
        """See :func:`rows_as_json`."""

    @abstractmethod
    def having(self, actions: Collection[str], *, reasons: bool) -> Iterator[Decision]:
        """See :func:`having`."""

    @abstractmethod
    def most_important(self, count: int) -> list[Decision]:
        """See :func:`most_important`."""

    @abstractmethod
    def by_topic(self) -> Iterator[TopicRows]:
        """See :func:`by_topic`."""


def rows_as_json(decisions: Iterable[Decision]) -> Iterator[dict[str, Any]]:
    """Yield decisions as rows of the plan's JSON."""
    return decisions.as_json() if isinstance(decisions, StoredDecisions) else map(row_as_json, decisions)


def having(decisions: Iterable[Decision], *actions: str, reasons: bool = False) -> Iterator[Decision]:
    """Yield the decisions with one of these actions; with ``reasons`` only those that have any."""
    if isinstance(decisions, StoredDecisions):
        return decisions.having(actions, reasons=reasons)
    return (one for one in decisions if one.action in actions and (one.reasons or not reasons))


def most_important(decisions: Iterable[Decision], count: int) -> list[Decision]:
    """Return the largest trims; if there are few, holds, too, then the rest. They are in the plan's order."""
    if isinstance(decisions, StoredDecisions):
        chosen = decisions.most_important(count)
    else:
        chosen = heapq.nsmallest(count, decisions, key=importance)
    return sorted(chosen, key=lambda one: one.tp)


def importance(one: Decision) -> tuple[int, int, str, int]:
    """Return the sort key of what matters: the largest trims, then holds, then the rest; of equal ones the first."""
    return ORDER.index(one.action), -one.records, one.topic, one.partition


def by_topic(decisions: Iterable[Decision]) -> Iterator[TopicRows]:
    """Yield what each topic's decisions come to; a topic's decisions are together."""
    if isinstance(decisions, StoredDecisions):
        return decisions.by_topic()
    return (_topic_rows(topic, rows) for topic, rows in groupby(decisions, key=lambda one: one.topic))


def _topic_rows(topic: str, rows: Iterable[Decision]) -> TopicRows:
    found = TopicRows(topic)
    for one in rows:
        found.add_row(one)
    return found


def held_back_by(one: Decision) -> list[str]:
    """Return what keeps the rest of the partition from being trimmed: a consumer, a guard, or reasons' codes."""
    if one.action in ("hold", "skip"):
        return list(dict.fromkeys(reason.code for reason in one.reasons))
    if one.limited_by is not None and one.limited_by != Code.G2:
        return [one.limited_by]
    if one.min_commit is None or one.min_commit_by is None or one.min_commit == one.high_watermark:
        return []
    # A trim beyond the floor is forced: no consumer holds it back. A floor below the log start has a note of its own.
    at_floor = one.min_commit == (one.log_start if one.trim_to is None else one.trim_to)
    lost = one.trim_to is None and any(reason.code in (Code.F5, Code.G2) for reason in one.reasons)
    return [one.min_commit_by.removeprefix("group:")] if at_floor or lost else []
