"""Answers with a row for each partition or commit, written in blocks: the server must not be what is timed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from struct import Struct
from typing import Any, Final, NamedTuple

from kafka.protocol.schemas.fields.codecs.types import UnsignedVarInt32

from bench.synthetic.cluster import Cluster
from retention_cli.brokers.wire.answers import varint

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
_HEADER: Final = Struct(">hhih")
OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 50
METADATA_VERSION: Final = 12
"""The version that :class:`Metadata` writes, and the only one that is served."""
_COMMIT: Final = Struct(">iqi")
_ASKED: Final = Struct(">iiqx")  # partition, the leader's epoch, time, no tagged fields
_LISTED: Final = Struct(">hqqi")
_PARTITION: Final = Struct(">hiii")
_NO_OPERATIONS: Final = INT32.pack(-(1 << 31))
_TO_DELETE: Final = Struct(">iq")
_DELETED: Final = Struct(">iqh")
_NOT_LEADER: Final = 6
_UNKNOWN_TOPIC: Final = 3
_OUT_OF_RANGE: Final = 1


class Asked(NamedTuple):
    """A request: its API, version and correlation id, and its body."""

    api_key: int
    version: int
    correlation_id: int
    body: bytes


def parsed(frame: bytes, messages: dict[int, tuple[Any, Any]]) -> Asked:
    """Split a request's frame, without its length, into header and body."""
    api_key, version, correlation_id, client_length = _HEADER.unpack_from(frame)
    position = _HEADER.size + max(0, client_length)
    request = messages[api_key][0] if api_key in messages else None
    if request is not None and request.flexible_version_q(version):
        position += 1  # no client here sends tagged fields in a header
    return Asked(api_key, version, correlation_id, frame[position:])


def framed(asked: Asked, body: bytes, *, flexible: bool) -> bytes:
    """Return the response's frame. The header of an ApiVersions response is never flexible (KIP-511)."""
    header = INT32.pack(asked.correlation_id) + (b"\0" if flexible else b"")
    return INT32.pack(len(header) + len(body)) + header + body


def text(value: str) -> bytes:
    """Encode a COMPACT_STRING."""
    raw = value.encode()
    return b"".join((UnsignedVarInt32.encode(len(raw) + 1), raw))


def array(items: list[bytes]) -> bytes:
    """Encode a COMPACT_ARRAY of encoded items."""
    return b"".join((UnsignedVarInt32.encode(len(items) + 1), *items))


class Reader:
    """Reads the fields of a request's body one after another."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def length(self) -> int:
        """Decode the length of an array or a string; −1 for null."""
        value, self.position = varint(self.data, self.position)
        return value - 1

    def text(self) -> str:
        size = self.length()
        raw = self.data[self.position : self.position + size]
        self.position += size
        return raw.decode()

    def tags(self) -> None:
        """Skip tagged fields: none in requests of these clients."""
        self.position += 1


class Commits:
    """OffsetFetch: every group's commits, one block of bytes per topic."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._block = cache(self._topic_block)

    def answer(self, body: bytes) -> bytes:
        """Return the body of a response to a request for all commits of some groups."""
        asked = Reader(body)
        groups = []
        for _ in range(asked.length()):
            name = asked.text()
            if asked.length() >= 0:
                raise ValueError("only all commits of a group can be asked for here")
            asked.tags()
            groups.append(text(name) + self._group(name) + b"\0")
        return bytes(4) + array(groups) + b"\0"

    def _group(self, name: str) -> bytes:
        """Return a group's topics and its error code."""
        cluster = self._cluster
        group = cluster.group_of.get(name)
        numbers = [] if group is None else cluster.shape.topics_of(group)
        return array([self._block(one, cluster.committed) for one in numbers]) + INT16.pack(0)

    def _topic_block(self, topic: int, committed: int) -> bytes:
        cluster = self._cluster
        offsets = [committed if end else cluster.left_behind for end in cluster.ends[topic]]
        rows = [
            _COMMIT.pack(partition, offset, -1) + b"\1" + INT16.pack(0) + b"\0"
            for partition, offset in enumerate(offsets)
        ]
        return text(cluster.names[topic]) + array(rows) + b"\0"


def list_offsets(cluster: Cluster, broker: int, body: bytes) -> bytes:
    """Return the body of a ListOffsets response."""
    asked = Reader(body, 5)
    topics = []
    for _ in range(asked.length()):
        name = asked.text()
        count = asked.length()
        end = asked.position + count * _ASKED.size
        wanted = [(values[0], values[-1]) for values in _ASKED.iter_unpack(asked.data[asked.position : end])]
        asked.position = end
        asked.tags()
        topics.append(text(name) + array(_listed(cluster, broker, name, wanted)) + b"\0")
    return bytes(4) + array(topics) + b"\0"


def _listed(cluster: Cluster, broker: int, name: str, wanted: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return a topic's rows: all partitions that hold the same get the same for a time."""

    def packed(error: int, time_ms: int, offset: int) -> bytes:
        return _LISTED.pack(error, time_ms, offset, -1 if offset < 0 else 0) + b"\0"

    number = cluster.number_of.get(name)
    if name == OFFSETS_TOPIC:  # no transaction is open
        return [INT32.pack(partition) + packed(0, -1, 0) for partition, _ in wanted]
    if number is None:
        return [INT32.pack(partition) + packed(_UNKNOWN_TOPIC, -1, -1) for partition, _ in wanted]
    starts, ends, known = cluster.starts[number], cluster.ends[number], dict[tuple[int, int, int], bytes]()
    rows = []
    for partition, time_ms in wanted:
        if partition >= cluster.shape.partitions_a_topic:
            row = packed(_UNKNOWN_TOPIC, -1, -1)
        elif cluster.leader(number, partition) != broker:
            row = packed(_NOT_LEADER, -1, -1)
        else:
            holds = (starts[partition], ends[partition], time_ms)
            if (found := known.get(holds)) is None:
                found = known[holds] = packed(0, *cluster.listed(number, partition, time_ms))
            row = found
        rows.append(INT32.pack(partition) + row)
    return rows


class Metadata:
    """Metadata responses of :data:`METADATA_VERSION`, one block of bytes per topic."""

    def __init__(self, cluster: Cluster, ports: Sequence[tuple[int, str, int]]) -> None:
        self._cluster = cluster
        self._topic = cache(self._topic_block)
        brokers = [INT32.pack(node) + text(host) + INT32.pack(port) + b"\0\0" for node, host, port in ports]
        self._before = bytes(4) + array(brokers) + text(cluster.cluster_id) + INT32.pack(1)

    def answer(self, names: Sequence[str] | None) -> bytes:
        """Return the body of a response about these topics, None: about all."""
        cluster = self._cluster
        names = [*cluster.names, OFFSETS_TOPIC] if names is None else names
        return self._before + array([self._topic(name) for name in names]) + b"\0"

    def _topic_block(self, name: str) -> bytes:
        cluster = self._cluster
        number = cluster.number_of.get(name)
        if name == OFFSETS_TOPIC:
            leaders = [partition % cluster.brokers + 1 for partition in range(OFFSETS_PARTITIONS)]
        elif number is not None:
            leaders = [cluster.leader(number, one) for one in range(cluster.shape.partitions_a_topic)]
        else:
            leaders = []
        known = number is not None or name == OFFSETS_TOPIC
        listed = {leader: array([INT32.pack(leader)]) for leader in leaders}
        rows = [
            _PARTITION.pack(0, partition, leader, 0) + 2 * listed[leader] + b"\1\0"
            for partition, leader in enumerate(leaders)
        ]
        head = INT16.pack(0 if known else _UNKNOWN_TOPIC) + text(name)
        ident = cluster.topic_id(name).bytes if known else bytes(16)
        return head + ident + (b"\1" if name == OFFSETS_TOPIC else b"\0") + array(rows) + _NO_OPERATIONS + b"\0"


def delete_records(cluster: Cluster, broker: int, body: bytes) -> bytes:
    """Move log start offsets, and return the body of a DeleteRecords response."""
    asked = Reader(body)
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
            rows.append(row + b"\0")
        asked.tags()
        topics.append(text(name) + array(rows) + b"\0")
    return bytes(4) + array(topics) + b"\0"
