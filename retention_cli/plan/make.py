"""Observe and decide: from a connected cluster and a policy to a plan, or to fresh decisions for a trim."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.log_offsets import Found, NotFound
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.model import Decision, Maybe, Reason, TopicPartition, Unknown
from retention_cli.core.progress import Progress, silent
from retention_cli.decide.decision import decide
from retention_cli.decide.guards.limits import Amount, over_limits, total
from retention_cli.disks.decide import decide as decide_r6
from retention_cli.disks.rules import DiskRun
from retention_cli.disks.solve.outcome import DiskOutcome
from retention_cli.memory.lineage import EpochEnds
from retention_cli.memory.stores import Memories
from retention_cli.memory.topics import policy as policy_topic
from retention_cli.observe.cluster import observe
from retention_cli.observe.request import Observation, Request
from retention_cli.plan.value import Plan
from retention_cli.policy.disks import needs_disks
from retention_cli.policy.model import Policy, matches
from retention_cli.policy.near import nearest, told, unmatched
from retention_cli.policy.settings import Settings
from retention_cli.policy.shown import plain, shown

if TYPE_CHECKING:  # numpy comes with an inventory, and not before
    from retention_cli.disks.batch_sizes import BatchSizes
    from retention_cli.disks.solve.inventory_view import InventoryView

_LISTING_PATIENCE_S: Final = 2.0

PastDay = Callable[[str], Amount]
"""Gives what was trimmed in the last 24 hours of a cluster, by its id."""


class NothingMatchesError(Exception):
    """The policy, or a TOPIC, matches no topic of this cluster. ``problems`` are lines for people, one at least."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Selection:
    """A policy, and the TOPIC arguments that choose among the topics it manages."""

    policy: Policy
    topics: tuple[str, ...] = ()

    def settings_for(self, topic: str) -> Settings | None:
        """Return a topic's settings, None where it is not chosen or not managed."""
        if self.topics and not matches(self.topics, topic):
            return None
        return self.policy.settings_for(topic)


def with_live(reader: ClusterReader, selection: Selection) -> Selection:
    """Return the selection with what the policy topic says now."""
    return replace(selection, policy=policy_topic.with_live(reader, selection.policy))


def check_matches(selection: Selection, names: Collection[str]) -> list[Reason]:
    """Return a note for each entry that matches none of the cluster's topics.

    Raises:
        NothingMatchesError: no entry matches any topic, or a TOPIC argument matches none.
    """
    for pattern in selection.topics:
        if not any(matches((pattern,), name) for name in names):
            near = nearest([pattern], names)
            hint = f"; did you mean {near}?" if near is not None else " (or this user lacks DESCRIBE on it)"
            raise NothingMatchesError(f"no topic matches {shown(pattern)}{hint}")
    policy = selection.policy
    missing = unmatched(policy, names)
    if not any(selection.settings_for(name) is not None for name in names):
        if selection.topics:
            raise NothingMatchesError(f"{policy.source}: no entry matches {', '.join(map(plain, selection.topics))}")
        raise NothingMatchesError(*map(str, told(missing)))
    return [Reason("policy", str(problem)) for problem in missing]


def decide_all(
    reader: ClusterReader, observation: Observation, now_ms: int, disks: DiskRun | None
) -> tuple[Decision, ...]:
    """Decide every observed partition, in order; then, where rules speak of disks, measure them and decide R6."""
    facts, settings = observation.facts, observation.settings
    decisions = tuple(decide(one, settings[tp.topic], now_ms) for tp, one in facts.items())
    if disks is None:
        return decisions
    measured = disks.measure(reader, facts, settings, decisions, now_ms)
    return disks.with_bytes(decide_r6(facts, settings, decisions, measured))


def disk_run(policy: Policy, inventory: InventoryView | BatchSizes | None) -> DiskRun | None:
    """Return what reads the disks for a run, None where no rule speaks of them and there is no inventory."""
    return DiskRun.of(policy.disks, inventory) if inventory is not None or needs_disks(policy) else None


def make_plan(
    reader: ClusterReader,
    selection: Selection,
    now_ms: int,
    *,
    past_day: PastDay,
    memories: Memories | None = None,
    clock_ms: Callable[[], int] = SYSTEM.wall_ms,
    inventory: InventoryView | BatchSizes | None = None,
    progress: Progress = silent,
) -> Plan:
    """Read the cluster and decide. Nothing of it is changed; what was seen is remembered (``memories``).

    Raises:
        BrokerError: the cluster's metadata could not be read.
        PolicyError: R1 is enabled for a topic without a time.
        NothingMatchesError: there is nothing to decide about.
    """
    selection = with_live(reader, selection)
    policy = selection.policy
    disks = disk_run(policy, inventory)
    request = Request(
        selection.settings_for,
        policy.groups,
        now_ms,
        memory_for=memories,
        scan_all=True,
        clock_ms=clock_ms,
        disks=disks,
    )
    try:
        observation = observe(reader, request, progress)
    finally:  # also what an interrupted scan has read
        if memories is not None:
            memories.save(clock_ms())
    notes = [*policy.live.notes, *check_matches(selection, observation.topics_seen)]
    decisions = decide_all(reader, observation, now_ms, disks)
    if disks is not None:
        notes += disks.notes
    if observation.sizes_problem is not None:
        notes.append(Reason("size", f"sizes on disk are not known: {observation.sizes_problem}"))
    if memories is not None:
        notes += memories.notes
    past = past_day(observation.cluster_id)
    unread: dict[str, int] = {}
    try:
        unread = unread_by_group(reader, policy, decisions)
    except BrokerError as error:  # the decisions stand without it: their floors are unknown, and say so
        notes.append(Reason("G2", f"whose unread records would go can't be told: {error}"))
    return Plan(
        created_at_ms=now_ms,
        cluster_id=observation.cluster_id,
        bootstrap=reader.settings.bootstrap,
        policy_source=policy.source,
        policy_digest=policy.digest,
        flags=policy.one_off.flags(),
        topics=selection.topics,
        decisions=decisions,
        unconsumed_by=unread,
        refusals=over_limits(amount_of(decisions), past, managed_records(observation), policy.limits),
        notes=notes,
        memory_since_ms=None if memories is None else memories.since_ms(observation.cluster_id),
        memory="local" if memories is None else memories.kind,
        disks=() if disks is None else disks.outcomes,
        space=None if disks is None else disks.space(decisions),
    )


def amount_of(decisions: Sequence[Decision]) -> Amount:
    """Return what the decisions would trim."""
    return total(Amount(one.records, one.size_bytes) for one in decisions if one.action == "trim")


def managed_records(observation: Observation) -> int:
    """Return the sum of H − S over the managed partitions whose ends are known (G6)."""
    return sum(
        facts.high_watermark - facts.log_start
        for facts in observation.facts.values()
        if not isinstance(facts.high_watermark, Unknown) and not isinstance(facts.log_start, Unknown)
    )


def unread_by_group(reader: ClusterReader, policy: Policy, decisions: Sequence[Decision]) -> dict[str, int]:
    """Return, per group, how many records would go before it has read them (G2).

    Commits are read once more, and only where something unread would go: keeping them all until it is known
    what would go would cost memory for each of them.

    Raises:
        BrokerError: the groups could not be listed.
    """
    losing: dict[str, dict[int, Decision]] = {}
    for one in decisions:
        if one.action == "trim" and one.unconsumed:
            losing.setdefault(one.topic, {})[one.partition] = one
    if not losing:
        return {}
    unread: dict[str, int] = {}

    def on_commits(commits: GroupCommits | CommitsUnknown) -> None:
        if isinstance(commits, CommitsUnknown):
            return
        for topic, rows in losing.items():
            for partition, offset, _epoch in commits.topics.get(topic, ()):
                row = rows.get(partition)
                if row is not None and row.trim_to is not None and row.log_start is not None:
                    lost = row.trim_to - max(offset, row.log_start)
                    if lost > 0:
                        name = f"group:{commits.group}"
                        unread[name] = unread.get(name, 0) + lost

    listed = reader.list_groups(reader.brokers(), _LISTING_PATIENCE_S)
    groups = [group for group in listed if not matches(policy.groups.ignore, group.name)]
    reader.read_commits([group.name for group in groups if group.kind != "share"], on_commits)
    return dict(sorted(unread.items()))


@dataclass(frozen=True, slots=True)
class Recheck:
    """Fresh decisions for some partitions, and what sending to them needs.

    ``began`` is when reading began (of the reader's clock): no fact is older. ``unreadable`` are partitions whose
    leader is missing or did not answer. ``managed_records`` counts what was observed. ``archives`` gives the URL of
    each topic that the policy wants archived before it is trimmed. ``disks`` are what R6 comes to, where a rule
    speaks of disks.
    """

    began: float
    decisions: Mapping[TopicPartition, Decision]
    leaders: Mapping[TopicPartition, PartitionMetadata]
    unreadable: Mapping[TopicPartition, Reason]
    managed_records: int
    archives: Mapping[str, str] = field(default_factory=dict)
    disks: Sequence[DiskOutcome] = ()
    epoch_ends: EpochEnds = field(default_factory=dict)

    def epoch_end(self, tp: TopicPartition, epoch: int | None) -> Maybe[int | None]:
        """Return where a leader epoch ends; None where the leader does not know it."""
        match None if epoch is None else self.epoch_ends.get((tp, epoch)):
            case Found(offset):
                return offset
            case RequestFailedError() as error:
                return Unknown.because("M4", f"where leader epoch {epoch} ends could not be asked: {error}")
            case NotFound():
                return None
        return Unknown.because("M4", f"where leader epoch {epoch} ends was not asked")


def recheck(
    reader: ClusterReader,
    selection: Selection,
    now_ms: int,
    only: Collection[TopicPartition] | None,
    *,
    epochs: Mapping[TopicPartition, int],
    patience_s: float,
    memories: Memories | None = None,
    clock: Unknown | None = None,
    inventory: InventoryView | BatchSizes | None = None,
    progress: Progress = silent,
) -> Recheck:
    """Observe and decide afresh, for these partitions alone or for all that are managed (None).

    Where rules speak of disks, all are observed: R6 and a topic's size are decided over all of them.

    ``clock`` says why our clock can't be trusted, where it was compared with the brokers' (G8). ``epochs`` are
    the leader epochs in which the partitions were planned: where they ended is asked (M2).

    Raises:
        BrokerError: the cluster's metadata could not be read.
    """
    selection = with_live(reader, selection)
    disks = disk_run(selection.policy, inventory) if needs_disks(selection.policy) else None
    request = Request(
        selection.settings_for,
        selection.policy.groups,
        now_ms,
        only if disks is None else None,
        patience_s=patience_s,
        memory_for=memories,
        clock_ms=reader.clock.wall_ms,
        clock=clock,
        disks=disks,
        epochs=epochs,
    )
    observation = observe(reader, request, progress)
    unreadable = {}
    for tp, facts in observation.facts.items():
        if not facts.has_leader:
            unreadable[tp] = Reason("leader", "the partition has no leader")
        elif isinstance(facts.log_start, Unknown) and facts.log_start.reasons[0].code == "offsets":
            unreadable[tp] = facts.log_start.reasons[0]
    return Recheck(
        observation.began,
        {one.tp: one for one in decide_all(reader, observation, now_ms, disks)},
        observation.leaders,
        unreadable,
        managed_records(observation),
        {name: one.archive for name, one in observation.settings.items() if one.archive is not None},
        () if disks is None else disks.outcomes,
        observation.epoch_ends,
    )
