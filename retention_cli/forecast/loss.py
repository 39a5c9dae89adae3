"""How long until records go that a group has not read (time to forced loss), and until a disk is full. Pure.

What may take them: R4, R6 and the rules that ``unconsumed: trim`` lets past G2, and the broker's own retention. R6
reaches records once the disk is full.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

from retention_cli.advise.facts import TopicSettings
from retention_cli.core.model import Code, Maybe, PartitionFacts, Sample, TopicPartition, Unknown, certain, or_unknown
from retention_cli.disks.disk import Disk, ceiling_bytes
from retention_cli.forecast.steady import COMPACT, PartitionForecast, Seen, Terms, guarded
from retention_cli.forecast.value import ENDLESS, Cause, DiskForecast, Loss, Rate, Span, age_of, group_rate
from retention_cli.memory.disk import Growth
from retention_cli.memory.group import GroupMemory
from retention_cli.policy.settings import Settings


def forecast_disk(
    disk: Disk,
    growth: Maybe[Growth],
    percent: float | None,
    parts: Mapping[TopicPartition, PartitionForecast],
) -> DiskForecast:
    """Return a disk's forecast: each of its replicas grows like its partition."""
    if isinstance(room := disk.room, Unknown):
        return DiskForecast(disk, percent, room, room, room, None if percent is None else room, 0)
    still = max(0, room.used_bytes - sum(_managed(disk, parts).values()))
    if isinstance(grows := _growing(disk, parts), Unknown):
        return DiskForecast(disk, percent, growth, grows, grows, None if percent is None else grows, still)
    by_brokers, by_policy = grows
    left = room.total_bytes - room.used_bytes
    ceiling = None if percent is None else full_in(ceiling_bytes(room, percent) - room.used_bytes, by_policy)
    return DiskForecast(disk, percent, growth, full_in(left, by_brokers), full_in(left, by_policy), ceiling, still)


class Queued(NamedTuple):
    """A partition whose unread records R6 may take: how much was written by when.

    ``samples`` are the high watermarks seen, oldest first; ``each`` is how many bytes an offset takes.
    """

    tp: TopicPartition
    samples: Sequence[Sample]
    log_start: int
    each: Maybe[Span]
    segment_bytes: Maybe[int]


Queue = Callable[[float], float]
"""Returns how long (ms) at least until R6 takes a record that was written after a moment (Unix ms)."""


@or_unknown
def queue_of(
    disk: Disk, percent: float, parts: Mapping[TopicPartition, PartitionForecast], queued: Iterable[Queued]
) -> Queue:
    """Return R6's queue on a disk with a ceiling: it takes the oldest of all topics first.

    It reaches a record at the earliest when the disk has gained what it may, plus the bytes that are older for certain
    and may be taken: those go first. ``queued`` are the partitions that R6 may take unread, on any disk. Of
    each, an active segment's bytes don't count: they may stay where they are.
    """
    room = certain(disk.room)
    _, by_policy = certain(_growing(disk, parts))
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
    older_bytes = [0.0, *accumulate(gained[at] for at in times)]
    room_bytes = ceiling_bytes(room, percent) - room.used_bytes

    @cache
    def gained_in(more_bytes: float) -> float:
        return full_in(room_bytes + more_bytes, by_policy).low

    return lambda written_ms: gained_in(older_bytes[bisect_right(times, written_ms)])


@or_unknown
def r6_deadline(queues: Iterable[Maybe[Queue]], age_ms: Span, now_ms: int) -> Span:
    """Return the span in which R6 takes a record of this age: on the first of the disks with a replica of it.

    ``queues`` are R6's on these disks. Without any it never does: none has a ceiling.
    """
    return Span(min((certain(queue)(now_ms - age_ms.high) for queue in queues), default=math.inf), math.inf)


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
        retained = certain(part.retained)
        first = size + per_ms.high * retained.waits_ms if retained.waits_ms else 0.0  # until R1 begins (F10)
        in_policy = retained.records.times(each).plus(dead).at_least(Span(0.0, first)).at_most(brokers)
        by_brokers.append(Growing(size, per_ms, brokers))
        by_policy.append(Growing(size, per_ms, in_policy))
    return by_brokers, by_policy


def _managed(disk: Disk, parts: Mapping[TopicPartition, PartitionForecast]) -> dict[TopicPartition, int]:
    return {
        tp: disk.replicas[tp]
        for tp, one in {tp: parts[tp].alone for tp in disk.replicas if tp in parts}.items()
        if not isinstance(one, Unknown) or one.reasons[0].code != COMPACT
    }


class Growing(NamedTuple):
    """A replica: its bytes now, how many it gains per ms, and how many it keeps in the end."""

    size_bytes: int
    per_ms: Span
    retained_bytes: Span


def full_in(room_bytes: float, replicas: Sequence[Growing]) -> Span:
    """Return how long (ms) until replicas have taken this many more bytes.

    The earliest: each grows as fast as it ever did, up to the most that is kept of it, and none shrinks. The latest:
    each grows as slowly as it ever did, up to the least; a replica with more than that loses the rest first. Other
    bytes on the disk stay.
    """
    earliest = _reached(
        room_bytes,
        ((one.per_ms.high, max(0.0, one.retained_bytes.high - one.size_bytes)) for one in replicas),
    )
    gone = sum(
        max(0.0, one.size_bytes - one.retained_bytes.low) for one in replicas if math.isfinite(one.retained_bytes.low)
    )
    latest = _reached(
        room_bytes + gone,
        ((one.per_ms.low, max(0.0, one.retained_bytes.low - one.size_bytes)) for one in replicas),
    )
    return Span(earliest, max(earliest, latest))


def _reached(room_bytes: float, growing: Iterable[tuple[float, float]]) -> float:
    """Return when growth fills the room: each replica grows at its rate (bytes per ms), by at most its bytes."""
    if room_bytes <= 0:
        return 0.0
    stops = sorted(((left / rate, rate) for rate, left in growing if rate > 0 and left > 0), reverse=True)
    now = taken = 0.0
    for (until, _), rate in reversed(list(zip(stops, accumulate(rate for _, rate in stops), strict=True))):
        if taken + rate * (until - now) >= room_bytes:
            return now + (room_bytes - taken) / rate
        taken += rate * (until - now)
        now = until
    return math.inf


_BROKERS: Final = frozenset({"retention.ms", "retention.bytes"})
"""Causes that don't wait for the policy's next trim."""
_AT_ONCE: Final = 8
"""How many offsets of a partition have their results remembered: most groups are at its end."""
_NOT_SEEN: Final = Unknown.because("rate", "its position was never seen before")


@dataclass(frozen=True, slots=True)
class Unread:
    """What one group has yet to read of one partition.

    ``age_ms`` is how long ago its oldest unread record was written (:func:`~retention_cli.forecast.value.age_of`),
    ``lag`` how many offsets it is behind, ``lost`` how many went before it read them. ``written`` is how fast the
    partition is written to, ``read`` how fast the group reads. ``bytes_per_record`` is of one replica.
    """

    age_ms: Span
    lag: int
    lost: int
    written: Maybe[Rate]
    read: Maybe[Rate]
    bytes_per_record: Maybe[Span]


class Place:
    """A partition. Results that depend on the offset alone are computed once for all groups at that offset."""

    def __init__(
        self,
        here: Seen,
        part: PartitionForecast,
        limits: TopicSettings,
        settings: Settings,
        queues: Sequence[Maybe[Queue]],
        terms: Terms,
    ) -> None:
        self._here, self._terms = here, terms
        facts = here.facts
        samples = () if isinstance(here.samples, Unknown) else here.samples
        start = 0 if isinstance(facts.log_start, Unknown) else facts.log_start

        @lru_cache(_AT_ONCE)
        def ages(offset: int) -> tuple[Span, Maybe[Span]]:
            age_ms = age_of(samples, here.now, offset)
            return age_ms, r6_deadline(queues, age_ms, here.now.wall_ms)

        @lru_cache(_AT_ONCE)
        def left(offset: int, read: Maybe[Rate]) -> tuple[Unread, Maybe[Loss]]:
            age_ms, r6_ms = ages(offset)
            lag, lost = max(0, here.now.high_watermark - offset), max(0, start - offset)
            unread = Unread(age_ms, lag, lost, part.rate, read, part.each)
            return unread, time_to_loss(unread, limits, settings, r6_ms, terms.every_ms)

        self._left = left

    def left(self, offset: int, memory: GroupMemory | None) -> tuple[Unread, Maybe[Loss]]:
        """Return what a group at an offset has yet to read, and the loss.

        ``memory`` has the group's earlier position.
        """
        stood = None if memory is None else stood_at(memory, self._here.facts)
        now = Sample(self._here.now.wall_ms, offset)
        return self._left(offset, _NOT_SEEN if stood is None else group_rate(stood, now, self._terms.least_ms))


def stood_at(group: GroupMemory, facts: PartitionFacts) -> Sample | None:
    """Return a group's last seen position, if it was in this topic and counted (F5)."""
    position = group.counted.get((facts.topic.name, facts.partition))
    if position is None or group.ids.get(facts.topic.name) != facts.topic.topic_id:
        return None
    return Sample(group.seen_ms, position.offset)


def time_to_loss(
    unread: Unread, brokers: TopicSettings, settings: Settings | None, r6_ms: Maybe[Span], every_ms: int = 0
) -> Maybe[Loss]:
    """Return when a group loses records to the first rule that takes them.

    Timestamps are taken to be the times of writing.

    Args:
        unread: what it has yet to read.
        brokers: the topic's live limits.
        settings: the policy's for the topic, None if it does not manage it.
        r6_ms: how long until R6 reaches the oldest unread record (:func:`r6_deadline`), without
            end if no disk with it has a ceiling.
        every_ms: how often the policy trims: what is due waits for the next time (ms).
    """
    if unread.lost:
        return Loss("gone", Span.of(0.0), Span.of(0.0))
    deadlines = list(_deadlines(unread, brokers, settings, r6_ms))
    known = [(cause, one) for cause, one in deadlines if not isinstance(one, Unknown)]
    if len(known) < len(deadlines):  # what is unknown might come first
        return Unknown(
            tuple(dict.fromkeys(reason for _, one in deadlines if isinstance(one, Unknown) for reason in one.reasons))
        )
    if not known:
        return Loss("retention.ms", ENDLESS, ENDLESS)
    due = any(one.high == 0 for _, one in known)
    known = [(cause, one if cause in _BROKERS else Span(one.low, one.high + every_ms)) for cause, one in known]
    first = Span(min(one.low for _, one in known), min(one.high for _, one in known))
    cause = min(known, key=lambda one: one[1])[0]
    return Loss(cause, first, _at_its_rate(known, unread), due or not math.isinf(unread.age_ms.high))


def seconds_to_loss(loss: Maybe[Loss]) -> float | None:
    """Return the seconds that are left for sure if the group stops now: ``group_seconds_to_loss{group,topic}``.

    ``math.inf`` if nothing takes its records, None if that is unknown.
    """
    return None if isinstance(loss, Unknown) or not loss.is_measured else loss.if_stopped_ms.low / 1000


def _deadlines(
    unread: Unread, brokers: TopicSettings, settings: Settings | None, r6_ms: Maybe[Span]
) -> Iterable[tuple[Cause, Maybe[Span]]]:
    """Yield how long each rule leaves the oldest unread record, if the group stops.

    Brokers delete whole segments, so it may take as long as one is active, and until they check.
    """
    if isinstance(deletes := brokers.deletes, Unknown):
        yield "retention.ms", deletes
    elif deletes:
        if brokers.retention_ms is not None:
            yield "retention.ms", _by_time(unread, brokers)
        if brokers.retention_bytes is not None:
            segment = math.inf if isinstance(brokers.segment_bytes, Unknown) else brokers.segment_bytes
            yield "retention.bytes", _when_full(brokers.retention_bytes, segment, unread)
    if settings is None or settings.hold is not None:
        return
    if settings.forced_age_ms is not None and not guarded(Code.R4, settings):
        yield Code.R4, _after(settings.forced_age_ms, unread.age_ms)
    if guarded(Code.R2, settings):
        return
    if settings.event_time_ms is not None:
        yield Code.R2, _after(settings.event_time_ms, unread.age_ms)
    if settings.max_topic_bytes is not None:  # its partitions share it: none is sure of any of it
        yield Code.R5, Span(0.0, math.inf)
    if settings.max_bytes is not None:
        yield Code.R5, _when_full(settings.max_bytes, 0, unread)
    if r6_ms != ENDLESS:
        yield Code.R6, r6_ms


@or_unknown
def _by_time(unread: Unread, brokers: TopicSettings) -> Span:
    earliest = _after(certain(brokers.retention_ms) or 0, unread.age_ms)
    late = [math.inf if isinstance(one, Unknown) else one for one in (brokers.segment_ms, brokers.check_interval_ms)]
    return Span(earliest.low, earliest.high + sum(late))


def _after(limit_ms: int, age_ms: Span) -> Span:
    """Return how long a record of this age has until it is as old as the limit."""
    low = 0.0 if math.isinf(age_ms.high) else max(0.0, limit_ms - age_ms.high)
    return Span(low, max(0.0, limit_ms - age_ms.low))


@or_unknown
def _when_full(limit: Maybe[int], slack: float, unread: Unread) -> Span:
    """Return how long until this many bytes (and up to ``slack`` more) are behind the oldest unread record."""
    most, each = certain(limit), certain(unread.bytes_per_record)
    behind = each.times(Span.of(unread.lag))
    left = Span(max(0.0, most - behind.high), max(0.0, most + slack - behind.low))
    return left.over(each.times(certain(unread.written).span))


@or_unknown
def _at_its_rate(known: Iterable[tuple[Cause, Span]], unread: Unread) -> Span:
    """Return the first deadline if the group moves away from each while it reads: by 1 / (1 − read / written).

    It does not move away from R6, which takes the oldest of all topics.
    """
    first = ENDLESS
    for cause, deadline in known:
        if cause == Code.R6:
            first = first.at_most(deadline)
            continue
        read, written = certain(unread.read), certain(unread.written)
        slowest = read.low / written.high if read.low and written.high else float(read.low > 0)
        fastest = read.high / written.low if read.high and written.low else float(read.high > 0)
        first = first.at_most(Span(_divided(deadline.low, slowest), _divided(deadline.high, fastest)))
    return first


def _divided(ms: float, share: float) -> float:
    """Return how long a time lasts if a share of it is regained as it passes: without end if all is, but 0 stays 0."""
    return 0.0 if ms == 0 else math.inf if share >= 1 else ms / (1 - share)
