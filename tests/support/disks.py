"""Disks as tests say them: columns of segments from rows, and brokers' log dirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from retention_cli.brokers.log_offsets import LogDirState, Replica
from retention_cli.core.model import Maybe, TopicPartition
from retention_cli.disks.disk import DiskOutcome
from retention_cli.disks.inventory.format import Inventory, InventoryFile
from retention_cli.disks.inventory.log_dirs import LogDir
from retention_cli.disks.inventory_view import READ, InventoryView
from retention_cli.disks.water_level import Segments

ORDERS = TopicPartition("orders", 0)


def segments_of(rows: Sequence[tuple[int, ...]]) -> Segments:
    """Return rows (disk, partition, base, next, bytes, largest timestamp, active) as columns."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * 7
    disk, partition, base, following, size, time = (np.array(column, dtype=np.int64) for column in columns[:6])
    return Segments(disk, partition, base, following, size, time, np.array(columns[6], dtype=np.bool_))


def replica(tp: TopicPartition, size_bytes: int, *, future: bool = False) -> Replica:
    return Replica(tp, size_bytes, future)


def log_dir(
    path: str,
    total_bytes: Maybe[int] = 1000,
    usable_bytes: Maybe[int] = 400,
    replicas: Sequence[Replica] = (replica(ORDERS, 500),),
    error: str | None = None,
) -> LogDirState:
    return LogDirState(path, total_bytes, usable_bytes, replicas, error)


def view_of(
    rows: Sequence[tuple[Any, ...]],
    incomplete: Mapping[tuple[int, str, int], str] | None = None,
    dirs: Sequence[LogDir] = (),
) -> InventoryView:
    """Return an inventory of rows (broker, dir, partition, topic id, base, next, bytes, log bytes, time, active, epoch)."""
    cells = [(broker, path, tp.topic, topic_id, tp.partition, *more) for broker, path, tp, topic_id, *more in rows]
    kinds = (
        *(pa.int32(), pa.string(), pa.string(), pa.string(), pa.int32()),
        *[pa.int64()] * 5,
        pa.bool_(),
        pa.int32(),
    )
    columns = list(zip(*cells, strict=True)) if cells else [()] * len(READ)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    table = pa.table([one.dictionary_encode() if one.type == pa.string() else one for one in arrays], READ)
    return InventoryView(
        Inventory((InventoryFile("a.parquet", 1, "cluster-1", 0, tuple(dirs)),), table, dict(incomplete or {}))
    )


def in_the_way_bytes(outcome: DiskOutcome) -> Counter[TopicPartition]:
    """Return how much of each partition is named as what keeps a disk above its ceiling."""
    found: Counter[TopicPartition] = Counter()
    for row in outcome.in_the_way:
        found[row.tp] += row.size_bytes
    return found


@dataclass
class LogDirAnswers:
    """A reader of which each look at the log dirs gets the next of these answers."""

    looks: Iterator[Mapping[int, Sequence[LogDirState] | Exception]]

    def brokers(self) -> list[int]:
        return [1]

    def log_dirs(self, _brokers: object) -> dict[int, Sequence[LogDirState] | Exception]:
        return dict(next(self.looks))
