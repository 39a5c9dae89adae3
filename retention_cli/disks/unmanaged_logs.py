"""Read the logs that a run does not manage on disks above their ceilings: their dead bytes count, too (R6)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.log_offsets import Spec
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import PartitionFacts, TopicPartition, Unknown
from retention_cli.disks.disk import Disk, above_ceiling
from retention_cli.memory.partition import PartitionMemory
from retention_cli.observe.cluster import bare_facts, end_of, unread_facts
from retention_cli.observe.lineage import ask_epochs
from retention_cli.observe.recall import Remembered
from retention_cli.policy.settings import DiskRules

_UNREAD: Final = Unknown.because("offsets", "not read")
_ENDS: Final[tuple[Spec, ...]] = ("earliest", "latest")


@dataclass(frozen=True, slots=True)
class UnmanagedLogs:
    """Partitions that no entry matches, or that are never touched: only S, H and topic ids, and their memories."""

    facts: Mapping[TopicPartition, PartitionFacts] = field(default_factory=dict)
    memories: Mapping[TopicPartition, PartitionMemory] = field(default_factory=dict)
    leaders: Mapping[TopicPartition, PartitionMetadata] = field(default_factory=dict)


def read_unmanaged(
    reader: ClusterReader,
    disks: Collection[Disk],
    rules: DiskRules,
    managed: Collection[TopicPartition],
    remembered: Remembered,
    clock_ms: Callable[[], int],
) -> UnmanagedLogs:
    """Read S and H of the other logs on disks above their ceilings. Logs that can't be read are left out.

    Args:
        reader: the cluster, read-only.
        disks: the disks as just reported by the brokers: S is read after sizes, so no dead byte counts as live.
        rules: the policy's disk rules.
        managed: partitions whose S and H are already known.
        remembered: the memory of this pass.
        clock_ms: returns this machine's time, Unix ms.
    """
    wanted = {tp for disk in disks if above_ceiling(disk, rules) for tp in disk.replicas if tp not in managed}
    if not wanted:
        return UnmanagedLogs()
    try:
        metadata = reader.metadata({tp.topic for tp in wanted})
    except BrokerError:
        return UnmanagedLogs()
    leaders = {tp: one for tp, one in metadata.places().items() if tp in wanted and one.leader is not None}
    starts, ends = reader.list_offsets([dict.fromkeys(leaders, spec) for spec in _ENDS], leaders)
    topics = {name: bare_facts(metadata.topics[name]) for name in {tp.topic for tp in leaders}}
    facts = {
        tp: unread_facts(topics[tp.topic], tp.partition, one, _UNREAD)._replace(
            log_start=end_of("start", starts[tp]), high_watermark=end_of("high watermark", ends[tp])
        )
        for tp, one in leaders.items()
    }
    known = Remembered(remembered.memory, {}, leaders, clock_ms(), remembered.now_ms)
    known.open({name: one.topic_id for name, one in topics.items()})
    known.prove(ask_epochs(reader, known.epochs_to_check(facts), leaders), facts)
    return UnmanagedLogs(facts, known.partitions, leaders)
