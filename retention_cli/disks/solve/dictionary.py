"""Encode an inventory as columns of numbers: topics, partitions and log dirs are numbered, the rest is unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from retention_cli.core.extras import arrow
from retention_cli.core.model import TopicPartition
from retention_cli.disks.inventory.errors import InventoryError
from retention_cli.disks.solve.segments import NO_END, UNDATED, Ints, Segments, slabs

_NUMBERS: Final = ("base_offset", "next_offset", "bytes", "largest_timestamp")
_SPARSE: Final = 4
"""If there are more than this many possible partition numbers per row, partitions are numbered by sorting."""


class LogDir(NamedTuple):
    """One log dir of one broker."""

    broker: int
    path: str

    def __str__(self) -> str:
        return f"broker {self.broker}, {self.path}"


@dataclass(frozen=True, slots=True)
class EncodedSegments:
    """Segments, and what their numbers mean: ``dirs[d]`` and ``partitions[p]``, both sorted.

    ``segments.disk`` numbers log dirs; :meth:`on_disks` replaces these by disks, which may have several log dirs.
    """

    segments: Segments
    partitions: Sequence[TopicPartition]
    dirs: Sequence[LogDir]

    def on_disks(self, disk_of: Sequence[int]) -> Segments:
        """Return the segments with disk numbers instead: ``disk_of[d]`` is the disk of ``dirs[d]``."""
        numbers = np.asarray(disk_of, dtype=np.int32)
        s = self.segments
        return Segments(
            numbers[s.disk] if len(numbers) else s.disk,
            s.partition,
            s.base_offset,
            s.next_offset,
            s.size_bytes,
            s.largest_timestamp,
            s.active,
        )


def encoded(column: Callable[[str], Any]) -> EncodedSegments:
    """Return an inventory's columns with numbers instead of names.

    Args:
        column: returns a column of the inventory by its name, as a pyarrow ChunkedArray: ``table.column``, or a
            function that reads one column at a time.

    Raises:
        InventoryError: a row lacks a required value.
    """
    topics, topic = words(column("topic"))
    partition, partitions = _partitions(topics, topic, _whole(column("partition"), "partition").astype(np.int32))
    del topic
    dirs, disk = _dirs(column)
    return EncodedSegments(
        Segments(
            disk,
            partition,
            _whole(column("base_offset"), "base_offset"),
            _whole(column("next_offset"), "next_offset", NO_END),
            _whole(column("bytes"), "bytes"),
            _whole(column("largest_timestamp"), "largest_timestamp", UNDATED),
            _whole(column("active"), "active").astype(np.bool_),
        ),
        partitions,
        dirs,
    )


def _dirs(column: Callable[[str], Any]) -> tuple[list[LogDir], Ints]:
    paths, path = words(column("dir"))
    broker, count = _whole(column("broker"), "broker"), max(1, len(paths))
    used, numbers = numbered(len(path), lambda some: broker[some].astype(np.int64) * count + path[some])
    return [LogDir(one // count, paths[one % count]) for one in used], numbers


def numbered(count: int, key_of: Callable[[slice], Ints]) -> tuple[list[int], Ints]:
    """Return the distinct keys of so many rows, sorted, and each row's number among them."""
    keys = np.unique(np.concatenate([np.empty(0, np.int64), *(np.unique(key_of(some)) for some in slabs(count))]))
    found = np.empty(count, dtype=np.int32)
    for some in slabs(count):
        found[some] = np.searchsorted(keys, key_of(some))
    return keys.tolist(), found


def _whole(column: Any, name: str, instead: int | None = None) -> Ints:
    """Return a column's numbers, with ``instead`` for nulls."""
    if column.null_count:
        if instead is None:
            raise InventoryError(f"the inventory's column {name} has {column.null_count:,} rows without a value")
        column = arrow("pyarrow.compute").fill_null(column, instead)
    numbers: Ints = column.to_numpy()
    return numbers


def words(column: Any) -> tuple[list[str], Ints]:
    """Return a column's distinct texts, sorted, and each row's number among them."""
    if column.null_count:
        raise InventoryError("the inventory has rows without a topic or a dir")
    if not arrow().types.is_dictionary(column.type):
        column = column.cast(arrow().string()).dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    if hasattr(whole, "chunks"):  # older pyarrow returns a chunked array of one chunk
        whole = whole.chunk(0) if whole.num_chunks else arrow().array([], column.type)
    found = whole.dictionary.to_pylist()
    ranks = np.empty(len(found), dtype=np.int32)
    order = sorted(range(len(found)), key=found.__getitem__)
    ranks[order] = np.arange(len(found), dtype=np.int32)
    return [found[n] for n in order], ranks[whole.indices.to_numpy(zero_copy_only=False)]


def _partitions(topics: list[str], topic: Ints, index: Ints) -> tuple[Ints, list[TopicPartition]]:
    """Number the partitions in the order of (topic, partition), without sorting if partition numbers are dense."""
    if not len(topic):
        return np.empty(0, dtype=np.int32), []
    if int(index.min()) < 0:
        raise InventoryError(f"the inventory has a partition {int(index.min())}")
    width = np.zeros(len(topics), dtype=np.int64)
    for some in slabs(len(topic)):
        np.maximum.at(width, topic[some], index[some].astype(np.int64) + 1)
    shelf = np.cumsum(width) - width
    if int(width.sum()) > _SPARSE * len(topic):
        used, numbers = numbered(len(topic), lambda some: topic[some].astype(np.int64) << 32 | index[some])
        return numbers, [TopicPartition(topics[one >> 32], one & 0xFFFFFFFF) for one in used]
    numbers = np.empty(len(topic), dtype=np.int32)
    for some in slabs(len(topic)):
        numbers[some] = shelf[topic[some]] + index[some]
    names = [TopicPartition(name, n) for name, count in zip(topics, width.tolist(), strict=True) for n in range(count)]
    return numbers, names
