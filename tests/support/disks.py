"""Disks as tests say them: columns of segments from rows, brokers' log dirs, and R6 in plain loops (docs/rules.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
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


def log_dirs_by_turns(looks: Iterator[Mapping[int, Sequence[LogDirState] | Exception]]) -> Any:
    """Return a reader of which each look at the log dirs gets the next of these answers."""
    return SimpleNamespace(brokers=lambda: [1], log_dirs=lambda _brokers: dict(next(looks)))


class Row(NamedTuple):
    """One segment of one replica."""

    disk: int
    partition: int
    base: int
    next: int
    size: int
    time: int
    active: bool


class Closed(NamedTuple):
    """A closed segment of one replica: its disk, where it ends, its bytes and its largest timestamp (below 0: unknown)."""

    disk: Any
    end: int
    size_bytes: int
    newest_ms: int


class Candidate(NamedTuple):
    """An offset at which a closed segment ends on some replica, in the order of the walk."""

    newest_ms: int
    tp: Any
    end: int


@dataclass
class Walk:
    """R6's walk over all closed segments, by partition.

    ``own`` is where the other rules trim to, ``left`` what is left to take of each disk, ``taken`` where R6 trims to.
    """

    closed: Mapping[Any, Sequence[Closed]]
    own: Mapping[Any, int]
    left: dict[Any, int]
    taken: dict[Any, int] = field(default_factory=dict)

    def candidates(self, limits: Mapping[Any, int]) -> list[Candidate]:
        """Return what may go, the oldest first; what stands behind a segment of an unknown age stays."""
        found = []
        for tp, limit in limits.items():
            newest = -1
            held = [one for one in self.closed.get(tp, ()) if self.own.get(tp, 0) < one.end <= limit]
            for end in sorted({one.end for one in held}):
                times = [one.newest_ms for one in held if one.end == end]
                if min(times) < 0:
                    break
                newest = max(newest, *times)
                found.append(Candidate(newest, tp, end))
        return sorted(found)

    def take(self, one: Candidate) -> None:
        """Take a candidate: every replica loses its own segments up to it."""
        after = max(self.own.get(one.tp, 0), self.taken.get(one.tp, 0))
        self.taken[one.tp] = one.end
        for held in self.closed[one.tp]:
            if after < held.end <= one.end:
                self.left[held.disk] -= held.size_bytes

    def holders(self, one: Candidate) -> set[Any]:
        return {held.disk for held in self.closed[one.tp] if held.end == one.end}

    def bounds(self, limits: Mapping[Any, int]) -> dict[Any, int]:
        """Walk up to these limits; return where R6 trims to beyond the other rules."""
        for one in self.candidates(limits):
            if any(self.left[disk] > 0 for disk in self.holders(one)):
                self.take(one)
        return self.taken
