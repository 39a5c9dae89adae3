"""The rows that R6's walk passes between tasks, and to the client (R6)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from retention_cli.disks.solve.outcome import SHOWN
from retention_cli.disks.solve.segments import Ints
from retention_cli.disks.solve.steps import Steps
from retention_cli.engines.spark.parcels import PARCELS, begins, cut, parcels, rows_of

FACTS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("wanted_id", pa.string()),
        ("managed", pa.bool_()),
        ("log_start", pa.int64()),
        ("start", pa.int64()),
        ("limit", pa.int64()),
    ]
)
"""A partition's topic id (null: unknown), whether it is managed, S (0: unknown), its bound without R6, and how far R6
may trim it."""

OF_FACTS, OF_BROKEN, OF_TRIMS = range(3)
"""Kinds of parcels of a slab: :data:`FACTS`, partitions that can't be judged (topic, partition), :data:`WALKED`."""

DISK, STEP, REPLICA, PARTITION = range(4)
"""Kinds of rows: a disk, a step of a disk's candidates, a replica on a disk, a partition."""

FIRST: Final = pa.schema(
    [
        ("kind", pa.int8()),
        ("disk", pa.int32()),
        ("rows", pa.int64()),
        ("gone", pa.int64()),
        ("age", pa.int64()),
        ("bytes", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("below", pa.int64()),
        ("above", pa.int64()),
    ]
)
"""Of a disk: its segments (``rows``), and the bytes that the other rules trim. A step: ``age`` and ``bytes`` of its
candidates. Of a replica with dead bytes: the log bytes of segments below S, and of the others. Of a partition: it is
managed, and has no segments; its ``disk`` only spreads the rows."""

GOING: Final = pa.schema(
    [
        ("disk", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("next", pa.list_(pa.int64())),
        ("bytes", pa.list_(pa.int64())),
        ("age", pa.list_(pa.int64())),
    ]
)
"""A replica's candidates that the walk can reach."""

WALKED: Final = pa.schema(
    [("disk", pa.int32()), ("topic", pa.string()), ("partition", pa.int32()), ("next", pa.int64()), ("age", pa.int64())]
)
"""How far a replica is trimmed for its disk's sake, and the newest age that is trimmed."""

LAST: Final = pa.schema(
    [
        ("kind", pa.int8()),
        ("disk", pa.int32()),
        ("rows", pa.int64()),
        ("freed", pa.int64()),
        ("level", pa.int64()),
        ("many", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("why", pa.int8()),
        ("bytes", pa.int64()),
        ("bound", pa.int64()),
    ]
)
"""Of a disk: its segments, the bytes that all trims free, the newest age trimmed for its sake, and how many amounts of
bytes stay. Of a replica: one of the largest such amounts, and why it stays. Of a partition: its bound; its ``disk``
only spreads the rows."""


def rows_of_kind(schema: Any, kind: int, disk: Ints, **columns: Any) -> Any:
    """Return columns as rows of one kind."""
    return rows_of(schema, len(disk), kind=np.full(len(disk), kind), disk=disk, **columns)


def of_disks(disk: Ints, rows: Ints, gone: Ints, steps: Steps) -> Any:
    """Return disks with their sums, and their steps, as rows of :data:`FIRST`."""
    sums = rows_of_kind(FIRST, DISK, disk, rows=rows, gone=gone)
    return pa.concat_tables([sums, rows_of_kind(FIRST, STEP, steps.disk, age=steps.age, bytes=steps.size_bytes)])


def by_disk(rows: Any, keys: Ints) -> Any:
    """Return rows with a column disk in parcels, by groups of disks."""
    return pa.Table.from_batches([parcels(cut(rows, rows["disk"].to_numpy() % len(keys), keys))], PARCELS)


def largest(disk: Ints) -> Ints:
    """Return the first rows of each disk, as many as are shown; the rows are sorted by disk."""
    first = np.flatnonzero(begins(disk))
    place = np.arange(len(disk)) - np.repeat(first, np.diff(np.append(first, len(disk))))
    return np.flatnonzero(place < SHOWN)
