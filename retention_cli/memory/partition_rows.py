"""A partition's memory as a row of the ledger's file, and the checksum of a row."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final

from retention_cli.core.model import EventMax
from retention_cli.memory.earlier import pack, unpack
from retention_cli.memory.partition import Front, PartitionMemory
from retention_cli.memory.replica import ROW_BYTES
from retention_cli.memory.samples import SAMPLE_BYTES

KEYS: Final = "SELECT topic_id, partition FROM partitions"
SELECT: Final = (
    "SELECT topic_id, partition, checksum, leader_epoch, last_epoch, earlier, log_start, samples, newest_ms, "
    "newest_offset, data_at, created, created_below, front, front_append, scan, replicas, newest_under FROM "
    "partitions"
)
INSERT: Final = "INSERT OR REPLACE INTO partitions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
"""Takes rows of :func:`row_of`."""


def values_in(row: Sequence[Any]) -> Sequence[Any]:
    """Return the values in a row of :data:`SELECT`, without its key and checksum (:func:`values_of`).

    Raises:
        ValueError: it is not what was written.
    """
    values = row[3:]
    if row[2] != _checksum(row[0], row[1], values):
        raise ValueError(f"what it remembers of partition {row[1]} of topic id {row[0]} is not what was written")
    if len(values[4]) % SAMPLE_BYTES or (values[13] is not None and len(values[13]) % ROW_BYTES):
        raise ValueError("a partition's samples or replicas are broken")
    return values


def row_of(topic_id: str, partition: int, values: Sequence[object]) -> tuple[object, ...]:
    """Return a partition's values (:func:`values_of`) as a whole row, in the order of the table's columns."""
    return (topic_id, partition, _checksum(topic_id, partition, values), *values)


def _checksum(topic_id: str, partition: int, values: Sequence[object]) -> int:
    """Return a row's checksum. The last column is newer than the others: without it, it is what it always was."""
    return checksum(topic_id, partition, *(values[:-1] if values[-1] is None else values))


def partition_of(row: Sequence[Any]) -> PartitionMemory:
    """Return the memory in a row of :data:`SELECT`.

    Raises:
        ValueError: it is not what was written.
    """
    values = values_in(row)
    (
        epoch,
        last_epoch,
        earlier,
        log_start,
        samples,
        newest_ms,
        newest_offset,
        data_at,
        *stamps,
        scan,
        replicas,
        under,
    ) = values
    created, created_below, front, append = stamps
    return PartitionMemory(
        packed=samples,
        newest=None if newest_ms is None else EventMax(newest_ms, newest_offset),
        newest_under=under or "",
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


def rows_in(changes: bytes) -> list[tuple[Any, ...]]:
    """Return the rows of :data:`SELECT` in a file of SQLite's (:func:`retention_cli.state.parts.changes`)."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(changes)
        return db.execute(SELECT).fetchall()


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
        one.newest_under or None,
    )


def checksum(*values: object) -> int:
    """Return a checksum over a row's values: the repr of text, numbers, bytes and None."""
    return zlib.crc32(_encoded(repr(values)))


def checksum_of_lines(values: tuple[object, ...], lines: Callable[[], Iterable[Sequence[str]]]) -> int:
    """Return the :func:`checksum` of these values and of one more text, whose lines arrive some at a time (None: none).

    So nothing is in memory four times over: as rows, as a text, as its repr and as bytes.
    """
    total = zlib.crc32(_encoded(repr(values)[:-1] + ", "))
    before, quote = "", "'"
    for some in lines():
        text = before + "\n".join(some)
        if "'" in text:  # then repr may choose another quotation mark, for all of it
            return checksum(*values, "\n".join(chain.from_iterable(lines())))
        total = zlib.crc32(_encoded(quote + repr(text)[1:-1]), total)
        before, quote = "\n", ""
    return zlib.crc32(_encoded("')" if before else "None)"), total)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
