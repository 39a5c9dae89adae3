"""Make a forecast of one disk: when it is full, and when R6 comes to which records. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from retention_cli.core.model import Maybe, Sample, TopicPartition, Unknown
from retention_cli.disks.solve.room import Disk, ceiling_bytes
from retention_cli.forecast.fills import Growing, full_in
from retention_cli.forecast.make import PartitionForecast
from retention_cli.forecast.span import Span
from retention_cli.forecast.steady import COMPACT
from retention_cli.forecast.value import DiskForecast
from retention_cli.memory.disk import Growth


def forecast_disk(
    disk: Disk,
    growth: Maybe[Growth],
    percent: float | None,
    parts: Mapping[TopicPartition, PartitionForecast],
) -> DiskForecast:
    """Return a disk's forecast: each of its replicas grows like its partition."""
    room = disk.room
    if isinstance(room, Unknown):
        return DiskForecast(disk, percent, room, room, room, None if percent is None else room, 0)
    still = max(0, room.used_bytes - sum(_managed(disk, parts).values()))
    grows = _growing(disk, parts)
    if isinstance(grows, Unknown):
        return DiskForecast(disk, percent, growth, grows, grows, None if percent is None else grows, still)
    left = room.total_bytes - room.used_bytes
    below = None if percent is None else ceiling_bytes(room, percent) - room.used_bytes
    return DiskForecast(
        disk,
        percent,
        growth,
        full_in(left, grows.alone),
        full_in(left, grows.policy),
        None if below is None else full_in(below, grows.policy),
        still,
    )


class Queued(NamedTuple):
    """A partition whose unread records R6 may take: what was written by when.

    ``samples`` are the high watermarks seen, oldest first; ``each`` is how many bytes an offset takes.
    """

    tp: TopicPartition
    samples: Sequence[Sample]
    log_start: int
    each: Maybe[Span]
    segment_bytes: Maybe[int]


@dataclass(slots=True)
class Queue:
    """How long until R6 comes to a record on a disk: it takes the oldest of all topics first.

    That is at the soonest when the disk has gained what it may, and as much again as is older for certain and may be
    taken: those bytes go before. ``older_ms`` are times (Unix ms) and ``older_bytes`` how much was written by then.
    ``problem`` is why nothing is known.
    """

    problem: Unknown | None = None
    room_bytes: float = 0.0
    growing: Sequence[Growing] = ()
    older_ms: Sequence[int] = ()
    older_bytes: Sequence[float] = ()
    _known: dict[float, float] = field(default_factory=dict)

    def comes_to(self, written_ms: float) -> Maybe[float]:
        """Return how long (ms) at least until R6 takes a record that was written after a moment (Unix ms)."""
        if self.problem is not None:
            return self.problem
        at = bisect_right(self.older_ms, written_ms)
        before = self.older_bytes[at - 1] if at else 0.0
        if before not in self._known:
            self._known[before] = full_in(self.room_bytes + before, self.growing).low
        return self._known[before]


def queue_of(
    disk: Disk, percent: float, parts: Mapping[TopicPartition, PartitionForecast], queued: Iterable[Queued]
) -> Queue:
    """Return R6's queue on a disk with a ceiling. ``queued`` are the partitions that R6 may take unread, on any disk.

    Of each, an active segment's bytes don't count: they may stay where they are.
    """
    room = disk.room
    if isinstance(room, Unknown):
        return Queue(room)
    grows = _growing(disk, parts)
    if isinstance(grows, Unknown):
        return Queue(grows)
    gained: dict[int, float] = {}
    for one in queued:
        if one.tp not in disk.replicas or isinstance(one.each, Unknown) or isinstance(one.segment_bytes, Unknown):
            continue
        counted = 0.0
        for sample in one.samples:
            there = (sample.high_watermark - one.log_start) * one.each.low - one.segment_bytes
            if there > counted:
                gained[sample.wall_ms] = gained.get(sample.wall_ms, 0.0) + there - counted
                counted = there
    times = sorted(gained)
    room_bytes = ceiling_bytes(room, percent) - room.used_bytes
    return Queue(None, room_bytes, grows.policy, times, list(accumulate(gained[at] for at in times)))


class R6:
    """How long until R6 comes to a record of a partition: on the first of the disks with a replica of it."""

    def __init__(self, queues: Iterable[tuple[Disk, Queue]]) -> None:
        self._of: dict[TopicPartition, list[Queue]] = {}
        for disk, queue in queues:
            for tp in disk.replicas:
                self._of.setdefault(tp, []).append(queue)

    def deadline(self, tp: TopicPartition, age_ms: Span, now_ms: int) -> Maybe[Span]:
        """Return the span in which R6 takes a record of this age: never, if no disk with it has a ceiling."""
        soonest = math.inf
        for queue in self._of.get(tp, ()):
            found = queue.comes_to(now_ms - age_ms.high)
            if isinstance(found, Unknown):
                return found
            soonest = min(soonest, found)
        return Span(soonest, math.inf)


class _Grows(NamedTuple):
    alone: Sequence[Growing]
    policy: Sequence[Growing]


def _growing(disk: Disk, parts: Mapping[TopicPartition, PartitionForecast]) -> Maybe[_Grows]:
    """Return how the managed replicas grow, by brokers alone and by the policy."""
    managed = _managed(disk, parts)
    if unknown := [tp for tp in managed if _incomplete(parts[tp])]:
        text = f"how fast {len(unknown):,} of its {len(managed):,} managed replicas grow is unknown"
        return Unknown.because("rate", text)
    by_brokers, by_policy = [], []
    for tp, size in managed.items():
        part = parts[tp]
        rate, each, kept, brokers = part.rate, part.each, part.kept, part.alone
        if isinstance(rate, Unknown) or isinstance(each, Unknown) or isinstance(kept, Unknown):
            continue
        per_ms = rate.span.times(each)
        in_policy = kept.records.times(each).plus(Span(0.0, part.active_bytes))  # dead bytes before the log's start
        if not isinstance(brokers, Unknown):
            by_brokers.append(Growing(size, per_ms, brokers.times(each)))
            in_policy = in_policy.at_most(brokers.times(each))
        by_policy.append(Growing(size, per_ms, in_policy))
    return _Grows(by_brokers, by_policy)


def _managed(disk: Disk, parts: Mapping[TopicPartition, PartitionForecast]) -> dict[TopicPartition, int]:
    return {tp: size for tp, size in disk.replicas.items() if tp in parts and not _compacted(parts[tp])}


def _compacted(part: PartitionForecast) -> bool:
    return isinstance(part.alone, Unknown) and part.alone.reasons[0].code == COMPACT


def _incomplete(part: PartitionForecast) -> bool:
    return any(isinstance(one, Unknown) for one in (part.rate, part.each, part.alone, part.kept))
