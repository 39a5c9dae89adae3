"""Observe and decide: from a connected cluster and a policy to a plan, or to fresh decisions for a trim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.model import Decision, Reason, Unknown
from retention_cli.core.progress import Progress, silent
from retention_cli.decide.decision import decide
from retention_cli.decide.guards.limits import Amount, over_limits
from retention_cli.disks.decide import decide as decide_r6
from retention_cli.disks.measure import DiskState
from retention_cli.disks.rules import DiskRun
from retention_cli.memory.stores import Memories
from retention_cli.memory.topics import policy as policy_topic
from retention_cli.observe.cluster import observe
from retention_cli.observe.floors.consumers import floor_by, is_outside
from retention_cli.observe.request import Observation, Request
from retention_cli.plan.value import Plan, Totals
from retention_cli.policy.disks import needs_disks
from retention_cli.policy.model import Policy
from retention_cli.policy.selection import Selection, check_matches

if TYPE_CHECKING:  # numpy comes with an inventory, and not before
    from retention_cli.disks.batch_sizes import BatchSizes
    from retention_cli.disks.solve.inventory_view import InventoryView

PastDay = Callable[[str], Amount]
"""Gives what was trimmed in the last 24 hours of a cluster, by its id."""


def with_live(reader: ClusterReader, selection: Selection) -> Selection:
    """Return the selection with the policy topic's current settings applied."""
    return replace(selection, policy=policy_topic.with_live(reader, selection.policy))


def decide_all(
    reader: ClusterReader, observation: Observation, now_ms: int, disks: DiskRun | None
) -> tuple[Decision, ...]:
    """Decide every observed partition, in order; if there are disk rules, then measure the disks and decide R6."""
    facts, settings = observation.facts, observation.settings
    decisions = tuple(decide(one, settings[tp.topic], now_ms) for tp, one in facts.items())
    if disks is None:
        return decisions
    measured = disks.measure(reader, facts, settings, decisions, now_ms)
    return disks.with_bytes(decide_r6(facts, settings, decisions, measured))


def disk_run(policy: Policy, inventory: InventoryView | BatchSizes | None) -> DiskRun | None:
    """Return the reader of disks for a run, None if there are no disk rules and there is no inventory."""
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
    """Read the cluster and decide. The cluster is not changed; the ledger (``memories``) records what was seen.

    Raises:
        BrokerError: the cluster's metadata could not be read.
        PolicyError: R1 is enabled for a topic without a time.
        NothingMatchesError: there is nothing to decide about.
    """
    selection = with_live(reader, selection)
    policy = selection.policy
    disks = disk_run(selection.decided_alone.policy, inventory)
    request = Request(
        selection.settings_for,
        policy.groups,
        now_ms,
        memory_for=memories,
        scan_all=True,
        clock_ms=clock_ms,
        disks=disks,
    )
    seen: dict[str, GroupCommits | None] = {}

    def listener(commits: GroupCommits) -> None:
        seen[commits.group] = commits if is_outside(commits.group) else None

    try:
        observation = observe(reader, request, progress, listener)
    finally:  # an interrupted scan's reads are kept, too
        if memories is not None:
            memories.save(clock_ms())
    notes = [*policy.live.notes, *check_matches(selection, observation.topics_seen)]
    decisions = decide_all(reader, observation, now_ms, disks)
    unread: Mapping[str, int] | BrokerError
    try:
        unread = unread_by_group(reader, seen, decisions)
    except BrokerError as error:
        unread = error
    return plan_of(
        reader,
        selection,
        observation.cluster_id,
        now_ms,
        decisions=decisions,
        totals=Totals.of(decisions),
        managed=managed_records(observation),
        unread=unread,
        notes=notes,
        sizes_problem=observation.sizes_problem,
        past_day=past_day,
        memories=memories,
        disks=None if disks is None else disks.state,
    )


def plan_of(
    reader: ClusterReader,
    selection: Selection,
    cluster_id: str,
    now_ms: int,
    *,
    decisions: Sequence[Decision],
    totals: Totals,
    managed: int,
    unread: Mapping[str, int] | BrokerError,
    notes: Sequence[Reason],
    sizes_problem: str | None,
    past_day: PastDay,
    memories: Memories | None,
    disks: DiskState | None,
) -> Plan:
    """Return the plan that these decisions make, whichever engine made them.

    Args:
        reader: the cluster.
        selection: what was decided about, live settings included.
        cluster_id: its id.
        now_ms: the clock of all cutoffs.
        decisions: in order; empty if the engine keeps them elsewhere.
        totals: over all decisions.
        managed: the sum of H − S over the managed partitions (G6).
        unread: per group, how many records would be trimmed before it has read them (G2); or why that is not known.
        notes: warnings about the selection.
        sizes_problem: why some sizes are missing, None if none is.
        past_day: what was trimmed in the last 24 hours.
        memories: the ledgers, None if nothing is remembered.
        disks: what was seen of disks after R6 has decided; None if no disk was read.
    """
    policy = selection.policy
    told = [*notes, *(() if disks is None else disks.notes)]
    if sizes_problem is not None:
        told.append(Reason("size", f"sizes on disk are not known: {sizes_problem}"))
    if memories is not None:
        told += memories.notes
    if isinstance(unread, BrokerError):  # the decisions stand without it: their floors are unknown, and say so
        told.append(Reason("G2", f"whose unread records would be trimmed can't be told: {unread}"))
        unread = {}
    else:
        told += _unnamed(totals.unconsumed, unread)
    amount = Amount(totals.records, totals.size_bytes)
    return Plan(
        created_at_ms=now_ms,
        cluster_id=cluster_id,
        bootstrap=reader.settings.bootstrap,
        policy_source=policy.source,
        policy_digest=policy.digest,
        flags=policy.one_off.flags(),
        topics=selection.topics,
        decisions=decisions,
        unconsumed_by=unread,
        refusals=over_limits(amount, past_day(cluster_id), managed, policy.limits),
        notes=told,
        memory_since_ms=None if memories is None else memories.since_ms(cluster_id),
        memory="local" if memories is None else memories.kind,
        disks=() if disks is None else disks.outcomes,
        space=None if disks is None else disks.space,
        counted=None if decisions else totals,
    )


def managed_records(observation: Observation) -> int:
    """Return the sum of H − S over the managed partitions whose ends are known (G6)."""
    return sum(
        facts.high_watermark - facts.log_start
        for facts in observation.facts.values()
        if not isinstance(facts.high_watermark, Unknown) and not isinstance(facts.log_start, Unknown)
    )


def _unnamed(unconsumed: int, unread: Mapping[str, int]) -> list[Reason]:
    """Return a note if unread records would be trimmed but cannot be attributed to any group that was read (G2)."""
    if not unconsumed or unread:
        return []
    return [Reason("G2", "whose unread records would be trimmed can't be told by group: each row says why")]


def unread_by_group(
    reader: ClusterReader, groups: Mapping[str, GroupCommits | None], decisions: Sequence[Decision]
) -> dict[str, int]:
    """Return, per consumer, how many records would be trimmed before it has read them (G2).

    Commits are read a second time, and only if unread records would be trimmed: keeping all of them until then
    would cost memory for every commit.

    Args:
        reader: the cluster.
        groups: those whose commits were read, and recorded together with the log's ends; of consumers outside Kafka's
            groups (F7) the positions themselves. No other group is asked:
            commits that only a report has seen would be forgotten once the group is gone (F6).
        decisions: the plan's.

    Raises:
        BrokerError: no broker answered.
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
                        name = floor_by(commits.group)
                        unread[name] = unread.get(name, 0) + lost

    for outside in groups.values():
        if outside is not None:
            on_commits(outside)
    reader.read_commits(sorted(name for name, outside in groups.items() if outside is None), on_commits)
    return dict(sorted(unread.items()))
