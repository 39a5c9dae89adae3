"""The cluster's consumer groups, what each means for trimming (F1–F4), and how many bytes each holds back."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits, OnCommits
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.groups import GroupKind, ListedGroup
from retention_cli.brokers.log_offsets import Found
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.consumers import group_id, group_key, is_outside, key_of, plain_name
from retention_cli.core.model import Code, Reason, TopicPartition
from retention_cli.core.progress import Progress, adding
from retention_cli.core.units import format_time
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.partition import seen_past
from retention_cli.memory.positions import Commits, Rows
from retention_cli.observe.floors.outside import checked, describe, owns, read_sources
from retention_cli.observe.floors.sources.interface import Reach
from retention_cli.policy.model import matches
from retention_cli.policy.settings import GroupRules, SourceKind
from retention_cli.state.memories import Memories


@dataclass(slots=True)
class GroupSummary:
    """A group: its protocol and state, how it counts, and its position.

    ``counts`` says in a word or two what it means for floors. ``lag`` is the sum over its partitions, None if its
    offsets can't be read; ``lag_bytes`` is that lag's share of the leaders' bytes, of one replica, as if records were
    equally large. ``alone_bytes`` of these no other consumer has yet to read: the floor would pass them if it caught
    up. Both are None if unknown. ``kind`` is "gone" if only the ledger knows it (F6); for a consumer outside Kafka's
    groups, it is its source's (F7). ``unread_since_ms`` is when the ledger first saw the oldest record that it has yet
    to read (Unix ms): it waits since then at least. None if nothing is unread, or never seen.
    ``unmoved_since_ms`` is when the ledger first saw all its current positions (Unix ms): it hasn't moved since then at
    least. None if that was never seen, or it has moved since.
    """

    name: str
    kind: GroupKind | Literal["gone"] | SourceKind
    protocol_type: str
    state: str
    counts: str
    topics: list[str] = field(default_factory=list)
    partitions: int = 0
    lag: int | None = 0
    lag_bytes: int | None = None
    alone_bytes: int | None = None
    unread_since_ms: int | None = None
    unmoved_since_ms: int | None = None

    @property
    def sets_floors(self) -> bool:
        """Whether its positions count for floors."""
        return self.counts.startswith("counts")


@dataclass(frozen=True, slots=True)
class GroupList:
    """All groups by name. ``incomplete`` says why the listing may lack some, None if it is complete.

    ``endless`` says why the ends of some partitions, and so the lags there, are unknown; None if all are known.
    """

    cluster_id: str
    bootstrap: str
    groups: Sequence[GroupSummary]
    incomplete: Reason | None
    endless: str | None = None


def list_all(
    reader: ClusterReader,
    rules: GroupRules,
    patterns: Sequence[str],
    *,
    memories: Memories,
    now_ms: int,
    progress: Progress,
) -> GroupList:
    """Read the groups whose names match, ignored ones too, with their commits; then those that are gone.

    Raises:
        BrokerError: the cluster or one of its brokers did not answer.
    """
    metadata = reader.metadata()
    complete = reader.may_describe_cluster(metadata.brokers)
    all_listed = reader.list_groups(metadata.brokers)
    listed = [group for group in all_listed if matches(patterns, group.name)]
    leaders = metadata.partitions_of(name for name, topic in metadata.topics.items() if not topic.internal)
    answers = reader.list_offsets([dict.fromkeys(leaders, "earliest"), dict.fromkeys(leaders, "latest")], leaders)
    starts, ends = ({tp: one.offset for tp, one in of.items() if isinstance(one, Found)} for of in answers)
    memory = memories(metadata.cluster_id)
    memory.begin(metadata.topic_ids)
    stands = Standings(starts, ends, reader.sizes_soon(leaders).result()[0], memory, metadata.topic_ids, now_ms)
    found = _listed(listed, rules, reader, stands, leaders, progress)
    there = [group_key(one.kind, one.name) for one in all_listed]
    lost = "gone" if complete else "not seen"  # or it exists, but this user may not see it
    found |= {
        key: _gone(key, seen_ms, rows, stands, rules, lost)
        for key, seen_ms, rows in memory.gone_groups(there, now_ms - rules.remember_ms)
        if matches(patterns, plain_name(key)) and group_id(key) is not None
    }
    found |= {key: one for key, one in _outside(rules, metadata, reader, stands, now_ms) if matches(patterns, one.name)}
    stands.lay_into(found, everyone=complete and "*" in patterns)
    return GroupList(
        metadata.cluster_id,
        reader.settings.bootstrap,
        sorted(found.values(), key=lambda one: (one.name, one.kind)),
        None if complete else Reason(Code.F8, "this user lacks DESCRIBE on the cluster: brokers leave groups out"),
        next((str(one) for one in answers[1].values() if isinstance(one, RequestFailedError)), None),
    )


@dataclass(slots=True)
class Standings:
    """Adds consumers' positions to their summaries, and keeps each partition's two lowest of those that set floors.

    Args:
        starts: S, where it is known.
        ends: H.
        sizes: the leader replicas' bytes, assumed to be spread evenly over the offsets.
        memory: has seen H at earlier times (M1).
        topic_ids: the topics' ids now.
        now_ms: our wall clock (Unix ms).
    """

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    sizes: Mapping[TopicPartition, int]
    memory: Ledger = field(default_factory=lambda: Ledger(None))
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    now_ms: int = 0
    _lowest: dict[TopicPartition, list[tuple[int, str]]] = field(default_factory=dict)
    _behind: dict[str, int | None] = field(default_factory=dict)

    def add(
        self, key: str, summary: GroupSummary, rows: Commits, *, known: Container[TopicPartition] | None = None
    ) -> None:
        """Add them; the lag is unknown where a partition's end is. With ``known``, other partitions have no lag."""
        if rows:
            since_ms = self.memory.unmoved_since(key, None if summary.kind == "gone" else rows)
            if since_ms is not None and 0 <= since_ms <= self.now_ms:  # else it was seen by a clock that is ahead
                summary.unmoved_since_ms = since_ms
        for topic, commits in rows.items():
            summary.partitions += len(commits)
            for partition, offset, _epoch in commits:
                tp = TopicPartition(topic, partition)
                end = self.ends.get(tp)
                if end is not None and summary.lag is not None:
                    summary.lag += max(0, end - max(offset, self.starts.get(tp, offset)))  # what is left to read
                elif known is None or tp in known:
                    summary.lag = None
                if summary.sets_floors:
                    self.hold(key, tp, offset)
                if end is not None and end > offset and (seen_ms := self._seen_ms(tp, offset)) is not None:
                    summary.unread_since_ms = min(seen_ms, summary.unread_since_ms or seen_ms)

    def hold(self, group: str, tp: TopicPartition, offset: int) -> None:
        """Add a group's position on a partition. Call it once per pair."""
        start, end = self.starts.get(tp), self.ends.get(tp)
        if start is None or end is None or tp not in self.sizes:
            self._behind[group] = None
            return
        offset = min(max(offset, start), end)
        so_far = self._behind.setdefault(group, 0)
        self._behind[group] = None if so_far is None else so_far + self._bytes_between(tp, offset, end)
        self._lowest[tp] = sorted([*self._lowest.get(tp, ()), (offset, group)])[:2]

    def _bytes_between(self, tp: TopicPartition, low: int, high: int) -> int:
        records = self.ends[tp] - self.starts[tp]
        return 0 if records <= 0 else self.sizes[tp] * (high - low) // records

    def lay_into(self, groups: Mapping[str, GroupSummary], *, everyone: bool) -> None:
        """Set each group's bytes.

        Args:
            groups: by name.
            everyone: whether all groups were added; otherwise what one of them holds alone is unknown.
        """
        alone = dict.fromkeys(self._behind, 0)
        for tp, [(offset, group), *more] in self._lowest.items():
            alone[group] += self._bytes_between(tp, offset, more[0][0] if more else self.ends[tp])
        everyone = everyone and all(one.lag is not None for one in groups.values() if one.sets_floors)
        for name, one in groups.items():
            if one.sets_floors and one.lag is not None:
                one.lag_bytes = self._behind.get(name, 0)
                if everyone and one.lag_bytes is not None:
                    one.alone_bytes = alone.get(name, 0)

    def _seen_ms(self, tp: TopicPartition, offset: int) -> int | None:
        """Return when H was first seen past an offset (Unix ms): the record existed by then."""
        if (topic_id := self.topic_ids.get(tp.topic)) is None:
            return None
        return seen_past(self.memory.partition(tp.topic, topic_id, tp.partition).packed, offset)


def read_positions(reader: ClusterReader, groups: Sequence[ListedGroup], on_group: OnCommits) -> None:
    """Call ``on_group`` with the commits of each group that has any, and each share group's start offsets."""
    reader.read_commits([one.name for one in groups if one.kind in ("classic", "consumer", "streams")], on_group)
    if shares := [one.name for one in groups if one.kind == "share"]:
        reader.read_share_offsets(shares, on_group)


def _listed(
    groups: Sequence[ListedGroup],
    rules: GroupRules,
    reader: ClusterReader,
    stands: Standings,
    leaders: Container[TopicPartition],
    progress: Progress,
) -> dict[str, GroupSummary]:
    # A listed group's key is never that of a consumer outside Kafka's groups, with any id.
    keys = {
        one.name: key_of("group", one.name) if is_outside(one.name) else group_key(one.kind, one.name) for one in groups
    }
    found = {keys[one.name]: _summary(one, rules) for one in groups}
    add = adding(progress, "committed offsets", len(found))

    def on_commits(commits: GroupCommits | CommitsUnknown) -> None:
        add(1)
        summary = found[keys[commits.group]]
        if isinstance(commits, CommitsUnknown):
            summary.lag = None
            summary.counts = f"unreadable, so it holds: {commits.text}"
            return
        summary.topics = sorted({*commits.no_position, *(topic for topic, rows in commits.topics.items() if rows)})
        stands.add(keys[commits.group], summary, commits.topics, known=leaders)
        if summary.counts == "counts" and commits.no_position:
            summary.counts = "counts; holds partitions where it has no position"
        elif (
            summary.counts == "counts"
            and not summary.partitions
            and summary.protocol_type not in ("consumer", "", "streams")
        ):
            summary.counts = "listed only: it commits no offsets"

    read_positions(reader, groups, on_commits)
    return found


def _outside(
    rules: GroupRules,
    metadata: ClusterMetadata,
    reader: ClusterReader,
    stands: Standings,
    now_ms: int,
) -> Iterator[tuple[str, GroupSummary]]:
    """Yield the consumers outside Kafka's groups (F7) by key, the sources that can't be read, and what is gone (F6)."""
    consumers, failed = checked(rules.sources, read_sources(rules.sources, Reach(reader, metadata)), metadata.topics)
    for source, text in failed.items():
        counts = f"unreadable, so it holds: {text}"
        yield key_of(source.kind, source.name), GroupSummary(describe(source), source.kind, "", "", counts, lag=None)
    for key, one in consumers.items():
        kind = next(source.kind for source in rules.sources if owns(source, key))
        state = "" if one.reads == frozenset() else "live"
        found = GroupSummary(plain_name(key), kind, "", state, "counts", sorted({*one.rows, *(one.reads or ())}))
        stands.add(key, found, one.rows)
        for topic, text in one.unreadable.items():
            found.counts, found.lag = f"holds {topic}, where it is unreadable: {text}", None
        yield key, found
    if sound := [source for source in rules.sources if source not in failed]:
        for key, seen_ms, rows in stands.memory.gone_groups(consumers, now_ms - rules.remember_ms, outside=True):
            if any(owns(source, key) for source in sound):
                yield key, _gone(key, seen_ms, rows, stands, rules)


def _gone(key: str, seen_ms: int, rows: Rows, stands: Standings, rules: GroupRules, lost: str = "gone") -> GroupSummary:
    """Return a consumer that only the ledger knows: it counts at its last commits (F6)."""
    counts = f"counts until {format_time((seen_ms + rules.remember_ms) // 1000 * 1000)}, or kretain groups forget"
    if (group := group_id(key)) is not None and matches(rules.ignore, group):
        counts = "ignored (groups.ignore)"
    elif not rows:
        counts = "holds nothing: its topics no longer exist"
    found = GroupSummary(plain_name(key), "gone", "", f"{lost} since {format_time(seen_ms // 1000 * 1000)}", counts)
    found.topics = sorted(rows)
    stands.add(key, found, rows)
    return found


def _summary(group: ListedGroup, rules: GroupRules) -> GroupSummary:
    first_that_applies = (
        (matches(rules.ignore, group.name), "ignored (groups.ignore)"),
        (group.kind == "share" and rules.share == "ignore", "ignored (groups.share)"),
        (group.kind == "unknown", "holds everything: this kretain does not know its type"),
        (group.name in rules.require, "counts, required"),
        (matches(rules.latest, group.name), "counts, starts at the end (groups.latest)"),
    )
    counts = next((text for applies, text in first_that_applies if applies), "counts")
    return GroupSummary(group.name, group.kind, group.protocol_type, group.state, counts)
