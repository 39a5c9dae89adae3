"""Observe a cluster and decide: make a plan, or fresh decisions for a trim, from a policy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from retention_cli.brokers.commits import GroupCommits
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.commands import kretain
from retention_cli.core.consumers import is_outside, plain_name
from retention_cli.core.garbage import collection_paused
from retention_cli.core.model import Code, Decision, Reason, TopicPartition, Unknown
from retention_cli.core.printable import plain
from retention_cli.core.progress import Progress, silent
from retention_cli.core.units import some_of
from retention_cli.decide.decision import decide
from retention_cli.decide.guards.limits import Amount, over_limits
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.cluster import observe
from retention_cli.observe.floors.kafka_groups import misnamed_groups
from retention_cli.observe.floors.outside import Read, owns
from retention_cli.observe.request import FullRead, Observation
from retention_cli.plan.approval import approval_notes
from retention_cli.plan.notes import losing, off_disks, reached_by_pattern, unread_by_group, with_owners
from retention_cli.plan.value import Plan, Totals
from retention_cli.policy.model import Policy
from retention_cli.policy.selection import Selection, check_matches
from retention_cli.state import policy_topic
from retention_cli.state.memories import Memories

if TYPE_CHECKING:  # only rules that speak of disks need these, and some of them import numpy
    from retention_cli.disks.disk import Disk
    from retention_cli.disks.inventory_view import InventoryView
    from retention_cli.disks.run import DiskRun

PastDay = Callable[[str], Amount]
"""Returns the amount trimmed in the last 24 hours in the cluster with this id."""
_NAMED: Final = 3
_NO_READER: Final = (
    "can't tell which groups would lose unread records: none has committed on these partitions, or some could not be "
    "read; kretain offsets --groups gives the reason"
)


class PlanInputs(NamedTuple):
    """What a plan was made of: what was read and decided, the disks, and the groups of Kafka's that exist.

    ``disks`` are those of all brokers, if the policy speaks of disks; a broker that does not answer is one of them.
    ``disk_parts`` has R6's part in decisions.
    """

    observation: Observation
    decisions: Sequence[Decision]
    disks: Sequence[Disk]
    groups: Collection[str]
    disk_parts: Mapping[TopicPartition, tuple[tuple[int, Reason] | None, Unknown | None]] = {}


def with_live(reader: ClusterReader, selection: Selection) -> Selection:
    """Return the selection with the policy topic's current settings applied."""
    return replace(selection, policy=policy_topic.with_live(reader, selection.policy))


def decide_all(
    reader: ClusterReader,
    observation: Observation,
    now_ms: int,
    disks: DiskRun | None,
) -> tuple[Decision, ...]:
    """Decide every observed partition, in order; then R6 over all of them, if there are disk rules."""
    facts, settings = observation.facts, observation.settings
    decisions = tuple(decide(one, settings[tp.topic], now_ms) for tp, one in facts.items())
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
        observed: called with what the plan was made of, before only the decisions are kept.
        with_seen: what that is has what groups have committed, too, for evidence.
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


class Planner(Protocol):
    """Makes plans: in this process, or over Spark."""

    def plan(self, job: PlanJob) -> Plan:
        """Return the plan. The cluster is not changed.

        Raises:
            BrokerError: the cluster's metadata could not be read.
            PolicyError: R1 is enabled for a topic without a time.
            NothingMatchesError: there is no topic to decide about.
        """
        ...


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
        """Observe the cluster, decide, and return the plan; see :class:`Planner`."""
        reader, memories, now_ms, inventory = job.reader, job.memories, job.now_ms, self.inventory
        selection = with_live(reader, job.selection)
        policy = selection.policy
        disks = disk_run(selection.decided_alone.policy, inventory)
        request = FullRead(
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
        notes += reached_by_pattern(topics, observation.settings, policy)
        notes += off_disks(topics, observation.settings).notes()
        if inventory is not None:
            unknown = "Without it, what lies on that broker's disks is unknown"
            notes += [Reason(Code.R6, f"{one}. {unknown}") for one in inventory.inventory.unread]
        decisions = with_owners(reader, decide_all(reader, observation, now_ms, disks))
        if job.observed is not None:
            where = () if disks is None else disks.disks
            parts = {} if disks is None else disks.parts
            job.observed(PlanInputs(observation, decisions, where, seen.keys(), parts))
        trimmed = losing(one for one in decisions if selection.asks_for(one.tp))
        unread = unread_by_group(reader, seen, observation.gone, trimmed)
        decided = Decided(
            observation.cluster_id,
            decisions,
            Totals.of(decisions),
            managed_records(observation),
            unread,
            notes,
            observation.sizes_problem,
            disks,
        )
        return plan_of(replace(job, selection=selection), decided)


@dataclass(frozen=True, slots=True)
class Decided:
    """What any engine has found and decided.

    Args:
        cluster_id: the cluster's id.
        decisions: the decisions in order.
        totals: the totals over all decisions.
        managed: the sum of H − S over the managed partitions (G6).
        unread: how many records of the partitions asked for would be trimmed before each group has read them (G2), or
            why that is unknown.
        notes: warnings about the selection.
        sizes_problem: why some sizes are missing, None if none is.
        disks: the disks after R6 was decided; None if no disk was read.
    """

    cluster_id: str
    decisions: Sequence[Decision]
    totals: Totals
    managed: int
    unread: Mapping[str, int] | BrokerError
    notes: Sequence[Reason]
    sizes_problem: str | None = None
    disks: DiskRun | None = None


def plan_of(job: PlanJob, decided: Decided) -> Plan:
    """Return the plan with these decisions, from any engine. The job's selection has the live settings."""
    reader, memories, now_ms = job.reader, job.memories, job.now_ms
    selection, totals, unread, disks = job.selection, decided.totals, decided.unread, decided.disks
    policy = selection.policy
    told = [*decided.notes, *(() if disks is None else disks.notes)]
    if decided.sizes_problem is not None:
        told.append(Reason("size", f"sizes on disk are not known: {decided.sizes_problem}"))
    memory = memories(decided.cluster_id)
    told += memories.notes
    told += no_longer_named(memory, selection, now_ms)
    told += [Reason("policy", text) for text in misnamed_groups(policy, reader, memory, now_ms)]
    if isinstance(unread, BrokerError):  # the decisions don't need it: the note reports what is missing
        told.append(Reason(Code.G2, f"whose unread records would be trimmed is unknown: {unread}"))
        unread = {}
    else:
        chosen = (one.unconsumed for one in decided.decisions if selection.asks_for(one.tp))
        unconsumed = sum(chosen) if selection.partitions else totals.unconsumed
        told += [Reason(Code.G2, _NO_READER)] if unconsumed and not unread else []
    told += approval_notes(totals, policy.approve)
    return Plan(
        created_at_ms=now_ms,
        cluster_id=decided.cluster_id,
        bootstrap=reader.settings.bootstrap,
        policy_source=policy.source,
        policy_digest=policy.digest,
        flags=policy.one_off.flags(),
        topics=selection.given,
        decisions=decided.decisions,
        unconsumed_by=unread,
        refusals=over_limits(
            Amount(totals.records, totals.size_bytes), job.past_day(decided.cluster_id), decided.managed, policy.limits
        ),
        notes=told,
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
    zookeeper = any(one.kind == "zookeeper" for one in rules.sources)  # it names all its groups, whichever count
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
    names = some_of([*map(plain, found)], _NAMED)
    text = f"remembered: {names}; but no entry of floors names {what} for nothing; if that is meant: {forget}"
    return [Reason(Code.F7, text)]


def managed_records(observation: Observation) -> int:
    """Return the sum of H − S over the managed partitions whose ends are known (G6)."""
    return sum(
        facts.high_watermark - facts.log_start
        for facts in observation.facts.values()
        if not isinstance(facts.high_watermark, Unknown) and not isinstance(facts.log_start, Unknown)
    )
