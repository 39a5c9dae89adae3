"""Sum up an inventory's rows by replica, to compare each with the cluster (``disks/solve/borne_out.py``)."""

from __future__ import annotations

import numpy as np

from retention_cli.disks.solve.segments import NO_END, Ints, Segments


def summed(segments: Segments, log_bytes: Ints, log_start: Ints, first: Ints) -> tuple[Ints, ...]:
    """Return the columns of ``ScannedReplica`` from ``actives`` to ``dead_index_bytes``, a number per replica.

    Args:
        segments: the segments of replicas, one replica after the other; at least one row.
        log_bytes: their log files' bytes.
        log_start: S of each row's partition.
        first: the first row of each replica.
    """
    s = segments
    ends = np.where(s.next_offset == NO_END, -1, s.next_offset)
    live = ~s.active & (s.next_offset > log_start)
    indexes = np.maximum(s.size_bytes - log_bytes, 0)
    return (
        np.add.reduceat(s.active.astype(np.int64), first),
        np.maximum.reduceat(np.where(s.active, s.base_offset, -1), first),
        np.minimum.reduceat(s.base_offset, first),
        np.maximum.reduceat(s.base_offset, first),
        np.maximum.reduceat(ends, first),
        np.add.reduceat(log_bytes, first),
        np.add.reduceat(np.where(live, log_bytes, 0), first),
        np.add.reduceat(np.where(s.active, np.minimum(log_bytes, s.size_bytes), 0), first),  # preallocated
        np.add.reduceat(indexes, first),
        np.add.reduceat(np.where(s.active | live, 0, indexes), first),
    )
