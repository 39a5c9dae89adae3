"""R6's walk by disks, in tasks that have all rows of some disks (R6): joined sums, and the walk itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_cli.disks.solve.segments import Ints, add_up
from retention_cli.disks.solve.steps import steps_of
from retention_cli.disks.solve.walk import Candidates, walk
from retention_cli.disks.solve.water_level import NO_LEVEL
from retention_cli.engines.spark.parcels import Task, opened, parcels, rows_of, whole
from retention_cli.engines.spark.slabs import parcels_by_slab, partitions_of
from retention_cli.engines.spark.walk_rows import (
    DISK,
    LAST,
    PARTITION,
    REPLICA,
    STEP,
    WALKED,
    largest,
    of_disks,
    rows_of_kind,
)

_STEPS: Final = 256
"""In how many steps the client gets how old a disk's candidates are."""


def join_first(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows of :data:`FIRST` as one parcel, one row per disk, from those of several slabs."""
    if (table := whole(batches)) is not None:
        found = opened(table["payload"])
        kind = found["kind"].to_numpy()
        disks, steps = found.filter(pa.array(kind == DISK)), found.filter(pa.array(kind == STEP))
        disk, place = np.unique(disks["disk"].to_numpy(), return_inverse=True)
        rows, gone = (add_up(disks[name].to_numpy(), place, len(disk)) for name in ("rows", "gone"))
        few = steps_of(steps["disk"].to_numpy(), steps["age"].to_numpy(), steps["bytes"].to_numpy(), _STEPS)
        others = found.filter(pa.array(kind > STEP))
        yield parcels([(0, pa.concat_tables([of_disks(disk, rows, gone, few), others]))])


def walker(remaining: Ints, keys: Ints) -> Task:
    """Return a task from all rows of :data:`GOING` of some disks to rows of :data:`WALKED`, in parcels by slab.

    Args:
        remaining: by disk number, the bytes that R6 must free.
        keys: the slabs' keys.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if (table := whole(batches)) is None:
            return
        found = opened(table["payload"])
        names = partitions_of(found)
        counts = pc.list_value_length(found["next"]).to_numpy()
        following, size, age = (pc.list_flatten(found[name]).to_numpy() for name in ("next", "bytes", "age"))
        disk, partition = (np.repeat(one, counts) for one in (found["disk"].to_numpy(), names.numbers[0]))
        walked = walk(Candidates(disk, partition, following, size, age), remaining)
        key, replica = np.unique(walked.disk.astype(np.int64) * len(names) + walked.partition, return_inverse=True)
        upto, newest = np.full(len(key), -1, dtype=np.int64), np.full(len(key), NO_LEVEL, dtype=np.int64)
        np.maximum.at(upto, replica, walked.next_offset)
        np.maximum.at(newest, replica, walked.age)
        trims = {"disk": key // len(names), "next": upto, "age": newest}
        yield parcels_by_slab(rows_of(WALKED, len(key), **trims, **names.names(key % len(names))), keys)

    return run


def join_last(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows of :data:`LAST` as one parcel, one per disk and the largest amounts that stay, from several slabs."""
    if (table := whole(batches)) is None:
        return
    found = opened(table["payload"])
    kind = found["kind"].to_numpy()
    disks, replicas, rest = (found.filter(pa.array(kind == one)) for one in (DISK, REPLICA, PARTITION))
    disk, place = np.unique(disks["disk"].to_numpy(), return_inverse=True)
    level = np.full(len(disk), NO_LEVEL, dtype=np.int64)
    np.maximum.at(level, place, disks["level"].to_numpy())
    sums = {name: add_up(disks[name].to_numpy(), place, len(disk)) for name in ("rows", "freed", "many")}
    [number] = partitions_of(replicas).numbers
    on = replicas["disk"].to_numpy()
    order = np.lexsort((replicas["why"].to_numpy(), number, -replicas["bytes"].to_numpy(), on))
    few = replicas.take(pa.array(order[largest(on[order])]))
    yield parcels([(0, pa.concat_tables([rows_of_kind(LAST, DISK, disk, level=level, **sums), few, rest]))])
