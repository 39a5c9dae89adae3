"""A slab's segments as bytes: each column in as few bytes a number as its range needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from retention_cli.disks.solve.segments import NO_END, Flags, Ints
from retention_cli.engines.spark.parcels import from_bytes, to_bytes

_LOW: Final = b"low"
_WIDTHS: Final = ((1 << 8, np.uint8), (1 << 16, np.uint16), (1 << 32, np.uint32))
_ACTIVE, _ENDLESS = 1, 2


class Run(NamedTuple):
    """Segments of replicas as columns; ``next_offset`` is ``NO_END`` if unknown."""

    base_offset: Ints
    next_offset: Ints
    size_bytes: Ints
    log_bytes: Ints
    largest_timestamp: Ints
    active: Flags

    def take(self, which: Ints | slice) -> Run:
        """Return some of them."""
        return Run(*(column[which] for column in self))


def packed(run: Run) -> bytes:
    """Return segments as bytes.

    In a run each segment ends where the next one begins, unless its end is unknown, so ends are left out.
    """
    flags = run.active * _ACTIVE + (run.next_offset == NO_END) * _ENDLESS
    columns = (run.base_offset, run.size_bytes, run.size_bytes - run.log_bytes, run.largest_timestamp, flags)
    narrow = [_narrowed(column) for column in columns]
    schema = pa.schema([(str(n), pa.from_numpy_dtype(one.dtype)) for n, (_, one) in enumerate(narrow)])
    about = {_LOW: json.dumps([low for low, _ in narrow]).encode()}
    return to_bytes(
        pa.RecordBatch.from_arrays([pa.array(one) for _, one in narrow], schema=schema.with_metadata(about))
    )


def unpacked(payloads: Sequence[Any], counts: Ints, last_next: Ints) -> Run:
    """Return the segments in bytes of :func:`packed`, one after the other.

    Args:
        payloads: the bytes.
        counts: how many segments each run has; none is empty.
        last_next: where each run's last segment ends.
    """
    rows = int(counts.sum())
    columns: list[Ints] = [np.empty(rows, dtype=np.int64) for _ in range(4)]
    columns.append(np.empty(rows, dtype=np.uint8))
    end = 0
    for table in map(from_bytes, payloads):
        start, end = end, end + len(table)
        lows = json.loads(table.schema.metadata[_LOW])
        for column, low, into in zip(table.columns, lows, columns, strict=True):
            np.add(column.to_numpy(), np.int64(low), out=into[start:end], casting="unsafe")  # flags fit in a byte
    base, size, more, time, flags = columns
    following = np.empty_like(base)
    following[:-1] = base[1:]
    following[np.cumsum(counts) - 1] = last_next
    following[flags & _ENDLESS != 0] = NO_END
    return Run(base, following, size, size - more, time, flags & _ACTIVE != 0)


def _narrowed(column: Ints) -> tuple[int, Any]:
    """Return a column less its least number, in as few bytes as it needs, and that number."""
    low, span = int(column.min()), int(column.max()) - int(column.min())
    for width, kind in _WIDTHS:
        if span < width:
            return low, (column - low).astype(kind)
    return 0, column.astype(np.int64)
