"""Where consumers stand, without deciding anything: floors, ends, and each group's own offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retention_cli.brokers.commits import GroupCommits
from retention_cli.brokers.reader import ClusterReader
from retention_cli.model import PartitionFacts, TopicPartition, Unknown
from retention_cli.observe import Request, observe
from retention_cli.planning import Selection, check_matches
from retention_cli.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """One group's committed offset on a partition, and how far it is behind (None where H is unknown)."""

    tp: TopicPartition
    group: str
    committed: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class Positions:
    """Facts by partition, without look-ups; and every group's position, where it was asked for."""

    cluster_id: str
    bootstrap: str
    facts: Sequence[PartitionFacts]
    groups: Sequence[GroupPosition] = ()


def read_positions(
    reader: ClusterReader, selection: Selection, now_ms: int, *, every_group: bool = False, progress: Progress = silent
) -> Positions:
    """Read floors and ends of the chosen topics.

    Raises:
        BrokerError: the cluster's metadata could not be read.
        NothingMatchesError: a TOPIC, or the policy, matches nothing.
    """
    committed: dict[tuple[TopicPartition, str], int] = {}

    def listener(commits: GroupCommits) -> None:
        for topic, rows in commits.topics.items():
            if selection.settings_for(topic) is not None:
                for partition, offset, _epoch in rows:
                    committed[TopicPartition(topic, partition), commits.group] = offset

    request = Request(selection.settings_for, selection.policy.groups, now_ms, sizes=False, lookups=False)
    observation = observe(reader, request, progress, listener if every_group else None)
    check_matches(selection, observation.topics_seen)
    # Internal topics are looked at where they are named in full, as everywhere.
    facts = {tp: one for tp, one in observation.facts.items() if not one.topic.internal or tp.topic in selection.topics}
    groups = []
    for (tp, group), offset in sorted(committed.items()):
        if (one := facts.get(tp)) is not None:
            end = one.high_watermark
            groups.append(GroupPosition(tp, group, offset, None if isinstance(end, Unknown) else end - offset))
    return Positions(observation.cluster_id, reader.settings.bootstrap, tuple(facts.values()), groups)
