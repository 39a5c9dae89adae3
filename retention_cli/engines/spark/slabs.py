"""A slab in a task: all segments of some partitions, opened from parcels as numpy columns.

R6's ages, R5's tails and whole segments need all of a partition and nothing of others, so a cluster is solved slab by
slab by the functions that solve it in one process (:mod:`retention_cli.disks.solve`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_cli.disks.solve.dictionary import words
from retention_cli.disks.solve.segments import Flags, Ints, Segments
from retention_cli.engines.spark.packed import Run, packed, unpacked
from retention_cli.engines.spark.parcels import PARCELS, cut, opened, parcels, slab_numbers, stretches, to_bytes, whole
from retention_cli.engines.spark.schemas import ddl
from retention_cli.engines.spark.worker import settle

SLABS: Final = pa.schema([("key", pa.int32()), ("runs", pa.binary()), ("segments", pa.binary())])
"""Runs of a slab: a table of :data:`RUNS` as bytes, and their segments, :func:`~packed.packed`."""

RUNS: Final = pa.schema(
    [
        ("file", pa.int32()),
        ("broker", pa.int32()),
        ("dir", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("topic_id", pa.string()),
        ("leader_epoch", pa.int32()),
        ("first_row", pa.int64()),
        ("last_row", pa.int64()),
        ("first_base", pa.int64()),
        ("last_base", pa.int64()),
        ("last_next", pa.int64()),
    ]
)
"""A run of adjacent segments of one replica and one topic id, by row numbers in its file. ``topic_id`` and
``leader_epoch`` may be null; ``last_next`` is ``NO_END`` if unknown."""

Dirs = Mapping[tuple[int, str], int]
"""Disk numbers by (broker, dir)."""


@dataclass(frozen=True, slots=True)
class Slab:
    """Runs and their segments; ``counts`` are the segments of each run."""

    runs: Any
    segments: Run
    counts: Ints

    def take(self, which: Ints) -> Slab:
        """Return some runs, by number, in this order."""
        counts = self.counts[which]
        first = np.cumsum(self.counts) - self.counts
        rows = np.repeat(first[which] - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
        return Slab(self.runs.take(pa.array(which)), self.segments.take(rows), counts)

    def numbers(self, name: str) -> Ints:
        """Return a column of numbers of the runs."""
        column: Ints = self.runs[name].to_numpy()
        return column

    def on_disks(self, disk: Ints, partition: Ints) -> Segments:
        """Return the segments, given each run's disk and partition number."""
        s, counts = self.segments, self.counts
        return Segments(
            np.repeat(disk.astype(np.int32), counts),
            np.repeat(partition.astype(np.int32), counts),
            s.base_offset,
            s.next_offset,
            s.size_bytes,
            s.largest_timestamp,
            s.active,
        )

    def of_logs(self, partition: Ints) -> Segments:
        """Return the segments with the bytes of their log files alone, given each run's partition number."""
        whole_segments = self.on_disks(np.zeros(len(self.counts), dtype=np.int32), partition)
        return replace(whole_segments, size_bytes=self.segments.log_bytes)

    def disks(self, dirs: Dirs, nowhere: int) -> Ints:
        """Return each run's disk number; ``nowhere`` for dirs that have none."""
        paths, path = words(self.runs["dir"])
        width = max(1, len(paths))
        used, inverse = np.unique(self.numbers("broker").astype(np.int64) * width + path, return_inverse=True)
        places = [divmod(one, width) for one in used.tolist()]
        return np.array([dirs.get((broker, paths[at]), nowhere) for broker, at in places], dtype=np.int32)[inverse]

    def cut(self, group: Ints, keys: Ints) -> Any:
        """Return the runs by group, as a table of :data:`SLABS`.

        Args:
            group: each run's group.
            keys: the groups' keys.
        """
        found = self.take(np.argsort(group, kind="stable"))
        upto = np.append(0, np.cumsum(found.counts))
        rows: list[list[Any]] = [[], [], []]
        for one, start, end in stretches(np.sort(group)):
            rows[0].append(int(keys[one]))
            rows[1].append(to_bytes(found.runs.slice(start, end - start)))
            rows[2].append(packed(found.segments.take(slice(upto[start], upto[end]))))
        return pa.Table.from_arrays([pa.array(*one) for one in zip(rows, SLABS.types, strict=True)], schema=SLABS)


def slab_of(rows: Any) -> Slab:
    """Return the slab in rows of :data:`SLABS`."""
    if not len(rows):
        nothing = np.empty(0, dtype=np.int64)
        run = Run(nothing, nothing, nothing, nothing, nothing, np.empty(0, dtype=np.bool_))
        return Slab(RUNS.empty_table(), run, nothing)
    runs = opened(rows["runs"])
    counts = runs["last_row"].to_numpy() - runs["first_row"].to_numpy() + 1
    segments = [one.as_buffer() for one in rows["segments"]]
    return Slab(runs, unpacked(segments, counts, runs["last_next"].to_numpy()), counts)


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions in some tables, numbered in their order; ``numbers`` has those of each table's rows."""

    topics: Any
    partitions: Ints
    numbers: Sequence[Ints]

    def __len__(self) -> int:
        return len(self.partitions)

    def names(self, numbers: Ints) -> dict[str, Any]:
        """Return the topics and partitions of numbers, as columns."""
        which = pa.array(numbers)
        return {"topic": self.topics.take(which), "partition": pa.array(self.partitions).take(which)}


def partitions_of(*tables: Any) -> Partitions:
    """Number the partitions in columns topic and partition of tables."""
    chunks = [chunk for table in tables for chunk in table["topic"].chunks]
    texts, topic = words(pa.chunked_array(chunks, pa.string()))
    numbers = np.concatenate([table["partition"].to_numpy() for table in tables])
    used, inverse = np.unique(topic.astype(np.int64) << 32 | numbers, return_inverse=True)
    cuts = np.cumsum([len(table) for table in tables])[:-1]
    topics = pa.array(texts, pa.string()).take(pa.array(used >> 32))
    return Partitions(topics, used & 0xFFFFFFFF, np.split(inverse, cuts))


def equal_texts(left: Any, right: Any) -> Flags:
    """Return a mask of the rows that have the same text in both columns; a null is equal to none."""
    found: Flags = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
    return found


Solve = Callable[[Slab, Mapping[int, Any]], Any]
"""Returns rows (a table) from a slab and the other tables of its partitions, by kind."""


def solved(slabs: Any, others: Any, solve: Solve, schema: Any) -> Any:
    """Return the rows that tasks make of slabs, where they are, and of what else is known of their partitions.

    Args:
        slabs: a frame of :data:`SLABS`.
        others: a frame of key, kind and payload (:func:`by_slab`).
        solve: what a task does with a slab; it may have no runs, or no other tables.
        schema: of the rows that it returns.
    """

    def run(left: Any, right: Any) -> Any:
        settle()
        kinds: dict[int, list[Any]] = {}
        for kind, payload in zip(right["kind"].to_pylist(), right["payload"], strict=True):
            kinds.setdefault(kind, []).append(payload)
        return solve(slab_of(left), {kind: opened(some) for kind, some in kinds.items()})

    return slabs.groupBy("key").cogroup(others.groupBy("key")).applyInArrow(run, ddl(schema))


def by_slab(rows: Any, keys: Ints, kind: int) -> Any:
    """Return rows with columns topic and partition as parcels of their slabs: a frame of key, payload and kind.

    Args:
        rows: a frame.
        keys: the slabs' keys.
        kind: tells these rows from others of the same slabs.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if (table := whole(batches)) is not None:
            yield parcels_by_slab(table, keys)

    return of_kind(rows.mapInArrow(run, ddl(PARCELS)), kind)


def of_kind(parts: Any, kind: int) -> Any:
    """Return a frame of parcels with their kind."""
    from pyspark.sql import functions as f

    return parts.withColumn("kind", f.lit(kind))


def parcels_by_slab(table: Any, keys: Ints) -> pa.RecordBatch:
    """Return rows with columns topic and partition as parcels of their slabs."""
    return parcels(cut(table, slab_numbers(table["topic"], table["partition"].to_numpy(), len(keys)), keys))
