"""Present runs of batches as an inventory's segments, for R5 (:mod:`retention_cli.disks.batch_sizes`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from retention_cli.brokers.wire.runs import Runs
from retention_cli.core.extras import arrow
from retention_cli.core.model import Maybe, TopicPartition, Unknown
from retention_cli.disks.inventory.inventory import Inventory
from retention_cli.disks.solve.inventory_view import InventoryView


class BatchView(InventoryView):
    """The runs read from logs, in the form of an inventory: each run is a segment, and none is active."""

    by: ClassVar = "the batches in its log"

    def __init__(self, inventory: Inventory, missing: Mapping[TopicPartition, Unknown]) -> None:
        super().__init__(inventory)
        self._unread = missing

    def _missing(self, tp: TopicPartition, leader: int | None) -> Unknown | None:
        """Return why a log could not be read, None if it was."""
        return self._unread.get(tp) or super()._missing(tp, leader)


def batch_view(
    runs: Mapping[TopicPartition, Maybe[Runs]],
    leaders: Mapping[TopicPartition, int | None],
    ids: Mapping[TopicPartition, str],
) -> BatchView:
    """Return a view of runs as segments.

    Args:
        runs: each partition's runs, or why they are unknown.
        leaders: the broker id of the leader that each was read from.
        ids: the topic ids.
    """
    pa = arrow()
    missing: dict[TopicPartition, Unknown] = {}
    read: dict[TopicPartition, Runs] = {}
    for tp, one in runs.items():
        if isinstance(one, Unknown):
            missing[tp] = one
        elif leaders[tp] is None:
            missing[tp] = Unknown.because("R5", "it has no leader")
        else:
            read[tp] = one
    order = sorted(read)
    counts = [max(1, len(read[tp].base_offset)) for tp in order]

    def repeated(values: list[object], kind: object) -> object:
        return pa.array(values, kind).take(pa.array(np.repeat(np.arange(len(order)), counts)))

    def joined(name: str, blank: int) -> object:
        # An empty log becomes one empty run.
        parts = [getattr(read[tp], name) or [blank] for tp in order]
        return pa.array(np.concatenate([np.asarray(one, dtype=np.int64) for one in parts]) if parts else [], pa.int64())

    size, newest = joined("size_bytes", 0), joined("largest_timestamp", -1)
    columns = {
        "broker": repeated([leaders[tp] for tp in order], pa.int32()),
        "dir": repeated(["" for _ in order], pa.string()),
        "topic": repeated([tp.topic for tp in order], pa.string()),
        "topic_id": repeated([ids[tp] for tp in order], pa.string()),
        "partition": repeated([tp.partition for tp in order], pa.int32()),
        "base_offset": joined("base_offset", 0),
        "next_offset": joined("next_offset", 0),
        "bytes": size,
        "log_bytes": size,
        "largest_timestamp": arrow("pyarrow.compute").if_else(arrow("pyarrow.compute").less(newest, 0), None, newest),
        "active": pa.array([False] * sum(counts), pa.bool_()),
        "leader_epoch": pa.nulls(sum(counts), pa.int32()),
    }
    for name in ("dir", "topic", "topic_id"):
        columns[name] = columns[name].dictionary_encode()
    return BatchView(Inventory((), pa.table(columns), {}), missing)
