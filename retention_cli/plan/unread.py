"""How many records would be trimmed before each consumer has read them (G2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.consumers import floor_by
from retention_cli.core.model import Decision
from retention_cli.observe.floors.fold import Commit

LosingRows = Mapping[str, Mapping[int, tuple[int, int]]]
"""What would be trimmed unread: log start and target by topic and partition."""
GoneCommits = Sequence[tuple[str, Mapping[str, Sequence[Commit]]]]
"""The positions of consumers, by key, whose commits are gone and still count (F6)."""


def losing(decisions: Iterable[Decision]) -> dict[str, dict[int, tuple[int, int]]]:
    """Return what would be trimmed unread (:data:`LosingRows`)."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for one in decisions:
        if one.action == "trim" and one.unconsumed and one.trim_to is not None and one.log_start is not None:
            found.setdefault(one.topic, {})[one.partition] = (one.log_start, one.trim_to)
    return found


def lost_of(rows: LosingRows, commits: Mapping[str, Sequence[Commit]]) -> int:
    """Return how many records a consumer with these positions would lose."""
    total = 0
    for topic, there in rows.items():
        for partition, offset, _epoch in commits.get(topic, ()):
            if (row := there.get(partition)) is not None:
                total += max(0, row[1] - max(offset, row[0]))
    return total


def unread_by_group(
    reader: ClusterReader, groups: Mapping[str, GroupCommits | None], gone: GoneCommits, rows: LosingRows
) -> Mapping[str, int] | BrokerError:
    """Return, per consumer, how many records would be trimmed before it has read them (G2), or why that is unknown.

    Commits are read a second time, and only if unread records would be trimmed: keeping all of them until then
    would cost memory for every commit.

    Args:
        reader: the cluster.
        groups: the groups whose commits were read and recorded together with the log's ends, and the positions of
            consumers outside Kafka's groups (F7). Others are left out: commits that only this report has read would
            be forgotten once the group is deleted (F6).
        gone: the positions of consumers whose commits are gone and still count (F6).
        rows: what would be trimmed unread (:func:`losing`).
    """
    if not rows:
        return {}
    unread: Counter[str] = Counter()
    for group, positions in gone:
        unread[group] += lost_of(rows, positions)

    def on_commits(commits: GroupCommits | CommitsUnknown) -> None:
        if isinstance(commits, CommitsUnknown):
            return
        unread[commits.group] += lost_of(rows, commits.topics)
        for topic, stored in commits.no_position.items():  # it may want to read all of it
            unread[commits.group] += lost_of(rows, {topic: [(*place, None) for place in stored.items()]})

    for outside in groups.values():
        if outside is not None:
            on_commits(outside)
    try:
        reader.read_commits(sorted(name for name, outside in groups.items() if outside is None), on_commits)
    except BrokerError as error:
        return error
    return dict(sorted((floor_by(group), lost) for group, lost in unread.items() if lost))
