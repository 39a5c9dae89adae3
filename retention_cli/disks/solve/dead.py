"""Segments below S: bytes that leave disks without a trim, as far as brokers have not swept them yet (R6). Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from retention_cli.disks.solve.segments import Flags, Ints, Segments, add_up, slabs


class DeadReplicas(NamedTuple):
    """Replicas with segments below S: columns of equal length.

    ``below_bytes`` are the log bytes of these segments, ``above_bytes`` those of the replica's other segments.
    """

    disk: Ints
    partition: Ints
    below_bytes: Ints
    above_bytes: Ints


def dead_replicas(segments: Segments, log_bytes: Ints, dead: Flags) -> DeadReplicas:
    """Return the replicas with dead segments.

    Args:
        segments: all segments of some replicas.
        log_bytes: their log files' bytes.
        dead: which of them are closed, and wholly below S.
    """
    count = int(segments.partition.max()) + 1 if len(segments) else 1
    holding, at = np.unique(
        segments.disk[dead].astype(np.int64) * count + segments.partition[dead], return_inverse=True
    )
    below = add_up(log_bytes[dead], at, len(holding))
    above = np.zeros(len(holding), dtype=np.int64)
    for some in slabs(len(segments)) if len(holding) else ():
        key = segments.disk[some].astype(np.int64) * count + segments.partition[some]
        place = np.minimum(np.searchsorted(holding, key), len(holding) - 1)
        alive = (holding[place] == key) & ~dead[some]
        above += add_up(log_bytes[some][alive], place[alive], len(holding))
    return DeadReplicas(holding // count, holding % count, below, above)


def still_there(below_bytes: int, above_bytes: int, size_bytes: int) -> int:
    """Return how many of a replica's dead bytes are likely still on its disk.

    A broker sweeps them within minutes, so those of an old inventory no longer exist. A replica whose current size is
    that of its live segments has none left.
    """
    return min(below_bytes, max(0, size_bytes - above_bytes))
