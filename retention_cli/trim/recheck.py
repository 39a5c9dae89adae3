"""Observe and decide again, right before a trim (docs/architecture.md, Trim)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, NotFound
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Decision, Maybe, Reason, TopicPartition, Unknown
from retention_cli.core.progress import Progress, silent
from retention_cli.disks.solve.outcome import DiskOutcome
from retention_cli.memory.lineage import EpochEnds
from retention_cli.memory.stores import Memories
from retention_cli.observe.cluster import observe
from retention_cli.observe.request import RecheckRead
from retention_cli.plan.make import decide_all, disk_run, managed_records, with_live
from retention_cli.policy.disks import needs_disks
from retention_cli.policy.selection import Selection

if TYPE_CHECKING:  # importing these imports numpy, which only an inventory needs
    from retention_cli.disks.solve.inventory_view import InventoryView


@dataclass(frozen=True, slots=True)
class Recheck:
    """Fresh decisions for some partitions, and the leaders to send requests to.

    ``began`` is when reading began (on the reader's clock): no fact is older. ``unreadable`` are partitions whose
    leader is missing or did not answer. ``managed_records`` is the sum of H − S over the observed partitions.
    ``archives`` maps each topic that the policy wants archived before a trim to the archive's URL. ``disks`` are R6's
    results, if there are disk rules.
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
        """Return where a leader epoch ends; None if the leader does not know it."""
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
    inventory: InventoryView | None = None,
    progress: Progress = silent,
) -> Recheck:
    """Observe and decide again, for the partitions in ``only`` or for all managed ones (None).

    If there are disk rules, all partitions are observed: R6 and a topic's size are decided over all of them.

    ``clock`` is why this machine's clock can't be trusted, None if it can or was not compared with the brokers' (G8).
    ``epochs`` are the leader epochs in which the partitions were planned: the leader is asked where those ended (M2).

    Raises:
        BrokerError: the cluster's metadata could not be read.
    """
    selection = with_live(reader, selection)
    alone = selection.decided_alone.policy
    disks = disk_run(alone, inventory) if needs_disks(alone) else None
    request = RecheckRead(
        selection.settings_for,
        selection.policy.groups,
        now_ms,
        memories,
        reader.clock.wall_ms,
        only=only if disks is None else None,
        patience_s=patience_s,
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
        () if disks is None else disks.state.outcomes,
        observation.epoch_ends,
    )
