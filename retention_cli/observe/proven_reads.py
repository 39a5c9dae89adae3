"""Records that were read, held against the log of the leader that everything else was asked of (M1).

The client that reads records finds leaders by itself. Where it asks one that was deposed and does not know it yet,
after an unclean election, it reads records of another log: what they say lets nothing go.
"""

from __future__ import annotations

from collections.abc import Mapping

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Leaders
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Message, OnRecord, Range, read_last
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
    last: dict[TopicPartition, Message] = {}

    def noting(tp: TopicPartition, message: Message) -> bool | None:
        last[tp] = message
        return on_record(tp, message)

    ended = reader.read_ranges(ranges, deadline, noting, scan=scan)
    found = {tp: read for tp, message in last.items() if (read := read_last(message)) is not None}
    for tp, why in of_another_log(reader, found, leaders).items():
        ended[tp] = RequestFailedError(why, retriable=True)
    return ended


def of_another_log(
    reader: ClusterReader, last: Mapping[TopicPartition, tuple[int, int]], leaders: Leaders
) -> dict[TopicPartition, str]:
    """Return of which partitions the last record that was read (offset and leader epoch) is not in the leader's log.

    One of the current epoch is: its leader alone has written it, and has cut nothing since.
    """
    old = {tp: one for tp, one in last.items() if tp in leaders and one[1] != leaders[tp].leader_epoch}
    return other_log(reader, old, leaders) if old else {}
