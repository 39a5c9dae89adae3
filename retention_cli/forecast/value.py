"""A forecast, as values: rates in offsets per ms, amounts as spans, unknown where facts are missing. Pure.

How fast partitions and groups move and how old a record is are known by the ledger's samples (docs/memory.md). A sample
is exact only at its own moment. Between two, H may have moved at any time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, Literal, NamedTuple

from retention_cli.core.model import Code, Maybe, Reason, Sample, Unknown
from retention_cli.core.units import format_duration
from retention_cli.disks.disk import Disk
from retention_cli.memory.disk import Growth
from retention_cli.policy.settings import Prices

HOUR_MS: Final = 3_600_000
WINDOW_MS: Final = 7 * 24 * HOUR_MS
"""Rates are measured over at most this long, unless the last sample is older."""
_PARTS: Final = 4
"""The window is divided into at most this many parts: their rates show how much the rate varies."""


class Span(NamedTuple):
    """A number between ``low`` and ``high``, both included, never negative. ``math.inf`` is without end."""

    low: float
    high: float

    @classmethod
    def of(cls, value: float) -> Span:
        """Return a number that is known exactly."""
        return cls(value, value)

    @property
    def endless(self) -> bool:
        """Whether even its smallest value is without end."""
        return math.isinf(self.low)

    @property
    def bounded(self) -> bool:
        """Whether its largest value has an end."""
        return not math.isinf(self.high)

    def plus(self, other: Span) -> Span:
        """Return the sum."""
        return Span(self.low + other.low, self.high + other.high)

    def times(self, other: Span) -> Span:
        """Return the product. Nothing times anything without end is nothing: no records take no bytes."""
        return Span(_product(self.low, other.low), _product(self.high, other.high))

    def over(self, other: Span) -> Span:
        """Return the quotient; anything over nothing is without end, nothing over nothing is nothing."""
        return Span(_quotient(self.low, other.high), _quotient(self.high, other.low))

    def less(self, other: Span) -> Span:
        """Return how much smaller the other is, at least nothing."""
        low = 0.0 if math.isinf(other.high) else max(0.0, self.low - other.high)
        return Span(low, self.high if math.isinf(self.high) else max(0.0, self.high - other.low))

    def at_least(self, other: Span) -> Span:
        """Return the larger of both."""
        return Span(max(self.low, other.low), max(self.high, other.high))

    def at_most(self, other: Span) -> Span:
        """Return the smaller of both."""
        return Span(min(self.low, other.low), min(self.high, other.high))


NOTHING: Final = Span(0.0, 0.0)
ENDLESS: Final = Span(math.inf, math.inf)


def total(spans: Iterable[Span]) -> Span:
    """Return the sum."""
    return reduce(Span.plus, spans, NOTHING)


class Rate(NamedTuple):
    """Offsets per ms: the mean over ``over_ms``, and the smallest and largest mean of a part of that time."""

    low: float
    mean: float
    high: float
    over_ms: int

    @property
    def span(self) -> Span:
        """The smallest and the largest."""
        return Span(self.low, self.high)


def rate_of(samples: Sequence[Sample], now: Sample, least_ms: int = HOUR_MS) -> Maybe[Rate]:
    """Return how fast a partition is written to, in offsets per ms.

    Args:
        samples: the high watermarks seen, oldest first. One that only repeats the last was not kept.
        now: the high watermark now.
        least_ms: a rate is unknown unless the samples cover at least this long.
    """
    seen = [one for one in samples if one.wall_ms < now.wall_ms]
    # After a longer pause the last look counts: nothing was written since, or kretain did not look.
    used = [*([one for one in seen if now.wall_ms - one.wall_ms <= WINDOW_MS] or seen[-1:]), now]
    if (over_ms := now.wall_ms - used[0].wall_ms) < max(1, least_ms):
        since = f"only {format_duration(_rounded(over_ms))}" if over_ms else "no time at all"
        text = f"the ledger's samples cover {since}; a rate needs {format_duration(least_ms)}. Each plan adds a sample"
        return Unknown.because("rate", text)
    if any(one.high_watermark > now.high_watermark for one in used):
        return Unknown.because("rate", "its high watermark fell: the log was cut")
    means = [
        (later.high_watermark - earlier.high_watermark) / (later.wall_ms - earlier.wall_ms)
        for earlier, later in _parts(used, max(least_ms, over_ms // _PARTS))
    ]
    mean = (now.high_watermark - used[0].high_watermark) / over_ms
    return Rate(min(*means, mean), mean, max(*means, mean), over_ms)


def group_rate(before: Sample, now: Sample, least_ms: int = HOUR_MS) -> Maybe[Rate]:
    """Return how fast a group moves through a partition, from its position at two moments, in offsets per ms."""
    if (over_ms := now.wall_ms - before.wall_ms) < max(1, least_ms):
        return Unknown.because("rate", f"its position was last seen less than {format_duration(least_ms)} ago")
    if now.high_watermark < before.high_watermark:
        return Unknown.because("rate", "it moved back since it was last seen")
    mean = (now.high_watermark - before.high_watermark) / over_ms
    return Rate(mean, mean, mean, over_ms)


def age_of(samples: Sequence[Sample], now: Sample, offset: int) -> Span:
    """Return how long ago (ms) the record at an offset was written: by H of before and of after.

    The largest age is without end if the record is older than the samples. A record that is yet to be written has no
    age.
    """
    if offset >= now.high_watermark:
        return Span.of(0.0)
    youngest, oldest = 0.0, math.inf
    for one in (*(one for one in samples if one.wall_ms <= now.wall_ms), now):
        if one.high_watermark <= offset:
            oldest, youngest = now.wall_ms - one.wall_ms, 0.0
        elif youngest == 0.0:
            youngest = now.wall_ms - one.wall_ms
    return Span(youngest, oldest)


def _parts(used: Sequence[Sample], least_ms: int) -> list[tuple[Sample, Sample]]:
    """Return consecutive stretches, each between two samples and at least this long; the last takes what is left."""
    ends = [used[0]]
    for one in used[1:]:
        if one.wall_ms - ends[-1].wall_ms >= least_ms:
            ends.append(one)
    return list(itertools.pairwise([*(ends[:-1] or ends), used[-1]]))


def _rounded(ms: int) -> int:
    return ms if ms < 1000 else ms // 1000 * 1000 if ms < 60_000 else ms // 60_000 * 60_000


def _product(one: float, other: float) -> float:
    return 0.0 if 0 in (one, other) else one * other


def _quotient(one: float, other: float) -> float:
    if one == 0 or math.isinf(other):
        return 0.0 if not math.isinf(one) else math.inf
    return math.inf if other == 0 else one / other


Cause = Literal[Code.R2, Code.R4, Code.R5, Code.R6, "retention.ms", "retention.bytes", "gone"]
"""What takes the record first; ``gone``: the group is below the log start offset."""


class Loss(NamedTuple):
    """When a group loses records, and to what.

    ``if_stopped_ms`` is how long until its oldest unread record goes, if it reads nothing from now on: a low of 0 may
    mean now, and a high without end that nothing says by when. ``at_its_rate_ms`` is the same if it goes on reading as
    fast as it was seen to; without end if it keeps up. ``age_known`` is false if the record is older than the
    ledger's samples, and not due for certain: a low of 0 is then only the least that can be said.
    """

    cause: Cause
    if_stopped_ms: Span
    at_its_rate_ms: Maybe[Span]
    age_known: bool = True

    @property
    def is_measured(self) -> bool:
        """Whether the low of ``if_stopped_ms`` is measured, and not for want of samples."""
        return self.age_known or self.if_stopped_ms.low > 0


class Amounts(NamedTuple):
    """Records, and the bytes that they take in one replica of each partition."""

    records: Maybe[Span]
    size_bytes: Maybe[Span]


@dataclass(frozen=True, slots=True)
class TopicForecast:
    """A topic: what it has now, what brokers alone keep of it in steady state, and what the policy keeps.

    ``by`` are the rules that decide that, joined by commas; ``brokers`` where no rule keeps less than they do.
    ``reasons`` are why something is unknown, or which rules can't act now.
    """

    name: str
    partitions: int
    now: Amounts
    rate: Maybe[Rate]
    alone: Amounts
    policy: Amounts
    by: str
    reasons: Sequence[Reason] = ()


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """A group on a topic: its lag over all partitions, and the loss on the partition where it comes first.

    ``unread_ms`` is how long ago the oldest record that it has yet to read there was written.
    """

    group: str
    topic: str
    partition: int
    lag: int
    unread_ms: Span
    loss: Maybe[Loss]


@dataclass(frozen=True, slots=True)
class DiskForecast:
    """A disk: how long until it is full if brokers alone delete, and if the policy trims, too (ms).

    ``growth`` is as measured by the ledger's looks, and includes trims in between. ``ceiling`` is how long the policy's
    other rules keep it below R6's ceiling, None if there is none. ``still_bytes`` of its used bytes are assumed to
    stay: those of the disk's other users, of topics that the policy does not manage, and of compacted ones.
    """

    disk: Disk
    percent: float | None
    growth: Maybe[Growth]
    alone: Maybe[Span]
    policy: Maybe[Span]
    ceiling: Maybe[Span] | None
    still_bytes: int


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums over the topics of which all is known and has an end; the others are counted.

    ``saved`` is how much less the policy keeps than brokers alone. ``endless`` topics grow without end if brokers alone
    delete, ``growing`` under the policy, too. ``ended`` is what the policy keeps of those that would grow without it
    alone.
    """

    topics: int
    known: int
    unknown: int
    endless: int
    growing: int
    now: Amounts
    alone: Amounts
    policy: Amounts
    saved: Amounts
    ended: Amounts


class Bill(NamedTuple):
    """Money: what the current data costs a month, what trims have saved so far, and what the policy saves a month.

    ``unread`` is what the policy would also save a month if no consumer were behind. Past savings are a bound: the
    high is at most what they were.
    """

    now: Maybe[Span]
    so_far: Maybe[Span]
    saves: Maybe[Span]
    unread: Maybe[Span]


@dataclass(frozen=True, slots=True)
class TopicBill:
    """A topic's money, its labels, and by consumer what its being behind costs a month."""

    topic: str
    labels: Mapping[str, str]
    bill: Bill
    by_consumer: Mapping[str, Maybe[Span]]


@dataclass(frozen=True, slots=True)
class Bills:
    """All topics' money, and its prices."""

    prices: Prices
    topics: Sequence[TopicBill]


@dataclass(frozen=True, slots=True)
class Forecast:
    """All of it, for one policy. Trims are ``every_ms`` apart; rates were measured over at least ``least_ms``.

    ``bills`` is what it costs, None without prices.
    """

    created_at_ms: int
    cluster_id: str
    bootstrap: str
    policy_source: str
    policy_digest: str
    every_ms: int
    least_ms: int
    topics: Sequence[TopicForecast]
    groups: Sequence[GroupForecast]
    disks: Sequence[DiskForecast]
    totals: Totals
    notes: Sequence[Reason] = ()
    bills: Bills | None = None
