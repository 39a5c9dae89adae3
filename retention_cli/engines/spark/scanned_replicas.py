"""Summarize each replica in Spark's inventory, over all its segments, to compare it with the cluster (R6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_cli.core.model import TopicPartition
from retention_cli.disks.solve.borne_out import ScannedReplica
from retention_cli.disks.solve.dictionary import words
from retention_cli.disks.solve.summed import summed
from retention_cli.engines.spark.frames import as_frame
from retention_cli.engines.spark.inventory import SparkInventory
from retention_cli.engines.spark.parcels import begins, rows_of
from retention_cli.engines.spark.slabs import Slab, of_kind, parcels_by_slab, partitions_of, solved

_STARTS: Final = 0
_KEY: Final = ("broker", "dir", "topic", "partition")
_SUMMED: Final = ScannedReplica._fields[ScannedReplica._fields.index("actives") : -1]
_SUMMARY: Final = pa.schema(
    [
        ("broker", pa.int32()),
        ("dir", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("topic_id", pa.string()),
        *((name, pa.int64()) for name in _SUMMED),
        ("leader_epoch", pa.int32()),
    ]
)


def scanned_replicas(inventory: SparkInventory, log_starts: Mapping[TopicPartition, int]) -> Iterator[ScannedReplica]:
    """Yield a summary of each replica.

    Args:
        inventory: the cluster's inventory.
        log_starts: S of partitions, where it is known.
    """
    table = pa.table(
        {
            "topic": pa.array([tp.topic for tp in log_starts], pa.string()),
            "partition": pa.array([tp.partition for tp in log_starts], pa.int32()),
            "log_start": pa.array(list(log_starts.values()), pa.int64()),
        }
    )
    session: Any = inventory.slabs.sparkSession
    starts = as_frame(session, pa.Table.from_batches([parcels_by_slab(table, inventory.keys)]))
    found = solved(inventory.slabs, of_kind(starts, _STARTS), _summaries, _SUMMARY).toArrow()
    for batch in found.to_batches():
        for broker, folder, topic, partition, *rest in zip(*(one.to_pylist() for one in batch.columns), strict=True):
            yield ScannedReplica(broker, folder, TopicPartition(topic, partition), *rest)


def _summaries(slab: Slab, others: Mapping[int, Any]) -> Any:
    """Return rows of :data:`_SUMMARY` from a slab and its partitions' S."""
    if not len(slab.counts):
        return _SUMMARY.empty_table()
    columns = {name: slab.numbers(name) for name in ("broker", "partition", "first_row")}
    columns |= {name: words(slab.runs[name])[1] for name in ("dir", "topic")}
    order = np.lexsort([columns[name] for name in ("first_row", *reversed(_KEY))])
    replicas = np.flatnonzero(begins(*(columns[name][order] for name in _KEY)))
    slab = slab.take(order)
    runs = slab.runs
    names, name = words(pc.fill_null(runs["topic_id"], ""))
    low, high = np.minimum.reduceat(name, replicas), np.maximum.reduceat(name, replicas)
    ids = [names[one] or None if one == other else None for one, other in zip(low, high, strict=True)]
    epochs = np.maximum.reduceat(pc.fill_null(runs["leader_epoch"], -1).to_numpy(), replicas)
    starts = others.get(_STARTS)
    partitions = partitions_of(runs) if starts is None else partitions_of(runs, starts)
    log_start = np.zeros(len(partitions), dtype=np.int64)
    if starts is not None:
        log_start[partitions.numbers[1]] = starts["log_start"].to_numpy()
    first = (np.cumsum(slab.counts) - slab.counts)[replicas]
    segments = slab.on_disks(np.zeros(len(slab.counts)), partitions.numbers[0])
    sums = summed(segments, slab.segments.log_bytes, log_start[segments.partition], first)
    few = runs.select([*_KEY]).take(pa.array(replicas))
    return rows_of(
        _SUMMARY,
        len(replicas),
        **{name: few[name] for name in _KEY},
        topic_id=pa.array(ids, pa.string()),
        **dict(zip(_SUMMED, sums, strict=True)),
        leader_epoch=pa.array(epochs, pa.int32(), mask=epochs < 0),
    )
