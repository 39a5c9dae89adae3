"""What a plan says beside its decisions: of topics, of open transactions, of consumers that would lose records.

Brokers keep some topics forever, and a pattern brings them under a rule of age or size (G5); records of others are, or
may be, in object storage (KIP-405, KIP-1150). Who holds a row back by an open transaction (G1), and how many records
would be trimmed before each consumer has read them (G2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.log_offsets import OpenTransaction
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.consumers import floor_by
from retention_cli.core.model import INFINITE_MS, Code, Decision, Reason, TopicFacts
from retention_cli.core.units import some_of, timestamp
from retention_cli.decide.guards import untouchable
from retention_cli.decide.guards.log_end import OPEN
from retention_cli.observe.floors.fold import Commit
from retention_cli.policy.model import Policy
from retention_cli.policy.settings import Settings

_REMOTE: Final = "remote.storage.enable: a trim also deletes what is in remote storage before the new log start"


class OffDisks(NamedTuple):
    """The topics that rules reach and that are not on disks alone, by name.

    ``unconfirmed`` are tiered and no entry says ``tiered: trim``; ``confirmed`` are tiered, and one does.
    """

    unconfirmed: list[str]
    confirmed: list[str]
    diskless: list[str]

    def notes(self) -> list[Reason]:
        """Return what a plan says of them."""
        texts = (
            (
                "tiered",
                self.unconfirmed,
                f"{_REMOTE}. If you want that, set tiered: trim; policy check requires it",
            ),
            ("tiered", self.confirmed, _REMOTE),
            ("diskless", self.diskless, "diskless.enable: object storage holds the records; R6 and R7 ignore it"),
        )
        return [Reason(code, f"{some_of(names)}: {text}") for code, names, text in texts if names]


def off_disks(topics: Iterable[TopicFacts], settings: Mapping[str, Settings]) -> OffDisks:
    """Return the topics that R1 to R5 reach and that are tiered or diskless."""
    found = OffDisks([], [], [])
    for topic in topics:
        chosen = settings[topic.name]
        times = (chosen.consumed_after_ms, chosen.event_time_ms, chosen.min_timestamp_ms, chosen.forced_age_ms)
        asked = any(one is not None for one in (*times, chosen.max_bytes, chosen.max_topic_bytes))
        if not asked or untouchable(topic, chosen) is not None:
            continue
        if topic.tiered:
            (found.confirmed if chosen.trim_tiered else found.unconfirmed).append(topic.name)
        if topic.diskless:
            found.diskless.append(topic.name)
    return found


def reached_by_pattern(topics: Iterable[TopicFacts], settings: Mapping[str, Settings], policy: Policy) -> list[Reason]:
    """Return a note that names topics with ``retention.ms=-1`` that R4, R5 or R6 reaches through a pattern.

    Such a topic is often a database: schemas, a journal, a history of changes. It is not held.
    """
    by_disk = policy.disks.percent is not None
    names = []
    for topic in topics:
        chosen = settings[topic.name]
        limits = (chosen.forced_age_ms, chosen.max_bytes, chosen.max_topic_bytes)
        reached = (by_disk or limits != (None, None, None)) and not chosen.named_in_full
        if reached and topic.retention_ms == INFINITE_MS and untouchable(topic, chosen) is None:
            names.append(topic.name)
    if not names:
        return []
    text = (
        f"{some_of(names)}: retention.ms is -1 and only a pattern matches. Brokers keep these records "
        f"forever. To keep them, exclude the topic or set hold; otherwise name it in full"
    )
    return [Reason(Code.G5, text)]


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


_MOST: Final = 1_000
"""So many partitions are asked about; the others' rows say where the transaction begins."""


def with_owners(reader: ClusterReader, decisions: Sequence[Decision]) -> Sequence[Decision]:
    """Return the decisions, with the owners of open transactions in their reasons, where brokers name them."""
    stopped = [index for index, one in enumerate(decisions) if any(map(_is_open, one.reasons))][:_MOST]
    if not stopped:
        return decisions
    try:
        owners = reader.open_transactions([decisions[index].tp for index in stopped])
    except BrokerError:
        return decisions
    found = list(decisions)
    for index in stopped:
        if (owner := owners.get(found[index].tp)) is not None:
            reasons = tuple(
                Reason(one.code, f"{one.text}, {owner_text(owner)}") if _is_open(one) else one
                for one in found[index].reasons
            )
            found[index] = found[index]._replace(reasons=reasons)
    return found


def owner_text(owner: OpenTransaction) -> str:
    """Return who has a transaction open, and since when."""
    if owner.name is None:
        return f"of producer {owner.producer}, which last wrote there at {timestamp(owner.last_write_ms)}"
    since = "" if owner.since_ms is None else f", open since {timestamp(owner.since_ms)}"
    return f"of transactional.id {owner.name} (producer {owner.producer}){since}"


def _is_open(reason: Reason) -> bool:
    return reason.code == Code.G1 and OPEN in reason.text
