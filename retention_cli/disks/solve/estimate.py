"""R6 without an inventory: find each disk's water level by bisecting times (R6). Pure.

Segments are unknown, so a level is a time, and every older record is trimmed. All disks are bisected at once: each
round looks up every partition's offset at the levels that its disks try. As in the exact walk, disks are independent:
the records older than a disk's own level are trimmed for that disk's sake.

What a bound frees is an estimate: a replica's bytes are assumed to be spread evenly over its offsets, and only whole
segments of ``segment.bytes`` count. The last one, which is active, never counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from retention_cli.disks.solve.segments import Ints, add_up

_NEAR: Final = 50
"""A level that frees at most a fiftieth too much is accepted once it is known to half a minute (``_FINE_MS``)."""
_FINE_MS: Final = 1 << 15


@dataclass(frozen=True, slots=True)
class Replicas:
    """A row per replica. ``size_bytes`` are the bytes of its live records, without dead bytes."""

    disk: Ints
    partition: Ints
    size_bytes: Ints


@dataclass(frozen=True, slots=True)
class Logs:
    """A row per partition: S, H, the bound without R6 (``start``), the guards' limit, and ``segment.bytes``.

    A limit below ``start`` means that R6 does not trim the partition.
    """

    log_start: Ints
    high_watermark: Ints
    start: Ints
    limit: Ints
    segment_bytes: Ints


@dataclass(frozen=True, slots=True)
class Estimate:
    """Like a :class:`~retention_cli.disks.solve.water_level.WaterLevel`, with estimated bytes.

    ``perhaps_freed`` are the bytes freed in addition to ``already_freed`` if segments are smaller than
    ``segment.bytes``, as those that roll by time are. R6 trims nothing to make up for them.
    """

    bound: Ints
    already_freed: Ints
    perhaps_freed: Ints
    freed: Ints
    short: Ints
    level_ms: Ints


class Bisection:
    """Finds each disk's level: call :meth:`wanted`, look up the offsets, pass them to :meth:`answer`, until done.

    Args:
        replicas: all replicas on the disks.
        logs: their partitions.
        excess: the bytes above each disk's ceiling; 0 or less for a disk that needs no trim.
        oldest_ms: a time (Unix ms) before which nothing was written.
        newest_ms: a time (Unix ms) after which nothing was written.
        resolution_ms: how precisely a level is found. It errs on the side of freeing enough.
    """

    def __init__(
        self, replicas: Replicas, logs: Logs, excess: Ints, oldest_ms: int, newest_ms: int, resolution_ms: int = 1000
    ) -> None:
        self._replicas, self._logs = replicas, logs
        self._resolution = resolution_ms
        disks = len(excess)
        self._already = self._freed_on(logs.start[replicas.partition], disks)
        self._perhaps = self._share_on(logs.start, disks) - self._already
        self._remaining = np.asarray(excess, dtype=np.int64) - self._already - self._perhaps
        # the upper end trims everything that the limits allow; if that is not enough, the disk stays short
        self._offset = np.maximum(logs.start, logs.limit)[replicas.partition]
        self._below = logs.start[replicas.partition]
        """Each replica's offset at the newest level that is known not to free enough."""
        self._low = np.full(disks, oldest_ms, dtype=np.int64)
        self._high = np.full(disks, newest_ms, dtype=np.int64)
        reachable = self._freed_on(self._offset, disks) - self._already >= self._remaining
        self._over = self._remaining > 0
        self._open = self._over & reachable

    def wanted(self) -> tuple[Ints, Ints]:
        """Return (partition, time in Unix ms) rows to look up, each pair once; empty when the search is done."""
        partition, times, _ = self._pairs()
        return partition, times

    def answer(self, partition: Ints, time_ms: Ints, offset: Ints) -> None:
        """Continue with the offsets of the wanted rows, in their order. Pass S for an unknown one: it trims nothing.

        Raises:
            ValueError: the rows are not those that :meth:`wanted` returned.
        """
        wanted, times, inverse = self._pairs()
        if not (np.array_equal(partition, wanted) and np.array_equal(time_ms, times)):
            raise ValueError("nothing was answered about what was wanted")
        rows = self._asked()
        logs, of = self._logs, self._replicas.partition[rows]
        tried = self._offset.copy()
        tried[rows] = np.maximum(
            logs.start[of], np.minimum(np.asarray(offset, dtype=np.int64)[inverse], logs.limit[of])
        )
        freed = self._freed_on(tried, len(self._over))
        enough = freed - self._already >= self._remaining
        middle = self._middle()
        fits = self._open & enough
        self._high = np.where(fits, middle, self._high)
        self._low = np.where(self._open & ~enough, middle, self._low)
        self._offset = np.where(fits[self._replicas.disk], tried, self._offset)
        self._below = np.where((self._open & ~enough)[self._replicas.disk], tried, self._below)
        self._open &= self._high - self._low > self._resolution
        near = freed - self._already <= self._remaining + self._remaining // _NEAR
        self._open &= ~(fits & near & (self._high - self._low <= _FINE_MS))

    def result(self) -> Estimate:
        """Return the bounds so far: they free enough where that is possible, more precisely with every round."""
        replicas = self._replicas
        bound = self._logs.start.copy()
        driving = self._over[replicas.disk]
        np.maximum.at(bound, replicas.partition[driving], self._no_more_than_enough()[driving])
        bound = self._where_it_frees(bound)
        freed = self._freed_on(bound[replicas.partition], len(self._over)) - self._already
        level = np.where(self._over, self._high, -1)
        return Estimate(bound, self._already, self._perhaps, freed, np.maximum(self._remaining - freed, 0), level)

    def _no_more_than_enough(self) -> Ints:
        """Return the offsets, limited to what each disk needs of the records between its last two levels.

        The last step may be a large one: if many records have one time, or are preceded by a newer one. Its records
        are then trimmed in the order of partitions.
        """
        replicas, logs, of = self._replicas, self._logs, self._replicas.partition
        ends = logs.log_start[of], logs.high_watermark[of], replicas.size_bytes, logs.segment_bytes[of]
        low, high = freed_bytes(self._below, *ends), freed_bytes(self._offset, *ends)
        order = np.lexsort((of, replicas.disk))
        gain = (high - low)[order]
        before = np.cumsum(gain) - gain
        disk = replicas.disk[order]
        first = np.flatnonzero(np.concatenate(([True], disk[1:] != disk[:-1]))) if len(disk) else disk
        before -= np.repeat(before[first], np.diff(np.append(first, len(disk))))
        missing = self._remaining + self._already - add_up(low, replicas.disk, len(self._over))
        needed = np.zeros(len(of), dtype=np.int64)
        needed[order] = np.clip(missing[disk] - before, 0, gain)
        records = np.maximum(logs.high_watermark - logs.log_start, 1)[of]
        whole = logs.segment_bytes[of]
        enough = -(-(low + needed) // whole) * whole + whole // 4
        upto = logs.log_start[of] + np.ceil(records * (enough / np.maximum(replicas.size_bytes, 1))).astype(np.int64)
        part: Ints = np.where(needed > 0, np.clip(upto, self._below, self._offset), self._below)
        all_of: Ints = np.where(needed < high - low, part, self._offset)
        return all_of

    def _where_it_frees(self, bound: Ints) -> Ints:
        """Return the bounds, lowered to where the last segment that they free is likely to end.

        A quarter of a segment is added, as records differ in size, but nothing of the last segment, which stays.
        Partitions that would not lose a whole segment are not trimmed.
        """
        replicas, logs, of = self._replicas, self._logs, self._replicas.partition
        freed = self._freed_of(bound)
        records = np.maximum(logs.high_watermark - logs.log_start, 1)[of]
        upto = np.minimum(
            freed + logs.segment_bytes[of] // 4, all_but_the_last(replicas.size_bytes, logs.segment_bytes[of])
        )
        ends = logs.log_start[of] + np.ceil(records * (upto / np.maximum(replicas.size_bytes, 1))).astype(np.int64)
        useful = logs.start.copy()
        gaining = freed > self._freed_of(logs.start)
        np.maximum.at(useful, of[gaining], ends[gaining])
        frees: Ints = np.minimum(bound, useful)
        return frees

    def _freed_of(self, bound: Ints) -> Ints:
        """Return the bytes of each replica that a trim to its partition's bound is likely to free."""
        replicas, logs, of = self._replicas, self._logs, self._replicas.partition
        return freed_bytes(
            bound[of], logs.log_start[of], logs.high_watermark[of], replicas.size_bytes, logs.segment_bytes[of]
        )

    def _asked(self) -> Ints:
        rows: Ints = np.flatnonzero(self._open[self._replicas.disk])
        return rows

    def _pairs(self) -> tuple[Ints, Ints, Ints]:
        """Return the partitions and times to look up, each pair once, and the pair's index for each replica asked."""
        rows = self._asked()
        times, rank = np.unique(self._middle()[self._replicas.disk[rows]], return_inverse=True)
        count = max(1, len(times))
        key, inverse = np.unique(self._replicas.partition[rows].astype(np.int64) * count + rank, return_inverse=True)
        return key // count, times[key % count] if len(times) else times, inverse

    def _middle(self) -> Ints:
        middle: Ints = self._low + (self._high - self._low) // 2
        return middle

    def _share_on(self, start: Ints, disks: int) -> Ints:
        """Return the bytes per disk below these bounds (one per partition)."""
        replicas, logs, of = self._replicas, self._logs, self._replicas.partition
        share = _share(start[of], logs.log_start[of], logs.high_watermark[of], replicas.size_bytes)
        return add_up(share, replicas.disk, disks)

    def _freed_on(self, bound: Ints, disks: int) -> Ints:
        """Return the bytes per disk that trims to these bounds (one per replica) are likely to free."""
        replicas, logs = self._replicas, self._logs
        return add_up(
            freed_bytes(
                bound,
                logs.log_start[replicas.partition],
                logs.high_watermark[replicas.partition],
                replicas.size_bytes,
                logs.segment_bytes[replicas.partition],
            ),
            replicas.disk,
            disks,
        )


def _share(bound: Ints, log_start: Ints, high_watermark: Ints, size_bytes: Ints) -> Ints:
    """Return how many of a replica's bytes are below ``bound``, if they are spread evenly over its offsets."""
    records = np.maximum(high_watermark - log_start, 1)
    going = np.clip(bound - log_start, 0, records)
    share: Ints = (size_bytes.astype(np.float64) * (going / records)).astype(np.int64)
    return share


def freed_bytes(bound: Ints, log_start: Ints, high_watermark: Ints, size_bytes: Ints, segment_bytes: Ints) -> Ints:
    """Return the bytes of a replica that a trim to ``bound`` is likely to free: whole segments, except the last."""
    share = _share(bound, log_start, high_watermark, size_bytes)
    freed: Ints = np.minimum(share // segment_bytes * segment_bytes, all_but_the_last(size_bytes, segment_bytes))
    return freed


def all_but_the_last(size_bytes: Ints, segment_bytes: Ints) -> Ints:
    """Return the bytes of a replica that are likely to be in closed segments."""
    closed: Ints = np.maximum(size_bytes - 1, 0) // segment_bytes * segment_bytes
    return closed
