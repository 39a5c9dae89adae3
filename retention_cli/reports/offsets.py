"""Where consumers stand, without deciding anything: floors, log ends, and each group's offsets, as rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from retention_cli.brokers.commits import GroupCommits
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.consumers import plain_name
from retention_cli.core.grouping import SameReasons, grouped
from retention_cli.core.model import PartitionFacts, Reason, TopicFacts, TopicPartition, Unknown, known
from retention_cli.core.progress import Progress, silent
from retention_cli.memory.stores import Memories
from retention_cli.observe.cluster import observe
from retention_cli.observe.request import Request
from retention_cli.policy.model import matches
from retention_cli.policy.selection import Selection, check_matches

Row = dict[str, Any]


class Rows(Protocol):
    """Rows in the order of their partitions (and groups), wherever they are kept."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Row]: ...

    def most_lagging(self, most: int) -> list[Row]:
        """Return the ``most`` rows that lag furthest, or have the most unread records; equal ones keep their order."""
        ...


class FloorRows(Rows, Protocol):
    """Rows of :func:`floor_row`, one per partition, and their totals."""

    @property
    def with_floor(self) -> int:
        """How many have a floor."""
        ...

    @property
    def unknown(self) -> int:
        """How many have no floor, though they hold records."""
        ...

    def grouped(self, most: int, topics: int) -> tuple[Sequence[SameReasons], int]:
        """Return why they have no floor: the first ``most`` kinds, each with its first topics; and how many kinds."""
        ...


@dataclass(frozen=True, slots=True)
class Positions:
    """Every partition's floor, and the positions of the groups that were asked for.

    ``groups`` has rows of :func:`group_row`, or of :mod:`retention_cli.reports.unread`.
    """

    cluster_id: str
    bootstrap: str
    floors: FloorRows
    groups: Rows


class ListedRows(list[Row]):
    """:class:`Rows` in memory; ``by`` is the column of what is furthest."""

    def __init__(self, rows: Iterable[Row] = (), by: str = "lag") -> None:
        super().__init__(rows)
        self._by = by

    def most_lagging(self, most: int) -> list[Row]:
        """See :class:`Rows`."""
        return sorted(self, key=lambda row: -(row[self._by] or 0))[:most]


class ListedFloors(ListedRows):
    """:class:`FloorRows` in memory."""

    @property
    def with_floor(self) -> int:
        """See :class:`FloorRows`."""
        return sum(row["min_commit"] is not None for row in self)

    @property
    def unknown(self) -> int:
        """See :class:`FloorRows`."""
        return sum(has_no_floor(row) for row in self)

    def grouped(self, most: int, topics: int) -> tuple[Sequence[SameReasons], int]:
        """See :class:`FloorRows`."""
        del topics
        found = grouped(
            (TopicPartition(row["topic"], row["partition"]), reasons_of(row)) for row in self if has_no_floor(row)
        )
        return found[:most], len(found)


def floor_row(one: PartitionFacts) -> Row:
    """Return a partition's floor and ends as a row: null where they are unknown, and the reasons."""
    floor = known(one.floor)
    reasons = one.floor.reasons if isinstance(one.floor, Unknown) else one.floor.notes
    end = one.high_watermark
    return {
        "topic": one.topic.name,
        "partition": one.partition,
        "log_start": known(one.log_start),
        "high_watermark": known(end),
        "last_stable_offset": known(one.last_stable_offset),
        "min_commit": None if floor is None else floor.offset,
        "min_commit_by": None if floor is None else floor.by,
        "lag": None if floor is None or isinstance(end, Unknown) else end - floor.offset,
        "reasons": [] if one.empty else [{"code": reason.code, "text": reason.text} for reason in reasons],
    }


def has_no_floor(row: Row) -> bool:
    """Return whether a row of :func:`floor_row` holds records (or may hold some) and says why it has no floor."""
    return row["min_commit"] is None and bool(row["reasons"])


def reasons_of(row: Row) -> tuple[Reason, ...]:
    """Return the reasons of a row of :func:`floor_row`."""
    return tuple(Reason(one["code"], one["text"]) for one in row["reasons"])


def group_row(tp: TopicPartition, group: str, committed: int, high_watermark: int | None) -> Row:
    """Return a group's committed offset on a partition, and how far it is behind (None where H is unknown)."""
    lag = None if high_watermark is None else high_watermark - committed
    return {"topic": tp.topic, "partition": tp.partition, "group": group, "committed": committed, "lag": lag}


def is_shown(topic: str, selection: Selection, *, internal: bool) -> bool:
    """Return whether a topic is shown: internal ones only if named in full, as everywhere."""
    return not internal or topic in selection.topics


def read_positions(
    reader: ClusterReader,
    selection: Selection,
    now_ms: int,
    *,
    groups: Collection[str] = (),
    memories: Memories | None = None,
    progress: Progress = silent,
) -> Positions:
    """Read floors and ends of the chosen topics; with patterns in ``groups``, those groups' own positions too.

    Raises:
        BrokerError: the cluster's metadata could not be read.
        NothingMatchesError: a TOPIC, or the policy, matches no topic.
    """
    committed: dict[tuple[TopicPartition, str], int] = {}

    def listener(commits: GroupCommits) -> None:
        name = plain_name(commits.group)
        if not matches(groups, name):
            return
        for topic, rows in commits.topics.items():
            if selection.settings_for(topic) is not None:
                for partition, offset, _epoch in rows:
                    committed[TopicPartition(topic, partition), name] = offset

    request = Request(
        selection.settings_for, selection.policy.groups, now_ms, sizes=False, lookups=False, memory_for=memories
    )
    observation = observe(reader, request, progress, listener if groups else None)
    check_matches(selection, observation.topics_seen)
    facts = {tp: one for tp, one in observation.facts.items() if _shown(one.topic, selection)}
    positions = ListedRows(
        group_row(tp, group, offset, known(facts[tp].high_watermark))
        for (tp, group), offset in sorted(committed.items())
        if tp in facts
    )
    floors = ListedFloors(floor_row(one) for one in facts.values())
    return Positions(observation.cluster_id, reader.settings.bootstrap, floors, positions)


def _shown(topic: TopicFacts, selection: Selection) -> bool:
    return is_shown(topic.name, selection, internal=topic.internal)
