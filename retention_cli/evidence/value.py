"""Evidence as values: a partition's facts and decision, what groups had read, and the outcome. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from retention_cli.core.consumers import floor_by
from retention_cli.core.model import (
    Action,
    Code,
    Decision,
    Maybe,
    PartitionFacts,
    Reason,
    RuleName,
    TopicPartition,
    Unknown,
)
from retention_cli.observe.request import Observation
from retention_cli.policy.settings import Settings

NONE: Final = -1
"""In columns: there is none, or it is unknown. A commit in the current leader epoch has no end of its epoch."""
KINDS: Final = ("commit", "gone", "missing", "refused")
COMMITS_AT_MOST: Final = 8
"""If a partition has more commits, the lowest ones are kept, the highest, and all that are no plain commit."""
Numbers = npt.NDArray[np.int64]


class ReadTimes(NamedTuple):
    """When a recheck began to read each kind of fact (Unix ms): the one before was read completely by then.

    ``began`` is when kretain asked for metadata, ``again`` when it asked a second time, ``done`` when it had that
    answer. All are counted by a clock that is never set.
    """

    began: int
    commits: int
    ends: int
    lookups: int
    again: int
    done: int


class Planned(NamedTuple):
    """What the plan allowed: :func:`~retention_cli.plan.reconcile.reconcile` uses no more of it.

    ``epoch_end`` is where the plan's leader epoch ended by the recheck, if the partition was in a later one (M2).
    """

    trim_to: int
    topic_id: str | None
    leader_epoch: int | None
    min_commit: int | None
    unconsumed: int
    epoch_end: Maybe[int | None] = None


class RecordedDecision(NamedTuple):
    """The recheck's decision. Its reasons are not kept: deciding again returns them."""

    action: Action
    trim_to: int | None = None
    rule: RuleName | None = None
    limited_by: Code | None = None
    size_bytes: int | None = None
    size_exact: bool = False

    @classmethod
    def of(cls, one: Decision) -> RecordedDecision:
        """Return what is kept of a decision."""
        return cls(one.action, one.trim_to, one.rule, one.limited_by, one.size_bytes, one.size_exact)


class DiskPart(NamedTuple):
    """R6's part in a decision: the bound that it asked for and why, and why it is unknown here."""

    raise_to: tuple[int, Reason] | None = None
    stopped: Unknown | None = None


class Row(NamedTuple):
    """A partition of a recheck: all that its decision follows from, what the plan allowed, and the decision.

    ``recheck`` is the recheck's number in its run, from 1.
    """

    recheck: int
    facts: PartitionFacts
    settings: Settings
    now_ms: int
    reads: ReadTimes
    planned: Planned
    decision: RecordedDecision
    disks: DiskPart | None = None


class Commit(NamedTuple):
    """What a group had committed on a partition.

    ``kind`` is one of :data:`KINDS`, as in :class:`~retention_cli.observe.floors.fold.CommitRow`. ``by`` is the group
    as a floor names it (``group:billing``), ``epoch`` the commit's leader epoch. ``epoch_end`` is where that ends if
    it is not the partition's current one and the leader knows it.
    """

    by: str
    kind: str
    offset: int | None = None
    epoch: int | None = None
    epoch_end: int | None = None


class Result(NamedTuple):
    """The outcome for a partition: of a request, or without one.

    Of several requests only the one that settles the partition is ``final``: the report counts it. ``recheck`` is the
    number of the recheck that it is based on, None if there was none, ``batch`` the one that announced the request.
    ``sent_ms`` is when the request was written to its socket (Unix ms, by the clock of :class:`ReadTimes`), None if it
    was not. ``answer`` is the log start in the leader's answer, ``error`` what came instead. ``why`` is the reason if
    neither says it.
    """

    topic: str
    partition: int
    recheck: int | None
    batch: int | None
    outcome: str
    final: bool = True
    request_offset: int | None = None
    sent_ms: int | None = None
    answer: int | None = None
    error: str | None = None
    log_start_after: int | None = None
    records: int = 0
    size_bytes: int | None = 0
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Commits:
    """What groups have committed on a recheck's rows, as columns: a live cluster has millions of commits.

    ``start`` has where each row's begin, and the end. ``by`` are numbers of ``names``, ``kind`` of :data:`KINDS`.
    """

    names: Sequence[str]
    start: Numbers
    by: Numbers
    kind: Numbers
    offset: Numbers
    epoch: Numbers
    epoch_end: Numbers

    @classmethod
    def of(cls, rows: Sequence[Row], seen: Observation) -> Commits:
        """Return those on a recheck's rows, as it saw them."""
        names: dict[str, int] = {}
        found: list[tuple[int, int, int, int, int]] = []
        for number, some in enumerate(seen.passes):
            rows_by_partition = _rows_by_partition(rows, seen.read_in, number)
            for group, topic, kind, commits in some.seen:
                if (place := rows_by_partition.get(topic)) is not None:
                    by, what = names.setdefault(floor_by(group), len(names)), KINDS.index(kind)
                    found += [
                        (place[n], by, what, offset, NONE if epoch is None else epoch)
                        for n, offset, epoch in commits
                        if n in place
                    ]
        table = np.array(found, np.int64).reshape(-1, 5).T
        table = table[:, np.lexsort((table[1], table[3], table[0]))]
        table = table[:, _is_recorded(table)]
        row, whose, kinds, offset, epoch = table
        current = np.array([-1 if one.facts.leader_epoch is None else one.facts.leader_epoch for one in rows], np.int64)
        end = np.full_like(offset, NONE)
        for n in np.flatnonzero((epoch != NONE) & (epoch != current[row])).tolist():
            end[n] = getattr(seen.epoch_ends.get((rows[row[n]].facts.tp, int(epoch[n]))), "offset", NONE)
        return cls(list(names), np.searchsorted(row, np.arange(len(rows) + 1)), whose, kinds, offset, epoch, end)


def _is_recorded(table: Numbers) -> npt.NDArray[np.bool_]:
    """Return which commits are kept, given them by row and offset."""
    row, kinds = table[0], table[2]
    if not len(row):
        return np.zeros(0, np.bool_)
    first = np.searchsorted(row, row)
    last = np.append(row[1:] != row[:-1], True)
    return cast(npt.NDArray[np.bool_], (np.arange(len(row)) - first < COMMITS_AT_MOST) | last | (kinds != 0))


def _rows_by_partition(
    rows: Sequence[Row], read_in: Mapping[TopicPartition, int], number: int
) -> dict[str, dict[int, int]]:
    """Return, by topic and partition, which row has what a pass read."""
    found: dict[str, dict[int, int]] = {}
    for n, one in enumerate(rows):
        if not number if not read_in else read_in.get(one.facts.tp, 0) == number:
            found.setdefault(one.facts.topic.name, {})[one.facts.partition] = n
    return found
