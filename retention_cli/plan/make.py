"""Observe a cluster and decide: make a plan, or fresh decisions for a trim, from a policy.

And what a plan says besides its decisions. Brokers keep some topics forever, and a pattern brings them under a rule of
age or size (G5); records of others are, or may be, in object storage (KIP-405, KIP-1150). Who holds a row back by an
open transaction (G1), and how many records would be trimmed before each consumer has read them (G2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.log_offsets import OpenTransaction
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.commands import kretain
from retention_cli.core.consumers import floor_by, is_outside, plain_name
from retention_cli.core.garbage import collection_paused
from retention_cli.core.grouping import by_key
from retention_cli.core.model import INFINITE_MS, Code, Decision, Reason, TopicFacts, TopicPartition, Unknown
from retention_cli.core.printable import plain
from retention_cli.core.progress import Progress, silent
from retention_cli.core.units import some_of, timestamp
from retention_cli.decide.decision import decide_each
from retention_cli.decide.guards import untouchable
from retention_cli.decide.guards.limits import Amount, over_limits
from retention_cli.decide.guards.log_end import OPEN
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.cluster import observe
from retention_cli.observe.floors.fold import Commit
from retention_cli.observe.floors.kafka_groups import misnamed_groups
from retention_cli.observe.floors.outside import Read, owns
from retention_cli.observe.request import Observation, Request
from retention_cli.plan.approval import approval_notes
from retention_cli.plan.value import Plan, Totals
from retention_cli.policy.model import Policy
from retention_cli.policy.selection import Selection, check_matches
from retention_cli.policy.settings import Settings
from retention_cli.state import own_topics
from retention_cli.state.memories import Memories

if TYPE_CHECKING:  # only disk rules need these, and some of them import numpy
    from retention_cli.disks.disk import Disk
    from retention_cli.disks.inventory_view import InventoryView
    from retention_cli.disks.run import DiskRun


PastDay = Callable[[str], Amount]
"""Returns the amount trimmed in the last 24 hours in the cluster with this id."""
_NAMED: Final = 3
_NO_READER: Final = (
    "can't tell which groups would lose unread records: none has committed on these partitions, or some could not be "
    "read; kretain offsets --groups says why"
)


class PlanInputs(NamedTuple):
    """What a plan was made of: what was read and decided, the disks, and the Kafka groups that exist.

    ``disks`` are those of all brokers, if the policy has disk rules; a broker that does not answer is one of them.
    ``disk_parts`` has R6's part in decisions.
    """

    observation: Observation
    decisions: Sequence[Decision]
    disks: Sequence[Disk]
    groups: Collection[str]
    disk_parts: Mapping[TopicPartition, tuple[tuple[int, Reason] | None, Unknown | None]] = {}


def with_live(reader: ClusterReader, selection: Selection) -> Selection:
    """Return the selection with the policy topic's current settings applied."""
    return replace(selection, policy=own_topics.with_live(reader, selection.policy))


def decide_all(
    reader: ClusterReader,
    observation: Observation,
    now_ms: int,
    disks: DiskRun | None,
) -> tuple[Decision, ...]:
    """Decide every observed partition, in order; then R6 over all of them, if there are disk rules."""
    facts, settings = observation.facts, observation.settings
    decisions = tuple(decide_each(facts.values(), settings, now_ms))
    return decisions if disks is None else disks.decide(reader, facts, settings, decisions, now_ms)


def disk_run(policy: Policy, inventory: InventoryView | None) -> DiskRun | None:
    """Return the disk rules' run, None if there are neither disk rules nor an inventory."""
    if inventory is None and not policy.needs_disks:
        return None
    from retention_cli.disks.run import DiskRun

    return DiskRun(policy.disks, inventory)


@dataclass(frozen=True, slots=True)
class PlanJob:
    """What to plan.

    Args:
        reader: the cluster, opened.
        selection: the policy and the chosen topics.
        now_ms: the time from which all cutoffs are calculated (Unix ms).
        past_day: returns what was trimmed there in the last 24 hours (G6).
        memories: the ledgers, which remember what is seen.
        clock_ms: returns this machine's time (Unix ms), for what is remembered.
        progress: called with what is being read.
        observed: called with what the plan was made of, before all but the decisions is dropped.
        with_seen: whether that includes what groups have committed, for evidence.
    """

    reader: ClusterReader
    selection: Selection
    now_ms: int
    past_day: PastDay
    memories: Memories
    clock_ms: Callable[[], int] = SYSTEM.wall_ms
    progress: Progress = silent
    observed: Callable[[PlanInputs], None] | None = None
    with_seen: bool = False


Planner = Callable[[PlanJob], Plan]
"""Makes a plan, in this process or over Spark. The cluster is not changed.

Raises:
    BrokerError: the cluster's metadata could not be read.
    PolicyError: R1 is enabled for a topic without a time.
    NothingMatchesError: there is no topic to decide about.
"""


@dataclass(frozen=True, slots=True)
class LocalPlanner:
    """Makes plans in this process.

    Args:
        inventory: the inventory of segments; None if none was given.
        outside: what the policy's ``floors`` gave, if they were read elsewhere (F7).
    """

    inventory: InventoryView | None = None
    outside: Sequence[Read] | None = None

    @collection_paused()
    def plan(self, job: PlanJob) -> Plan:
        """Observe the cluster, decide, and return the plan; see :data:`Planner`."""
        reader, memories, now_ms, inventory = job.reader, job.memories, job.now_ms, self.inventory
        selection = with_live(reader, job.selection)
        policy = selection.policy
        disks = disk_run(selection.decided_alone.policy, inventory)
        request = Request(
            selection.settings_for,
            policy.groups,
            now_ms,
            memories,
            job.clock_ms,
            disks=disks,
            outside=self.outside,
            with_seen=job.with_seen,
        )
        seen: dict[str, GroupCommits | None] = {}

        def listener(commits: GroupCommits) -> None:
            seen[commits.group] = commits if is_outside(commits.group) else None

        try:
            observation = observe(reader, request, job.progress, listener)
        finally:  # an interrupted scan's reads are kept, too
            memories.save(job.clock_ms())
        notes = [*policy.live.notes, *check_matches(selection, observation.topics_seen)]
        firsts = (observation.facts.get(TopicPartition(name, 0)) for name in observation.settings)
        topics = [one.topic for one in firsts if one is not None]
        notes += [
            *reached_by_pattern(topics, observation.settings, policy),
            *off_disks(topics, observation.settings).notes(),
        ]
        if inventory is not None:
            notes += [
                Reason(Code.R6, f"{one}. Without it, the contents of that broker's disks are unknown")
                for one in inventory.inventory.unread
            ]
        decisions = with_owners(reader, decide_all(reader, observation, now_ms, disks))
        notes += [*(() if disks is None else disks.notes), *unsized(observation.sizes_problem)]
        if job.observed is not None:
            where, parts = ((), {}) if disks is None else (disks.disks, disks.parts)
            job.observed(PlanInputs(observation, decisions, where, seen.keys(), parts))
        return plan_of(
            replace(job, selection=selection),
            observation.cluster_id,
            decisions,
            Totals.of(decisions),
            managed_records(observation),
            unread_by_group(
                reader, seen, observation.gone, losing(one for one in decisions if selection.asks_for(one.tp))
            ),
            notes,
            disks,
        )


def unsized(problem: str | None) -> list[Reason]:
    """Return a note on why some sizes are missing; None: none is."""
    return [] if problem is None else [Reason("size", f"not all sizes on disk are known: {problem}")]


def plan_of(
    job: PlanJob,
    cluster_id: str,
    decisions: Sequence[Decision],
    totals: Totals,
    managed: int,
    unread: Mapping[str, int] | BrokerError,
    notes: Sequence[Reason],
    disks: DiskRun | None = None,
) -> Plan:
    """Return the plan with these decisions, from any engine.

    Args:
        job: what was planned. Its selection has the live settings.
        cluster_id: the cluster's id.
        decisions: the decisions in order.
        totals: the totals over all decisions.
        managed: the sum of H − S over the managed partitions (G6).
        unread: how many records of the partitions asked for would be trimmed before each group has read them (G2), or
            why that is unknown.
        notes: warnings about the selection, the disks and the sizes.
        disks: the disks after R6 was decided; None if no disk was read.
    """
    reader, memories, now_ms, selection = job.reader, job.memories, job.now_ms, job.selection
    policy = selection.policy
    memory = memories(cluster_id)
    warnings = [
        *notes,
        *memories.notes,
        *no_longer_named(memory, selection, now_ms),
        *(Reason("policy", text) for text in misnamed_groups(policy, reader, memory, now_ms)),
    ]
    if isinstance(unread, BrokerError):  # the decisions don't need it: the note reports what is missing
        warnings.append(Reason(Code.G2, f"kretain can't tell whose unread records would be trimmed: {unread}"))
        unread = {}
    else:
        chosen = (one.unconsumed for one in decisions if selection.asks_for(one.tp))
        unconsumed = sum(chosen) if selection.partitions else totals.unconsumed
        warnings += [Reason(Code.G2, _NO_READER)] if unconsumed and not unread else []
    warnings += approval_notes(totals, policy.approve)
    return Plan(
        created_at_ms=now_ms,
        cluster_id=cluster_id,
        bootstrap=reader.settings.bootstrap,
        policy_source=policy.source,
        policy_digest=policy.digest,
        flags=policy.one_off.flags(),
        topics=selection.given,
        decisions=decisions,
        unconsumed_by=unread,
        refusals=over_limits(
            Amount(totals.records, totals.size_bytes), job.past_day(cluster_id), managed, policy.limits
        ),
        notes=warnings,
        memory_since_ms=memory.since_ms,
        memory=memories.kind,
        disks=() if disks is None else disks.outcomes,
        space=None if disks is None else disks.space,
        counted=totals,
    )


def no_longer_named(memory: Ledger, selection: Selection, now_ms: int) -> list[Reason]:
    """Return a note on consumers outside Kafka's groups that are remembered and that the policy has no source for (F7).

    They count for nothing. Those with no position on a managed topic are left out.
    """
    rules = selection.policy.groups
    zookeeper = any(one.kind == "zookeeper" for one in rules.sources)  # it names all its groups, counting or not
    found = sorted(
        plain_name(key)
        for key, _seen_ms, rows in memory.gone_groups((), now_ms - rules.remember_ms, outside=True)
        if not any(owns(source, key) for source in rules.sources)
        and not (zookeeper and plain_name(key).startswith("zookeeper:"))
        and any(selection.settings_for(topic) is not None for topic in rows)
    )
    if not found:
        return []
    forget = kretain("groups", "forget", names=tuple(found[:_NAMED]))
    what = "it, so it counts" if len(found) == 1 else "them, so they count"
    return [
        Reason(
            Code.F7,
            f"kretain remembers {some_of([*map(plain, found)], _NAMED)}, but no entry of floors names {what} for "
            f"nothing; if that is intended: {forget}",
        )
    ]


def managed_records(observation: Observation) -> int:
    """Return the sum of H − S over the managed partitions whose ends are known (G6)."""
    return sum(
        facts.high_watermark - facts.log_start
        for facts in observation.facts.values()
        if not isinstance(facts.high_watermark, Unknown) and not isinstance(facts.log_start, Unknown)
    )


_REMOTE: Final = "remote storage: a trim also deletes what is in remote storage before the new log start"


class OffDisks(NamedTuple):
    """The topics that rules reach and that are not on disks alone, by name.

    ``unconfirmed`` are tiered and no entry says ``tiered: trim``; ``confirmed`` are tiered, and one does.
    """

    unconfirmed: list[str]
    confirmed: list[str]
    diskless: list[str]

    def notes(self) -> list[Reason]:
        """Return the plan's notes on them."""
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
        bounds = (
            chosen.consumed_after_ms,
            chosen.event_time_ms,
            chosen.min_timestamp_ms,
            chosen.forced_age_ms,
            chosen.max_bytes,
            chosen.max_topic_bytes,
        )
        if all(one is None for one in bounds) or untouchable(topic, chosen) is not None:
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
    own, noun, them = ("the topic's", "topic", "it") if len(names) == 1 else ("the topics'", "topics", "them")
    return [
        Reason(
            Code.G5,
            f"{some_of(names)}: {own} own retention.ms is -1 (kept forever), and only a pattern in the policy matches "
            f"{them}. To keep the records, exclude the {noun} or set hold; to trim them, name the {noun} in full",
        )
    ]


LosingRows = Mapping[str, Mapping[int, tuple[int, int]]]
"""What would be trimmed unread: log start and target by topic and partition."""
GoneCommits = Sequence[tuple[str, Mapping[str, Sequence[Commit]]]]
"""The positions of consumers, by key, whose commits are gone and still count (F6)."""


def losing(decisions: Iterable[Decision]) -> dict[str, dict[int, tuple[int, int]]]:
    """Return what would be trimmed unread (:data:`LosingRows`)."""
    rows = by_key(
        (one.topic, (one.partition, (one.log_start, one.trim_to)))
        for one in decisions
        if one.action == "trim" and one.unconsumed and one.trim_to is not None and one.log_start is not None
    )
    return {topic: dict(some) for topic, some in rows.items()}


def lost_of(rows: LosingRows, commits: Mapping[str, Sequence[Commit]]) -> int:
    """Return how many records a consumer with these positions would lose."""
    return sum(
        max(0, row[1] - max(offset, row[0]))
        for topic, there in rows.items()
        for partition, offset, _epoch in commits.get(topic, ())
        if (row := there.get(partition)) is not None
    )


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
"""At most this many partitions are asked about; the others' rows say where the transaction begins."""


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
            found[index] = found[index]._replace(
                reasons=tuple(
                    Reason(one.code, f"{one.text}, {owner_text(owner)}") if _is_open(one) else one
                    for one in found[index].reasons
                )
            )
    return found


def owner_text(owner: OpenTransaction) -> str:
    """Return who has a transaction open, and since when."""
    if owner.name is None:
        return f"of producer {owner.producer}, which last wrote there at {timestamp(owner.last_write_ms)}"
    since = "" if owner.since_ms is None else f", open since {timestamp(owner.since_ms)}"
    return f"of transactional.id {owner.name} (producer {owner.producer}){since}"


def _is_open(reason: Reason) -> bool:
    return reason.code == Code.G1 and OPEN in reason.text
