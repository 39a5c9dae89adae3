"""The cluster's consumer groups, and what each means for trimming (RULES.md F1–F4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.groups import GroupKind, ListedGroup
from retention_cli.brokers.log_offsets import Found
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.model import Reason, TopicPartition
from retention_cli.policy.model import matches
from retention_cli.policy.settings import GroupRules
from retention_cli.progress import Progress, silent


@dataclass(slots=True)
class GroupSummary:
    """A group: its protocol and state, how it counts, and where it stands.

    ``counts`` says in a word or two what it means for floors. ``lag`` sums over its partitions, None where its
    offsets can't be read.
    """

    name: str
    kind: GroupKind
    protocol_type: str
    state: str
    counts: str
    topics: list[str] = field(default_factory=list)
    partitions: int = 0
    lag: int | None = 0


@dataclass(frozen=True, slots=True)
class GroupList:
    """All groups by name. ``incomplete`` says why the listing may lack some, None where it is whole."""

    cluster_id: str
    bootstrap: str
    groups: Sequence[GroupSummary]
    incomplete: Reason | None


def list_all(reader: ClusterReader, rules: GroupRules, progress: Progress = silent) -> GroupList:
    """Read every group, ignored ones too, with what it has committed.

    Raises:
        BrokerError: the cluster or one of its brokers did not answer.
    """
    metadata = reader.metadata()
    complete = reader.may_describe_cluster()
    listed = reader.list_groups(metadata.brokers)
    ends = _ends(reader, metadata)
    found = {group.name: _summary(group, rules) for group in listed}
    done = 0

    def on_commits(commits: GroupCommits | CommitsUnknown) -> None:
        nonlocal done
        done += 1
        progress("committed offsets", done, len(found))
        summary = found[commits.group]
        if isinstance(commits, CommitsUnknown):
            summary.lag = None
            summary.counts = f"unreadable, so it holds: {commits.text}"
            return
        summary.topics = sorted(topic for topic, rows in commits.topics.items() if rows)
        for topic, rows in commits.topics.items():
            summary.partitions += len(rows)
            for partition, offset, _epoch in rows:
                end = ends.get(TopicPartition(topic, partition))
                if end is not None and summary.lag is not None:
                    summary.lag += max(0, end - offset)
        if not summary.partitions and summary.counts == "counts" and summary.protocol_type not in ("consumer", "", "streams"):
            summary.counts = "listed only: it commits nothing"

    reader.read_commits([group.name for group in listed if group.kind in ("classic", "consumer", "streams")], on_commits)

    def on_topics(name: str, topics: object) -> None:
        if isinstance(topics, frozenset):
            found[name].topics = sorted(topics)
        found[name].lag = None

    if shares := [group.name for group in listed if group.kind == "share"]:
        reader.share_group_topics(shares, on_topics)
    hint = None if complete else Reason("F8", "our principal lacks DESCRIBE on the cluster: brokers leave groups out")
    return GroupList(metadata.cluster_id, reader.settings.bootstrap, [found[name] for name in sorted(found)], hint)


def _ends(reader: ClusterReader, metadata: ClusterMetadata) -> dict[TopicPartition, int]:
    leaders = {
        TopicPartition(name, number): partition
        for name, topic in metadata.topics.items()
        if not topic.internal
        for number, partition in topic.partitions.items()
    }
    answers = reader.list_offsets([dict.fromkeys(leaders, "latest")], leaders)[0]
    return {tp: answer.offset for tp, answer in answers.items() if isinstance(answer, Found)}


def _summary(group: ListedGroup, rules: GroupRules) -> GroupSummary:
    if matches(rules.ignore, group.name):
        counts = "ignored (groups.ignore)"
    elif group.kind == "share":
        counts = "holds its topics: share groups are not counted yet"
    elif group.kind == "unknown":
        counts = "holds everything: a type of group that this kretain does not know"
    elif group.name in rules.require:
        counts = "counts, required"
    elif matches(rules.latest, group.name):
        counts = "counts, starts at the end (groups.latest)"
    else:
        counts = "counts"
    return GroupSummary(group.name, group.kind, group.protocol_type, group.state, counts)
