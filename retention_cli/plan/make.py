"""Observe and decide: from a connected cluster and a policy to a plan, or to fresh decisions for a trim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.model import Decision, Reason, Unknown
from retention_cli.core.progress import Progress, silent
from retention_cli.decide.decision import decide
from retention_cli.decide.guards.limits import Amount, over_limits, total
from retention_cli.disks.decide import decide as decide_r6
from retention_cli.disks.rules import DiskRun
from retention_cli.memory.stores import Memories
from retention_cli.memory.topics import policy as policy_topic
from retention_cli.observe.cluster import observe
from retention_cli.observe.request import Observation, Request
from retention_cli.plan.value import Plan
from retention_cli.policy.disks import needs_disks
from retention_cli.policy.model import Policy, matches
from retention_cli.policy.selection import Selection, check_matches

if TYPE_CHECKING:  # numpy comes with an inventory, and not before
    from retention_cli.disks.batch_sizes import BatchSizes
    from retention_cli.disks.solve.inventory_view import InventoryView

_LISTING_PATIENCE_S: Final = 2.0

PastDay = Callable[[str], Amount]
"""Gives what was trimmed in the last 24 hours of a cluster, by its id."""


def with_live(reader: ClusterReader, selection: Selection) -> Selection:
    """Return the selection with what the policy topic says now."""
    return replace(selection, policy=policy_topic.with_live(reader, selection.policy))


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
