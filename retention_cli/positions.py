"""Where consumers stand, without deciding anything: floors, ends, and each group's own offsets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from retention_cli.brokers.commits import GroupCommits
from retention_cli.brokers.reader import ClusterReader
from retention_cli.model import PartitionFacts, TopicPartition, Unknown
from retention_cli.observation import Request
from retention_cli.observe import observe
from retention_cli.planning import Selection, check_matches
from retention_cli.policy.model import matches
from retention_cli.progress import Progress, silent
from retention_cli.state.memories import Memories


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
        NothingMatchesError: a TOPIC, or the policy, matches nothing.
    """
    committed: dict[tuple[TopicPartition, str], int] = {}

    def listener(commits: GroupCommits) -> None:
        if not matches(groups, commits.group):
            return
        for topic, rows in commits.topics.items():
            if selection.settings_for(topic) is not None:
                for partition, offset, _epoch in rows:
                    committed[TopicPartition(topic, partition), commits.group] = offset

    request = Request(
        selection.settings_for, selection.policy.groups, now_ms, sizes=False, lookups=False, memory_for=memories
    )
    observation = observe(reader, request, progress, listener if groups else None)
    check_matches(selection, observation.topics_seen)
    # Internal topics are looked at where they are named in full, as everywhere.
    facts = {tp: one for tp, one in observation.facts.items() if not one.topic.internal or tp.topic in selection.topics}
    positions = []
    for (tp, group), offset in sorted(committed.items()):
        if (one := facts.get(tp)) is not None:
            end = one.high_watermark
            positions.append(GroupPosition(tp, group, offset, None if isinstance(end, Unknown) else end - offset))
    return Positions(observation.cluster_id, reader.settings.bootstrap, tuple(facts.values()), positions)
