"""A partition's memory as a row of the ledger's file, and the checksum of a row."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, Final

from retention_cli.core.model import EventMax
from retention_cli.memory.earlier import pack, unpack
from retention_cli.memory.partition import Front, PartitionMemory
from retention_cli.memory.replica import ROW_BYTES
from retention_cli.memory.samples import SAMPLE_BYTES

KEYS: Final = "SELECT topic_id, partition FROM partitions"
SELECT: Final = (
    "SELECT topic_id, partition, checksum, leader_epoch, last_epoch, earlier, log_start, samples, newest_ms, "
    "newest_offset, data_at, created, created_below, front, front_append, scan, replicas FROM partitions"
)


def partition_of(row: Iterable[Any]) -> PartitionMemory:
    """Return the memory in a row of :data:`SELECT`.

    Raises:
        ValueError: it is not what was written.
    """
    topic_id, partition, noted, *values = row
    if noted != checksum(topic_id, partition, *values):
        raise ValueError(f"what it remembers of partition {partition} of topic id {topic_id} is not what was written")
    epoch, last_epoch, earlier, log_start, samples, newest_ms, newest_offset, data_at, *stamps, scan, replicas = values
    created, created_below, front, append = stamps
    if len(samples) % SAMPLE_BYTES or len(replicas or b"") % ROW_BYTES:
        raise ValueError("a partition's samples or replicas are broken")
    return PartitionMemory(
        packed=samples,
        newest=None if newest_ms is None else EventMax(newest_ms, newest_offset),
        data_at=tuple(int(one) for one in data_at.split(",")) if data_at else (),
        scan=scan,
        replicas=replicas or b"",
        leader_epoch=epoch,
        last_epoch=last_epoch,
        earlier=unpack(earlier or b""),
        log_start=log_start,
        created=bool(created),
        created_below=created_below,
        front=None if front is None else Front(front, bool(append)),
    )


def values_of(one: PartitionMemory) -> tuple[object, ...]:
    """Return a memory's values in the order of the row's columns, without its key and checksum."""
    newest, front = one.newest, one.front
    return (
        one.leader_epoch,
        one.last_epoch,
        pack(one.earlier) or None,
        one.log_start,
        one.packed,
        *((None, None) if newest is None else (newest.time_ms, newest.offset)),
        ",".join(map(str, one.data_at)),
        int(one.created),
        one.created_below,
        *((None, None) if front is None else (front.offset, int(front.append_time))),
        one.scan,
        one.replicas or None,
    )


def checksum(*values: object) -> int:
    """Return a checksum over a row's values: the repr of text, numbers, bytes and None."""
    return zlib.crc32(repr(values).encode("utf-8", "surrogatepass"))
