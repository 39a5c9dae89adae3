"""Upgrade ledgers of older versions. Facts that don't say which log they are of are dropped (M1)."""

from __future__ import annotations

import array
import sqlite3
import sys
from collections.abc import Callable, Iterator

from retention_cli.core.model import Sample
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.samples import pack

PutPartition = Callable[[tuple[str, int], PartitionMemory], None]
PutGroup = Callable[[str, GroupMemory], None]

_OLD_SAMPLE_BYTES = 24
_META = ("revision", "since_ms", "topics_ms")


def upgrade(db: sqlite3.Connection, schema: str, *, put_partition: PutPartition, put_group: PutGroup) -> None:
    """Convert tables of schema 1 or 2 to the current schema, within a transaction.

    Samples had a leader epoch: those of the last one are kept. Largest event times, scans, sizes and offsets of data
    had none: they are read again. Groups' commits are kept, as not judged yet.

    Raises:
        ValueError, sqlite3.Error: something in them is broken.
    """
    meta = dict(db.execute("SELECT key, value FROM meta"))
    topics = db.execute("SELECT topic_id, name, seen_ms FROM topics").fetchall()
    partitions = db.execute("SELECT topic_id, partition, samples FROM partitions").fetchall()
    groups = db.execute("SELECT name, seen_ms, doc FROM groups").fetchall()
    for table in ("meta", "topics", "partitions", "groups", "disks"):
        db.execute(f"DROP TABLE IF EXISTS {table}")
    for statement in schema.strip().split(";"):
        if statement.strip():
            db.execute(statement)
    for key in _META:
        db.execute("UPDATE meta SET value = ? WHERE key = ?", (meta[key], key))
    db.executemany("INSERT INTO topics VALUES (?, ?, ?)", topics)
    for topic_id, partition, samples in partitions:
        memory = with_last_epoch(samples)
        if memory is not None:
            put_partition((topic_id, partition), memory)
    for name, seen_ms, doc in groups:
        group = GroupMemory.from_bytes(doc)
        group.seen_ms = seen_ms
        put_group(name, group)


def with_last_epoch(packed: bytes) -> PartitionMemory | None:
    """Return a memory with the old samples of the last leader epoch among them, None if they have none.

    Raises:
        ValueError: they are cut short.
    """
    rows = list(_old_samples(packed))
    epoch = rows[-1][1] if rows else -1
    if epoch < 0:
        return None
    return PartitionMemory(pack(one for one, of in rows if of == epoch), leader_epoch=epoch)


def _old_samples(packed: bytes) -> Iterator[tuple[Sample, int]]:
    """Yield samples as they were packed: wall clock, high watermark and leader epoch, 8 bytes each.

    Raises:
        ValueError: they are cut short.
    """
    if len(packed) % _OLD_SAMPLE_BYTES:
        raise ValueError("samples are cut short")
    flat = array.array("q")
    flat.frombytes(packed)
    if sys.byteorder != "little":
        flat.byteswap()
    numbers = iter(flat)
    for wall_ms, high_watermark, epoch in zip(numbers, numbers, numbers, strict=True):
        yield Sample(wall_ms, high_watermark), epoch
