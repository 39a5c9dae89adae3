"""Check whether an inventory describes the current logs, by asking brokers where leader epochs end (M1, R6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, Leaders
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import PartitionFacts, TopicPartition
from retention_cli.disks.solve.borne_out import ScannedReplica, epoch_to_ask, not_borne_out
from retention_cli.disks.solve.room import Disk
from retention_cli.memory.lineage import ask_epochs


def unproven(
    reader: ClusterReader,
    scanned: Sequence[ScannedReplica],
    disks: Sequence[Disk],
    facts: Mapping[TopicPartition, PartitionFacts],
    leaders: Leaders,
) -> dict[tuple[int, str, int], str]:
    """Return the replicas (broker, topic, partition) whose inventory rows are not trusted, and why.

    Args:
        reader: the cluster, read-only.
        scanned: the inventory's summary of each replica.
        disks: the disks as reported by the brokers, after S and H were read.
        facts: the facts of the partitions to check; others are ignored.
        leaders: the brokers to ask.
    """
    wanted = {
        (one.tp, epoch)
        for one in scanned
        if one.tp in facts and (epoch := epoch_to_ask(one, facts[one.tp])) is not None
    }
    answers = ask_epochs(reader, wanted, {tp: one for tp, one in leaders.items() if one.leader is not None})

    def epoch_end(tp: TopicPartition, epoch: int) -> int | str:
        match answers.get((tp, epoch)):
            case Found(offset):
                return offset
            case RequestFailedError() as error:
                return f"where leader epoch {epoch} ends, under which it was scanned, could not be asked ({error})"
            case None:
                return f"where leader epoch {epoch} ends, under which it was scanned, could not be asked"
        return f"it was scanned under leader epoch {epoch}, which its log has no record of by now: it was cut"

    return not_borne_out(scanned, disks, facts, epoch_end)
