"""Answers with a row for each partition or commit, written in blocks: the server must not be what is timed."""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import Final

from bench.synthetic.cluster import Cluster
from bench.synthetic.wire import INT16, INT32, Reader, array, text, varint

_COMMIT: Final = Struct(">iqi")
_ASKED: Final = {False: Struct(">iq"), True: Struct(">iiq")}
_LISTED: Final = Struct(">ihqq")
_LISTED_EPOCH: Final = Struct(">ihqqi")
_TO_DELETE: Final = Struct(">iq")
_DELETED: Final = Struct(">iqh")
_NOT_LEADER: Final = 6
_UNKNOWN_TOPIC: Final = 3
_OUT_OF_RANGE: Final = 1


class Commits:
    """OffsetFetch of versions 6 to 8: every group's commits, one block of bytes per topic."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._block = cache(self._topic_block)

    def answer(self, body: bytes, version: int) -> bytes:
        """Return the body of a response to a request for all commits of one group or several."""
        asked = Reader(body, compact=True)
        if version < 8:
            return bytes(4) + self._group(asked.text()) + b"\0"
        groups = []
        for _ in range(asked.length()):
            name = asked.text()
            if version >= 9:
                asked.text()
                asked.take(INT32)
            if asked.length() >= 0:
                raise ValueError("only all commits of a group can be asked for here")
            asked.tags()
            groups.append(text(name, compact=True) + self._group(name) + b"\0")
        return bytes(4) + array(groups, compact=True) + b"\0"

    def _group(self, name: str) -> bytes:
        """Return a group's topics and its error code."""
        cluster = self._cluster
        group = cluster.group_of.get(name)
        numbers = [] if group is None else cluster.shape.topics_of(group)
        topics = [self._block(one, cluster.committed) for one in numbers]
        return array(topics, compact=True) + INT16.pack(0)

    def _topic_block(self, topic: int, committed: int) -> bytes:
        cluster = self._cluster
        offsets = [committed if end else cluster.left_behind for end in cluster.ends[topic]]
        rows = [
            _COMMIT.pack(partition, offset, cluster.commit_epoch) + b"\1" + INT16.pack(0) + b"\0"
            for partition, offset in enumerate(offsets)
        ]
        return text(cluster.names[topic], compact=True) + array(rows, compact=True) + b"\0"


def list_offsets(cluster: Cluster, broker: int, body: bytes, version: int) -> bytes:
    """Return the body of a ListOffsets response of versions 1 to 7."""
    compact = version >= 6
    asked = Reader(body, compact=compact)
    asked.position = 4 + (version >= 2)
    one = _ASKED[version >= 4]
    topics = []
    for _ in range(asked.length()):
        name = asked.text()
        number = cluster.number_of.get(name)
        rows = []
        count = asked.length()
        for _row in range(count):
            values = one.unpack_from(asked.data, asked.position)
            asked.position += one.size + compact
            partition, time_ms = values[0], values[-1]
            if number is None or partition >= cluster.shape.partitions_a_topic:
                found = (_UNKNOWN_TOPIC, -1, -1)
            elif cluster.leader(number, partition) != broker:
                found = (_NOT_LEADER, -1, -1)
            else:
                found = (0, *cluster.listed(number, partition, time_ms))
            if version >= 4:
                rows.append(_LISTED_EPOCH.pack(partition, *found, -1 if found[2] < 0 else 0))
            else:
                rows.append(_LISTED.pack(partition, *found))
            if compact:
                rows.append(b"\0")
        asked.tags()
        head = text(name, compact=compact) + (varint(count + 1) if compact else INT32.pack(count))
        topics.append(head + b"".join(rows) + (b"\0" if compact else b""))
    throttle = bytes(4) if version >= 2 else b""
    return throttle + array(topics, compact=compact) + (b"\0" if compact else b"")


def delete_records(cluster: Cluster, broker: int, body: bytes, version: int) -> bytes:
    """Move log start offsets, and return the body of a DeleteRecords response of versions 0 to 2."""
    compact = version >= 2
    asked = Reader(body, compact=compact)
    topics = []
    for _ in range(asked.length()):
        name = asked.text()
        number = cluster.number_of.get(name)
        rows = []
        for _row in range(asked.length()):
            partition, offset = _TO_DELETE.unpack_from(asked.data, asked.position)
            asked.position += _TO_DELETE.size
            asked.tags()
            if number is None or partition >= cluster.shape.partitions_a_topic:
                row = _DELETED.pack(partition, -1, _UNKNOWN_TOPIC)
            elif cluster.leader(number, partition) != broker:
                row = _DELETED.pack(partition, -1, _NOT_LEADER)
            elif (start := cluster.delete(number, partition, offset)) is None:
                row = _DELETED.pack(partition, -1, _OUT_OF_RANGE)
            else:
                row = _DELETED.pack(partition, start, 0)
            rows.append(row + (b"\0" if compact else b""))
        asked.tags()
        topics.append(text(name, compact=compact) + array(rows, compact=compact) + (b"\0" if compact else b""))
    return bytes(4) + array(topics, compact=compact) + (b"\0" if compact else b"")
