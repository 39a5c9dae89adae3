"""Disks as tests say them: columns of segments from rows, brokers' log dirs, and R6 in plain loops (docs/rules.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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


class Row(NamedTuple):
    """One segment of one replica."""

    disk: int
    partition: int
    base: int
    next: int
    size: int
    time: int
    active: bool


@dataclass
class Simulation:
    """The brokers' disks, and what goes of them."""

    rows: Sequence[Row]
    above: dict[int, int]
    """Bytes above the ceiling, by disk; falls while segments go."""
    bounds: dict[int, int]
    gone: set[int] = field(default_factory=set)
    freed: dict[int, int] = field(default_factory=dict)

    def trim(self, partition: int, to: int) -> None:
        """Trim a partition: every replica drops its own segments wholly below, but for the active one."""
        self.bounds[partition] = to
        for number, row in enumerate(self.rows):
            if row.partition == partition and not row.active and row.next <= to and number not in self.gone:
                self.gone.add(number)
                self.above[row.disk] -= row.size
                self.freed[row.disk] = self.freed.get(row.disk, 0) + row.size


def simulate(
    rows: Sequence[Row], start: Mapping[int, int], limit: Mapping[int, int], excess: Mapping[int, int]
) -> tuple[Simulation, dict[int, int]]:
    """Return how it ends, and what the other rules' trims had freed before R6's walk began."""
    world = Simulation(rows, dict(excess), dict(start))
    for partition, offset in start.items():
        world.trim(partition, offset)
    before = dict(world.freed)
    left = [row for number, row in enumerate(rows) if number not in world.gone and not row.active]
    walk = []
    for row in left:
        so_far = [one for one in left if one.partition == row.partition and one.next <= row.next]
        if any(one.time < 0 for one in so_far):  # its age is unknown
            continue
        walk.append((max(one.time for one in so_far), row.partition, row.next, row.disk))
    for time, partition, offset in sorted({one[:3] for one in walk}):
        holders = {disk for *where, disk in walk if where == [time, partition, offset]}
        if offset <= limit[partition] and any(world.above[disk] > 0 for disk in holders):
            world.trim(partition, offset)
    return world, before
