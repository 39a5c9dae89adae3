"""Records that were read, held against the log of the leader that everything else was asked of (M1).

The client that reads records finds leaders by itself. Where it asks one that was deposed and does not know it yet,
after an unclean election, it reads records of another log: what they say lets nothing go.
"""

from __future__ import annotations

from collections.abc import Mapping

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Leaders
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Message, OnRecord, Range, note_epoch
from retention_cli.core.model import TopicPartition
from retention_cli.memory.lineage import other_log


def read_proven(
    reader: ClusterReader,
    ranges: Mapping[TopicPartition, Range],
    deadline: float | None,
    on_record: OnRecord,
    leaders: Leaders,
    *,
    scan: bool = False,
) -> dict[TopicPartition, RequestFailedError | None]:
    """Read ranges as :meth:`ClusterReader.read_ranges` does; an error also where they were another log's.

    Then what was handed over of that partition counts for nothing.
    """
    epochs: dict[TopicPartition, dict[int, int]] = {tp: {} for tp in ranges}

    def noting(tp: TopicPartition, message: Message) -> bool | None:
        note_epoch(epochs[tp], message)
        return on_record(tp, message)

    ended = reader.read_ranges(ranges, deadline, noting, scan=scan)
    for tp, why in of_another_log(reader, epochs, leaders).items():
        ended[tp] = RequestFailedError(why, retriable=True)
    return ended


def of_another_log(
    reader: ClusterReader, read: Mapping[TopicPartition, Mapping[int, int]], leaders: Leaders
) -> dict[TopicPartition, str]:
    """Return of which partitions a record that was read is not in the leader's log, and why.

    Each leader epoch is looked at by itself: one reading may begin at a deposed leader and end at the one that leads
    now, whose records say nothing of those before them. A record of the current epoch is in that log: its leader
    alone has written it, and has cut nothing since.

    Args:
        reader: the cluster.
        read: the last offset that was read in each leader epoch.
        leaders: where to ask.
    """
    old = {
        tp: marks
        for tp, epochs in read.items()
        if tp in leaders
        and (marks := [(offset, epoch) for epoch, offset in epochs.items() if epoch != leaders[tp].leader_epoch])
    }
    return other_log(reader, old, leaders) if old else {}
