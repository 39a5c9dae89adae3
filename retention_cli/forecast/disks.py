"""Make a forecast of one disk: when it is full, and when R6 comes to which records. Pure."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from retention_cli.core.grouping import by_key
from retention_cli.core.model import Maybe, Sample, TopicPartition, Unknown, certain, or_unknown
from retention_cli.disks.disk import Disk, ceiling_bytes
from retention_cli.forecast.rates import Span
from retention_cli.forecast.steady import COMPACT, PartitionForecast
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
    by_brokers, by_policy = grows
    left = room.total_bytes - room.used_bytes
    ceiling = None if percent is None else full_in(ceiling_bytes(room, percent) - room.used_bytes, by_policy)
    return DiskForecast(disk, percent, growth, full_in(left, by_brokers), full_in(left, by_policy), ceiling, still)


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
    room, grows = disk.room, _growing(disk, parts)
    if isinstance(room, Unknown) or isinstance(grows, Unknown):
        return Queue(next(one for one in (room, grows) if isinstance(one, Unknown)))
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
    return Queue(None, room_bytes, grows[1], times, list(accumulate(gained[at] for at in times)))


class R6:
    """How long until R6 comes to a record of a partition: on the first of the disks with a replica of it."""

    def __init__(self, queues: Iterable[tuple[Disk, Queue]]) -> None:
        self._of = by_key((tp, queue) for disk, queue in queues for tp in disk.replicas)

    def deadline(self, tp: TopicPartition, age_ms: Span, now_ms: int) -> Maybe[Span]:
        """Return the span in which R6 takes a record of this age: never, if no disk with it has a ceiling."""
        soonest = math.inf
        for queue in self._of.get(tp, ()):
            found = queue.comes_to(now_ms - age_ms.high)
            if isinstance(found, Unknown):
                return found
            soonest = min(soonest, found)
        return Span(soonest, math.inf)


@or_unknown
def _growing(disk: Disk, parts: Mapping[TopicPartition, PartitionForecast]) -> tuple[list[Growing], list[Growing]]:
    """Return how the managed replicas grow, by brokers alone and by the policy."""
    managed = _managed(disk, parts)
    if unknown := [tp for tp in managed if any(isinstance(one, Unknown) for one in parts[tp][:4])]:
        text = f"how fast {len(unknown):,} of its {len(managed):,} managed replicas grow is unknown"
        return certain(Unknown.because("rate", text))
    by_brokers, by_policy = [], []
    for tp, size in managed.items():
        part = parts[tp]
        each = certain(part.each)
        per_ms, brokers = certain(part.rate).span.times(each), certain(part.alone).times(each)
        dead = Span(0.0, part.active_bytes)  # before the log's start
        kept = certain(part.kept)
        first = size + per_ms.high * kept.waits_ms if kept.waits_ms else 0.0  # until R1 begins (F10)
        in_policy = kept.records.times(each).plus(dead).at_least(Span(0.0, first)).at_most(brokers)
        by_brokers.append(Growing(size, per_ms, brokers))
        by_policy.append(Growing(size, per_ms, in_policy))
    return by_brokers, by_policy


def _managed(disk: Disk, parts: Mapping[TopicPartition, PartitionForecast]) -> dict[TopicPartition, int]:
    """Return the managed replicas that are not compacted, and their bytes."""
    alone = {tp: parts[tp].alone for tp in disk.replicas if tp in parts}
    return {
        tp: disk.replicas[tp]
        for tp, one in alone.items()
        if not isinstance(one, Unknown) or one.reasons[0].code != COMPACT
    }


class Growing(NamedTuple):
    """A replica: its bytes now, how many it gains per ms, and how many it keeps in the end."""

    size_bytes: int
    per_ms: Span
    kept_bytes: Span


def full_in(room_bytes: float, replicas: Sequence[Growing]) -> Span:
    """Return how long (ms) until replicas have taken this many more bytes.

    The earliest: each grows as fast as it ever did, up to the most that is kept of it, and none shrinks. The latest:
    each grows as slowly as it ever did, up to the least; what has more than that loses it first. Other bytes on the
    disk stay as they are.
    """
    earliest = _reached(
        room_bytes,
        ((one.per_ms.high, max(0.0, one.kept_bytes.high - one.size_bytes)) for one in replicas),
    )
    gone = sum(max(0.0, one.size_bytes - one.kept_bytes.low) for one in replicas if math.isfinite(one.kept_bytes.low))
    latest = _reached(
        room_bytes + gone,
        ((one.per_ms.low, max(0.0, one.kept_bytes.low - one.size_bytes)) for one in replicas),
    )
    return Span(earliest, max(earliest, latest))


def _reached(room_bytes: float, growing: Iterable[tuple[float, float]]) -> float:
    """Return when the sum of what grows reaches the room: each at its rate (bytes per ms) for so many bytes."""
    if room_bytes <= 0:
        return 0.0
    stops = [(left / rate, rate) for rate, left in growing if rate > 0 and left > 0]
    heapq.heapify(stops)
    rate = sum(one for _, one in stops)
    now = taken = 0.0
    while stops:
        until, each = stops[0]
        if taken + rate * (until - now) >= room_bytes:
            return now + (room_bytes - taken) / rate
        taken += rate * (until - now)
        now = until
        heapq.heappop(stops)
        rate = sum(one for _, one in stops) if len(stops) < 8 else max(0.0, rate - each)
    return math.inf
