"""Where consumers stand, without deciding anything: floors, log ends, and each group's offsets, as rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from retention_cli.brokers.commits import GroupCommits
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.consumers import plain_name
from retention_cli.core.model import PartitionFacts, Reason, TopicFacts, TopicPartition, Unknown, known
from retention_cli.core.progress import Progress, silent
from retention_cli.memory.stores import Memories
from retention_cli.observe.cluster import observe
from retention_cli.observe.request import FullRead
from retention_cli.policy.model import matches
from retention_cli.policy.selection import Selection, check_matches

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Positions:
    """Every partition's floor, and the positions of the groups that were asked for, in the order of their partitions.

    ``floors`` has rows of :func:`floor_row`, ``groups`` of :func:`group_row` or :mod:`retention_cli.reports.unread`.
    """

    cluster_id: str
    bootstrap: str
    floors: list[Row]
    groups: list[Row]


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

    request = FullRead(selection.settings_for, selection.policy.groups, now_ms, memories, decides=False)
    observation = observe(reader, request, progress, listener if groups else None)
    check_matches(selection, observation.topics_seen)
    facts = {tp: one for tp, one in observation.facts.items() if _shown(one.topic, selection)}
    positions = [
        group_row(tp, group, offset, known(facts[tp].high_watermark))
        for (tp, group), offset in sorted(committed.items())
        if tp in facts
    ]
    floors = [floor_row(one) for one in facts.values()]
    return Positions(observation.cluster_id, reader.settings.bootstrap, floors, positions)


def _shown(topic: TopicFacts, selection: Selection) -> bool:
    return is_shown(topic.name, selection, internal=topic.internal)
