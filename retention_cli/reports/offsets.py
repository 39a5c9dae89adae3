"""Consumers' positions, without deciding anything, as rows: floors, log ends, and each group's offsets.

And what each consumer has yet to read: records, bytes, and since when the oldest waits (``offsets --unread``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from retention_cli.brokers.commits import GroupCommits
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.consumers import plain_name
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Code, PartitionFacts, Reason, TopicPartition, Unknown, known
from retention_cli.core.progress import Progress, silent
from retention_cli.memory.partition import pack, seen_past
from retention_cli.observe.cluster import observe
from retention_cli.observe.floors.fold import CommitRow, position_of
from retention_cli.observe.request import Observation, Request
from retention_cli.policy.model import matches
from retention_cli.policy.selection import Selection, check_matches
from retention_cli.state.memories import Memories

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Positions:
    """Every partition's floor, and the positions of the groups that were asked for, in the order of their partitions.

    ``floors`` has rows of :func:`floor_row`; ``groups`` has offsets, or :data:`BY_TOPIC` or :data:`BY_PARTITION`.
    """

    cluster_id: str
    bootstrap: str
    floors: list[Row]
    groups: list[Row]


def floor_row(one: PartitionFacts) -> Row:
    """Return a partition's floor and ends as a row: null where they are unknown, and the reasons."""
    floor = known(one.floor)
    reasons = one.floor.reasons if isinstance(one.floor, Unknown) else one.floor.notes
    return {
        "topic": one.topic.name,
        "partition": one.partition,
        "log_start": known(one.log_start),
        "high_watermark": known(one.high_watermark),
        "last_stable_offset": known(one.last_stable_offset),
        "min_commit": None if floor is None else floor.offset,
        "min_commit_by": None if floor is None else floor.by,
        **_behind(None if floor is None else floor.offset, one),
        "reasons": [] if one.empty else [{"code": reason.code, "text": reason.text} for reason in reasons],
    }


def _behind(offset: int | None, one: PartitionFacts) -> dict[str, int | None]:
    """Return how many offsets follow a position (``lag``), and how many of them the log start has passed (``lost``)."""
    start, end = known(one.log_start), known(one.high_watermark)
    if offset is None:
        return {"lag": None, "lost": None}
    lost = None if start is None else max(0, start - offset)
    return {"lag": None if end is None else end - offset - (lost or 0), "lost": lost}


def has_no_floor(row: Row) -> bool:
    """Return whether a row of :func:`floor_row` holds records (or may hold some) and says why it has no floor."""
    return row["min_commit"] is None and bool(row["reasons"])


def reasons_of(row: Row) -> tuple[Reason, ...]:
    """Return the reasons of a row of :func:`floor_row`."""
    return tuple(Reason(one["code"], one["text"]) for one in row["reasons"])


BY_PARTITION: Final = ("topic", "partition", "group", "committed", "records", "bytes", "unread_since", "remembered")
BY_TOPIC: Final = ("topic", "group", "partitions", "unknown", "records", "bytes", "unread_since", "remembered")
Rows = Literal["topics", "partitions"]
"""A row per consumer and topic, or per consumer and partition."""


class Log(NamedTuple):
    """A partition: S, H, the leader replica's bytes, and earlier samples of H, packed. None: unknown.

    ``ends`` has where leader epochs of commits end, as far as they are not the current ``leader_epoch``.
    """

    start: int | None
    end: int | None
    size_bytes: int | None
    samples: bytes = b""
    leader_epoch: int | None = None
    ends: Mapping[int, int | None] = MappingProxyType({})


class Unread(NamedTuple):
    """What a consumer has yet to read of a partition. ``records`` counts offsets; None: unknown.

    ``size_bytes`` is the leader's share of them, as if records were equally large. ``since_ms`` is when the ledger
    first saw the oldest of them (Unix ms): it waits since then at least. None: nothing is unread, or never seen.
    """

    records: int | None
    size_bytes: int | None = None
    since_ms: int | None = None


_NOTHING: Final = Unread(0, 0)
_UNKNOWN: Final = Unread(None)


def unread_of(row: CommitRow, log: Log) -> Unread:
    """Return what a consumer has yet to read, by one of its rows.

    It is unknown where the consumer, its position or the log's ends could not be read (F2, F3), and where its commit
    is another log's (F5) or nothing says of which log it is (F6). Records below S are gone, and no longer unread.
    """
    if log.start is None or log.end is None:
        return _UNKNOWN
    if row.kind == "missing" and log.start == log.end:
        return _NOTHING
    if (offset := position_of(row, log.leader_epoch, log.ends)) is None or offset > log.end:
        return _UNKNOWN
    first = max(offset, log.start)
    if not (records := log.end - first):
        return _NOTHING
    size = None if log.size_bytes is None else log.size_bytes * records // (log.end - log.start)
    return Unread(records, size, seen_past(log.samples, first))


def by_partition(rows: Iterable[CommitRow], logs: Mapping[TopicPartition, Log]) -> list[Row]:
    """Return a row of :data:`BY_PARTITION` per consumer and partition.

    ``partition`` is null where a consumer can't be read for any partition, ``topic`` too where that is any topic.
    """
    found: Iterable[Row] = (
        {
            "topic": row.topic,
            "partition": row.partition,
            "group": plain_name(row.group),
            "committed": row.offset,
            "records": one.records,
            "bytes": one.size_bytes,
            "unread_since": one.since_ms,
            "remembered": row.kind == "gone",
        }
        for row, one in ((row, _unread(row, logs)) for row in rows)
    )
    return _sorted(found, "topic", "partition", "group")


def by_topic(rows: Iterable[CommitRow], logs: Mapping[TopicPartition, Log]) -> list[Row]:
    """Return a row of :data:`BY_TOPIC` per consumer and topic: sums, null where one of them is unknown.

    ``partitions`` counts those that it reads; ``unknown`` those of them (a topic as one) of which it is not known how
    many records it has yet to read.
    """
    found: list[Row] = []
    for (topic, group), some in by_key(((row.topic, row.group), row) for row in rows).items():
        each = [_unread(row, logs) for row in some]
        found.append(
            {
                "topic": topic,
                "group": plain_name(group),
                "partitions": sum(row.partition is not None for row in some),
                "unknown": sum(one.records is None for one in each),
                "records": _sum([one.records for one in each]),
                "bytes": _sum([one.size_bytes for one in each]),
                "unread_since": min((one.since_ms for one in each if one.since_ms is not None), default=None),
                "remembered": any(row.kind == "gone" for row in some),
            }
        )
    return _sorted(found, "topic", "group")


def _sorted(rows: Iterable[Row], *order: str) -> list[Row]:
    """Return rows sorted by these columns, null first."""
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in order])


def _unread(row: CommitRow, logs: Mapping[TopicPartition, Log]) -> Unread:
    log = None if row.topic is None or row.partition is None else logs.get(TopicPartition(row.topic, row.partition))
    return _UNKNOWN if log is None else unread_of(row, log)


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value for value in values if value is not None)


def read_positions(
    reader: ClusterReader,
    selection: Selection,
    now_ms: int,
    *,
    groups: Collection[str] = (),
    unread: Rows | None = None,
    memories: Memories,
    progress: Progress = silent,
) -> Positions:
    """Read floors and ends of the chosen topics; with patterns in ``groups``, those groups' own positions too.

    With ``unread``, what the consumers whose names match have yet to read, of every kind that counts.

    Raises:
        BrokerError: the cluster's metadata could not be read.
        NothingMatchesError: a TOPIC, or the policy, matches no topic.
    """
    committed: dict[str, GroupCommits] = {}

    def listener(commits: GroupCommits) -> None:
        if matches(groups, plain_name(commits.group)):
            committed[commits.group] = commits

    request = Request(
        selection.settings_for,
        selection.policy.groups,
        now_ms,
        memories,
        decides=False,
        with_rows=unread is not None,
    )
    observation = observe(reader, request, progress, listener if groups and unread is None else None)
    check_matches(selection, observation.topics_seen)
    # Those of internal topics only if named in full, as everywhere.
    facts = {tp: one for tp, one in observation.facts.items() if not one.topic.internal or tp.topic in selection.topics}
    rows = _offsets(committed.values(), facts) if unread is None else _unread_rows(observation, groups, facts, unread)
    return Positions(
        observation.cluster_id, reader.settings.bootstrap, [floor_row(one) for one in facts.values()], rows
    )


def _offsets(committed: Iterable[GroupCommits], facts: Mapping[TopicPartition, PartitionFacts]) -> list[Row]:
    """Return groups' offsets; how far a group is behind is unknown where H is."""
    rows: Iterable[Row] = (
        {"topic": topic, "partition": partition, "group": plain_name(commits.group), "committed": offset}
        | _behind(offset, facts[TopicPartition(topic, partition)])
        for commits in committed
        for topic, positions in commits.topics.items()
        for partition, offset, _epoch in positions
        if TopicPartition(topic, partition) in facts
    )
    return _sorted(rows, "topic", "partition", "group")


def _unread_rows(
    observation: Observation, groups: Collection[str], facts: Mapping[TopicPartition, PartitionFacts], each: Rows
) -> list[Row]:
    rows = _chosen(observation.rows, groups, {tp.topic for tp in facts})
    ends = observation.epoch_ends_by_partition()
    logs = {
        tp: Log(
            known(one.log_start),
            known(one.high_watermark),
            known(one.size_bytes),
            pack((known(one.samples) or ())[:-1]),  # the last is of now, not earlier
            one.leader_epoch,
            ends.get(tp, {}),
        )
        for tp, one in facts.items()
    }
    return by_topic(rows, logs) if each == "topics" else by_partition(rows, logs)


def _chosen(rows: Iterable[CommitRow], groups: Collection[str], topics: Collection[str]) -> Iterator[CommitRow]:
    """Return these groups' rows on these topics. What failed for all consumers is left out: floors give the reason."""

    @cache
    def is_wanted(group: str) -> bool:
        return matches(groups, plain_name(group))

    return (
        row
        for row in rows
        if (row.kind != "failed" or row.code == Code.F3)
        and is_wanted(row.group)
        and (row.topic is None or row.topic in topics)
    )
