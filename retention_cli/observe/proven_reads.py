"""Check that records were read from the log of the leader that everything else was asked of (M1).

The client that reads records finds leaders by itself. After an unclean election it may ask a deposed leader that does
not know it yet, and read records of another log: nothing is trimmed because of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Leaders
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import PARTITIONS_AT_ONCE, Message, OnRecord, Range, note_epoch
from retention_cli.core.model import TopicPartition
from retention_cli.core.progress import Progress
from retention_cli.memory.partition import PartitionMemory
from retention_cli.observe.lineage import other_log
from retention_cli.policy.settings import Settings


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading records takes.

    Args:
        reader: the cluster.
        leaders: each partition's leader.
        settings: each topic's settings.
        memory: each partition's memory; updated.
        now_ms: now, for all cutoffs (Unix ms).
        deadline: when to stop reading records, by the reader's clock; None: read all of them.
        progress: called with what is being read.
    """

    reader: ClusterReader
    leaders: Leaders
    settings: Mapping[str, Settings]
    memory: Mapping[TopicPartition, PartitionMemory]
    now_ms: int
    deadline: float | None
    progress: Progress

    def read_proven(
        self, ranges: Mapping[TopicPartition, Range], on_record: OnRecord
    ) -> dict[TopicPartition, RequestFailedError | None]:
        """Read a few records of each range; records of another log are an error, too (M1).

        In that case, discard the partition's records that ``on_record`` was called with.
        """
        epochs: dict[TopicPartition, dict[int, int]] = {tp: {} for tp in ranges}

        def noting(tp: TopicPartition, message: Message) -> bool | None:
            note_epoch(epochs[tp], message)
            return on_record(tp, message)

        ended = self.reader.read_ranges(ranges, soon(self.reader, self.deadline, len(ranges)), noting)
        for tp, why in of_another_log(self.reader, epochs, self.leaders).items():
            ended[tp] = RequestFailedError(why, retriable=True)
        return ended


def of_another_log(
    reader: ClusterReader, read: Mapping[TopicPartition, Mapping[int, int]], leaders: Leaders
) -> dict[TopicPartition, str]:
    """Return the partitions of which a record that was read is not in the leader's log, each with the reason.

    Each leader epoch is checked by itself: a read may begin at a deposed leader and end at the current one, whose
    records say nothing about those before them. A record of the current epoch is in the log: only its leader has
    written it, and has cut nothing since.

    Args:
        reader: the cluster.
        read: the last offset that was read in each leader epoch.
        leaders: the brokers to ask.
    """
    old = {
        tp: marks
        for tp, epochs in read.items()
        if tp in leaders
        and (marks := [(offset, epoch) for epoch, offset in epochs.items() if epoch != leaders[tp].leader_epoch])
    }
    return other_log(reader, old, leaders) if old else {}


def soon(reader: ClusterReader, deadline: float | None, partitions: int) -> float:
    """Return the deadline for reading a few records of each partition, by the reader's clock.

    Without a given one: one time-out from now, and another per :data:`PARTITIONS_AT_ONCE` partitions.
    """
    if deadline is not None:
        return deadline
    return reader.clock.monotonic() + reader.timeout_s * (1 + partitions // PARTITIONS_AT_ONCE)
