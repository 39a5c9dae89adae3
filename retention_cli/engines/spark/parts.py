"""What a coordinator's groups come to, cut by the tasks that read the partitions, and added up there.

A fold (:class:`~retention_cli.observe.floors.fold.FloorFold`) is made where commits are read. Of a partition a few
numbers are sent on, however many groups there are, and whatever is odd about it. Adding up changes nothing: a fold of
all groups is the same (tests/unit/engines/test_spark_parts.py).

Every source sends one part to every task that reads partitions of its cluster, an empty one if it has nothing to say.
So a task knows that it has heard of all groups: without the part of a source, its floors are unknown (F3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from retention_cli.core.model import Reason, TopicPartition
from retention_cli.engines.spark.packing import NO_BROKER
from retention_cli.engines.spark.places import Places
from retention_cli.observe.floors.fold import NO_COMMIT, NO_HIGHEST, Columns, FloorFold, TopicScope
from retention_cli.observe.floors.odd import Odd

_NOBODY: Final = 2**31 - 1
"""The rank of no group: after all others."""


class Source(NamedTuple):
    """Who has read some groups of a cluster: the task for a ``part`` of those that a ``broker`` coordinates.

    Commits are read again where coordinators moved: ``reading`` is which reading it was. Where Spark loses what a task
    has read, it runs the task again: ``run`` is the run after which coordinators were checked (F9).
    """

    reading: int
    broker: int
    part: int
    run: str = ""


CLIENT: Final = Source(0, NO_BROKER, 0)
"""The client, which adds deleted groups and other consumers."""


class Part(NamedTuple):
    """What some groups come to, on the partitions of one task.

    ``source`` has read them.
    ``at`` are the positions (:class:`~retention_cli.engines.spark.places.Places`) on which somebody has committed, in
    order. The columns beside it have the lowest and highest commits, and whose they are, as indexes of ``names``.
    ``odd`` is by position, ``failed_topics`` by topic; ``present`` are the required groups that have committed at a
    position (F4).
    """

    source: Source
    at: Any
    low: Any
    low_by: Any
    high: Any
    high_by: Any
    bare: Any
    names: Sequence[str]
    odd: Mapping[int, Odd]
    failed: Collection[Reason]
    failed_topics: Mapping[str, Collection[Reason]]
    present: Mapping[int, Collection[str]]


def cut(fold: FloorFold, places: Places, task_of: Any, source: Source) -> Iterator[tuple[int, Part]]:
    """Yield what a source's fold over a whole cluster comes to: a part for each task of ``task_of``.

    ``task_of`` is the task of each position.
    """
    at, *columns, names = _columns(fold, places)
    tasks = task_of[at]
    order = np.argsort(tasks, kind="stable")
    there = {task: order[start:end] for task, start, end in _stretches(tasks[order])}
    odd: dict[int, dict[int, Odd]] = {}
    for (topic, number), one in fold.odd.items():
        if (position := places.position(topic, number)) is not None:
            odd.setdefault(int(task_of[position]), {})[position] = one
    present: dict[int, dict[int, list[str]]] = {}
    for (group, topic), partitions in fold.present.items():
        for number in partitions:
            if (position := places.position(topic, number)) is not None:
                present.setdefault(int(task_of[position]), {}).setdefault(position, []).append(group)
    for task in np.unique(task_of).tolist():
        rows = there.get(task, _NO_ROWS)
        low, low_by, high, high_by, bare = (column[rows] for column in columns)
        used, ranks = np.unique(np.concatenate([low_by, high_by]), return_inverse=True)
        ranks = ranks.astype(np.int32)
        yield (
            task,
            Part(
                source,
                at[rows],
                *(low, ranks[: len(rows)], high, ranks[len(rows) :], bare),
                [names[one] for one in used.tolist()],
                odd.get(task, {}),
                fold.failed,
                fold.failed_topics,
                present.get(task, {}),
            ),
        )


def _columns(fold: FloorFold, places: Places) -> tuple[Any, Any, Any, Any, Any, Any, list[str]]:
    """Return the positions on which somebody has committed, the columns of :class:`Part` beside them, and names."""
    low, high = np.full(len(places), NO_COMMIT), np.full(len(places), NO_HIGHEST)
    low_by, high_by = np.zeros(len(places), np.int32), np.zeros(len(places), np.int32)
    bare = np.zeros(len(places), np.uint8)
    rank: dict[str, int] = {}
    for index, topic in enumerate(places.names):
        if (one := fold.columns.get(topic)) is None:
            continue
        at = places.topic(index)
        numbers = places.numbers[at]
        for whole, some in ((low, one.low), (high, one.high), (bare, np.frombuffer(one.bare, np.uint8))):
            whole[at] = np.asarray(some)[numbers]
        for whole, names in ((low_by, one.low_by), (high_by, one.high_by)):
            for name in dict.fromkeys(names):
                rank.setdefault(name, len(rank))
            whole[at] = np.array([*map(rank.__getitem__, names)], np.int32)[numbers]
    there = np.flatnonzero(high != NO_HIGHEST)
    return there, low[there], low_by[there], high[there], high_by[there], bare[there], list(rank)


def lost_reason(source: Source) -> Reason:
    """Return why floors are unknown where a source's part did not arrive (F3)."""
    if source == CLIENT:
        text = "positions of deleted groups and of consumers outside Kafka"
    elif source.broker == NO_BROKER:
        text = "commits of groups without a coordinator"
    else:
        text = f"commits of groups that broker {source.broker} coordinates"
    return Reason("F3", f"{text} were read, but Spark lost them on their way to this partition: run again")


_NO_ROWS: Final = np.zeros(0, np.int64)


class Sum:
    """Parts of one task, added up.

    Args:
        places: the cluster's partitions.
        positions: those of the task, in order.
        parts: what the groups of every coordinator come to, and what the client adds to it.
        sources: those that have sent parts to the task. One that is not among the parts got lost: it may have had the
            lowest commit of any of the partitions, so all their floors are unknown (F3). A part that arrives twice
            changes no floor.
    """

    def __init__(self, places: Places, positions: Any, parts: Sequence[Part], sources: Collection[Source]) -> None:
        self._places = places
        self._positions = positions
        self._names = sorted({name for one in parts for name in one.names})
        self._low, self._high = np.full(len(positions), NO_COMMIT), np.full(len(positions), NO_HIGHEST)
        self._low_by, self._high_by = (np.full(len(positions), _NOBODY, np.int32) for _ in range(2))
        self._bare = np.zeros(len(positions), np.uint8)
        self._odd: dict[int, Odd] = {}
        self._failed: set[Reason] = {lost_reason(one) for one in {*sources} - {one.source for one in parts}}
        self._failed_topics: dict[str, set[Reason]] = {}
        self._present: dict[int, set[str]] = {}
        rank = {name: number for number, name in enumerate(self._names)}
        for part in parts:
            self._add_columns(part, np.array([rank[name] for name in part.names], np.int32))
            for at, one in part.odd.items():
                self._odd.setdefault(at, Odd()).take(one)
            self._failed.update(part.failed)
            for topic, reasons in part.failed_topics.items():
                self._failed_topics.setdefault(topic, set()).update(reasons)
            for at, groups in part.present.items():
                self._present.setdefault(at, set()).update(groups)

    def _add_columns(self, part: Part, ranks: Any) -> None:
        at = np.searchsorted(self._positions, part.at)
        for known, by, new, new_by, sign in (
            (self._low, self._low_by, part.low, ranks[part.low_by], 1),
            (self._high, self._high_by, part.high, ranks[part.high_by], -1),
        ):
            before, before_by = known[at], by[at]
            wins = (sign * new < sign * before) | ((new == before) & (new_by < before_by))
            known[at], by[at] = np.where(wins, new, before), np.where(wins, new_by, before_by)
        self._bare[at] |= part.bare

    def fold(self, positions: Any, scopes: Mapping[str, TopicScope]) -> FloorFold:
        """Return the fold of all groups over these positions, in order; ``scopes`` are those of their topics."""
        fold = FloorFold(scopes)
        names = [*self._names, ""]
        for index, some in self._places.by_topic(positions):
            topic = self._places.names[index]
            if topic not in scopes:
                continue
            rows = np.searchsorted(self._positions, some)
            columns = Columns.of(len(scopes[topic].leader_epochs))
            low, high, bare = (one[rows].tolist() for one in (self._low, self._high, self._bare))
            low_by, high_by = (
                np.minimum(one[rows], len(self._names)).tolist() for one in (self._low_by, self._high_by)
            )
            for row, number in enumerate(self._places.numbers[some].tolist()):
                columns.low[number], columns.low_by[number] = low[row], names[low_by[row]]
                columns.high[number], columns.high_by[number] = high[row], names[high_by[row]]
                columns.bare[number] = bare[row]
            fold.columns[topic] = columns
            for position, number in zip(some.tolist(), self._places.numbers[some].tolist(), strict=True):
                if (odd := self._odd.get(position)) is not None:
                    fold.odd[TopicPartition(topic, number)] = odd
                for group in self._present.get(position, ()):
                    fold.present[group, topic].add(number)
        fold.failed = self._failed
        fold.failed_topics = self._failed_topics
        return fold


def _begins(*columns: Any) -> Any:
    """Return a mask of the rows that differ from the row before them."""
    found = np.ones(len(columns[0]), dtype=np.bool_)
    if len(found):
        found[1:] = False
        for column in columns:
            found[1:] |= column[1:] != column[:-1]
    return found


def _stretches(column: Any) -> Iterator[tuple[int, int, int]]:
    """Yield each value of a sorted column, with the row where it begins and the one before which it ends."""
    first = np.flatnonzero(_begins(column))
    ends = np.append(first, len(column))[1:]
    yield from zip(column[first].tolist(), first.tolist(), ends.tolist(), strict=True)
