"""What brokers alone keep of a topic in steady state, and what they keep with a policy. Pure.

Steady state: records are written as fast as measured, consumers stay as far behind as they are now, and event time
goes on as the clock does. Between two trims the log grows: the smallest value is right after one, the largest right
before the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from retention_cli.advise.facts import TopicSettings
from retention_cli.core.model import Code, Maybe, PartitionFacts, Reason, Sample, Unknown, certain, or_unknown
from retention_cli.decide.decision import weigh
from retention_cli.decide.guards import frozen, untouchable
from retention_cli.decide.triggers.consumed import watched_first, watched_until_ms
from retention_cli.forecast.value import (
    ENDLESS,
    NOTHING,
    Amounts,
    Rate,
    Span,
    TopicForecast,
    Totals,
    group_rate,
    rate_of,
    total,
)
from retention_cli.policy.settings import Settings

BROKERS: Final = "brokers"
COMPACT: Final = "compact"
"""The code of a reason: a compacted topic."""
_TRIGGERS = (Code.R1, Code.R2, Code.R3, Code.R4)
_KEEPS_UP = 0.9
"""A consumer that reads this share of what is written does not count as falling behind: it commits now and then."""
_PASSING = frozenset({Code.F10, Code.G3})
"""Reasons that go away by themselves as the ledger grows."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A partition: its facts, the ledger's samples, H now, and where its floor's consumer stood before, if known.

    ``floor_gone``: that consumer no longer exists, and still counts (F6).
    """

    facts: PartitionFacts
    samples: Maybe[Sequence[Sample]]
    now: Sample
    floor_before: Sample | None = None
    floor_gone: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """How often the policy trims (ms), the least time that a rate is measured over (ms), and now (Unix ms).

    ``priced``: what consumers keep by being behind is wanted, too.
    """

    every_ms: int
    least_ms: int
    now_ms: int
    priced: bool = False


class Flow(NamedTuple):
    """What flows through a partition: its offsets now (H − S), its rate, and how many bytes an offset takes."""

    records: int
    rate: Rate
    bytes_per_record: Maybe[Span]


@dataclass(frozen=True, slots=True)
class Retained:
    """How many records are kept, and which rules decide that (``R1`` to ``R5``, else :data:`BROKERS`).

    ``notes`` say which rules can't act, and why. Until R1 begins (F10), ``waits_ms`` from now, nothing is trimmed.
    """

    records: Span
    by: str = BROKERS
    notes: tuple[Reason, ...] = ()
    waits_ms: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a policy stands on one partition.

    ``untouched``: the policy never trims it, or it is frozen, and why. ``lag`` is how far the floor is behind H;
    ``falls_behind`` says that its consumer reads more slowly than is written. ``stopped`` are the rules that can't act
    now, by code. ``topic_share`` is the partition's share of its topic's traffic, for limits on topics.
    ``waits`` is how long (ms) R1 waits, and why (F10); None: it does not.
    """

    settings: Settings
    untouched: Reason | None = None
    lag: Maybe[int] = 0
    falls_behind: Reason | None = None
    stopped: Mapping[str, Unknown] = field(default_factory=dict)
    topic_share: float = 1.0
    waits: tuple[int, Reason | None] = (0, None)


class PartitionForecast(NamedTuple):
    """What a topic's and a disk's forecast are made of: its rate, bytes per record, and what is kept of it.

    ``unread`` is how many of these records only the floor's consumer keeps, if it stays as far behind (if asked for).
    """

    rate: Maybe[Rate]
    each: Maybe[Span]
    alone: Maybe[Span]
    retained: Maybe[Retained]
    active_bytes: float
    unread: Maybe[Span] = NOTHING


def forecast_partitions(
    seen: Sequence[Seen], limits: TopicSettings, settings: Settings, terms: Terms
) -> list[PartitionForecast]:
    """Return the forecasts of all of a topic's partitions, in their order."""
    rates = [
        one.samples if isinstance(one.samples, Unknown) else rate_of(one.samples, one.now, terms.least_ms)
        for one in seen
    ]
    means = [0.0 if isinstance(one, Unknown) else one.mean for one in rates]
    written = sum(means)
    each = zip(seen, rates, [mean / written if written else 1 / len(seen) for mean in means], strict=True)
    return [_forecast(one, rate, share, limits, settings, terms) for one, rate, share in each]


def _forecast(
    one: Seen, rate: Maybe[Rate], topic_share: float, limits: TopicSettings, settings: Settings, terms: Terms
) -> PartitionForecast:
    each = bytes_per_record(one.facts, limits.segment_bytes)
    if isinstance(flow := _flow(one.facts, rate, each), Unknown):
        return PartitionForecast(flow, each, flow, flow, 0.0)
    alone = brokers_keep(flow, limits)
    standing = _standing(one, settings, flow.rate, terms, topic_share)
    retained = policy_keeps(flow, standing, alone, terms.every_ms)
    unread: Maybe[Span] = NOTHING
    if terms.priced and not isinstance(standing.lag, Unknown) and standing.lag:
        behind = replace(standing, falls_behind=None)
        caught_up = policy_keeps(flow, replace(behind, lag=0), alone, terms.every_ms)
        unread = _less(_records_of(policy_keeps(flow, behind, alone, terms.every_ms)), _records_of(caught_up))
    return PartitionForecast(flow.rate, flow.bytes_per_record, alone, retained, _active_bytes(flow, limits), unread)


@or_unknown
def _flow(facts: PartitionFacts, rate: Maybe[Rate], each: Maybe[Span]) -> Flow:
    records, speed = certain(_records(facts)), certain(rate)
    return Flow(records, speed, NOTHING if not records and speed.high == 0 else each)


def forecast_topic(name: str, seen: Sequence[Seen], parts: Sequence[PartitionForecast]) -> TopicForecast:
    """Return a topic's forecast. One unknown partition makes its sums unknown."""
    reasons = list[Reason]()
    for one in parts:
        reasons += one.retained.notes if isinstance(one.retained, Retained) else ()
        for value in (one.rate, one.each, one.alone, one.retained):
            reasons += value.reasons if isinstance(value, Unknown) else ()
    return TopicForecast(
        name=name,
        partitions=len(parts),
        now=_sum((_exactly(_records(one.facts)), _exactly(one.facts.size_bytes)) for one in seen),
        rate=_topic_rate(parts),
        alone=_sum((one.alone, product(one.alone, one.each)) for one in parts),
        policy=_sum((keeps, product(keeps, one.each)) for one in parts for keeps in (_records_of(one.retained),)),
        by=", ".join(sorted({one.retained.by for one in parts if isinstance(one.retained, Retained)})) or BROKERS,
        reasons=tuple(dict.fromkeys(reasons)),
    )


def totals_of(topics: Sequence[TopicForecast]) -> Totals:
    """Return the sums over all topics, as far as they have any."""
    known = [one for one in topics if not any(isinstance(part, Unknown) for part in (*one.alone, *one.policy))]
    endless = [one for one in known if not _bounded(one.alone)]
    growing = [one for one in known if not _bounded(one.policy)]
    counted = [one for one in known if _bounded(one.alone) and _bounded(one.policy)]
    return Totals(
        topics=len(topics),
        known=len(counted),
        unknown=len(topics) - len(known),
        endless=len(endless),
        growing=len(growing),
        now=_sum(one.now for one in counted),
        alone=_sum(one.alone for one in counted),
        policy=_sum(one.policy for one in counted),
        saved=_sum(saved(one.alone, one.policy) for one in counted),
        ended=_sum(one.policy for one in endless if _bounded(one.policy)),
    )


def saved(alone: Amounts, policy: Amounts) -> Amounts:
    """Return how much less the policy keeps, as far as both are known."""
    return Amounts(_less(alone.records, policy.records), _less(alone.size_bytes, policy.size_bytes))


@or_unknown
def _less(one: Maybe[Span], other: Maybe[Span]) -> Span:
    less = certain(one).less(certain(other))
    return NOTHING if one == other else less  # brokers decide both: the same, at any rate


@or_unknown
def bytes_per_record(facts: PartitionFacts, segment_bytes: Maybe[int]) -> Span:
    """Return how many bytes of a replica one offset takes, from its size.

    If the log start offset has moved, the size may include dead bytes of the segment that it lies in; but the size
    as such never takes more offsets than there ever were.
    """
    records, size = certain(_records(facts)), certain(facts.size_bytes)
    if records <= 0:
        return certain(Unknown.because("size", "it is empty, so the size of its records is unknown"))
    most, ever = size / records, size / certain(facts.high_watermark)
    if facts.log_start == 0:
        return Span.of(most)
    return Span(ever if isinstance(segment_bytes, Unknown) else max(ever, (size - segment_bytes) / records), most)


@or_unknown
def brokers_keep(flow: Flow, limits: TopicSettings) -> Span:
    """Return how many records brokers alone keep: by ``retention.ms`` and ``.bytes``, segment by segment."""
    if "compact" in certain(limits.cleanup_policy):
        return certain(Unknown.because("compact", "it is compacted: what stays depends on its keys"))
    time, size = (
        (certain(limits.retention_ms), certain(limits.retention_bytes)) if certain(limits.deletes) else (None, None)
    )
    rate, now = flow.rate.span, Span.of(flow.records)
    if time is None and size is None:  # all current records, or without end while something is written
        return now if rate.high == 0 else ENDLESS if rate.low > 0 else Span(float(flow.records), math.inf)
    if rate.high == 0 and size is None:
        return NOTHING  # brokers roll an active segment, too, once its newest record has expired
    segment = rate.high * certain(limits.segment_ms)
    if not isinstance(flow.bytes_per_record, Unknown):
        segment = min(segment, Span.of(certain(limits.segment_bytes)).over(flow.bytes_per_record).high)
    late = Span(0.0, segment + rate.high * certain(limits.check_interval_ms))
    found = ENDLESS if time is None else rate.times(Span.of(time)).plus(late)
    if size is not None:
        fits = Span.of(size).over(certain(flow.bytes_per_record))
        found = found.at_most(fits.plus(late) if rate.high else fits.at_most(now))
    return found


def policy_keeps(flow: Flow, standing: Standing, brokers: Maybe[Span], every_ms: int) -> Maybe[Retained]:
    """Return how many records a policy keeps that trims at this interval (ms); brokers go on deleting, too.

    If what brokers keep is unknown, a rule alone may decide; but nothing bounds records that no rule trims.
    """
    settings, rate, lag = standing.settings, flow.rate.span, standing.lag
    unbounded: Unknown | None = None
    if isinstance(brokers, Unknown):
        unbounded = Unknown.because("brokers", "what brokers keep is unknown, and no rule trims it")
        brokers = ENDLESS
    if standing.untouched is not None:
        return unbounded or Retained(brokers, BROKERS, (standing.untouched,))
    if settings.unsettled is not None:
        return settings.unsettled
    best, by, notes = brokers, BROKERS, list[Reason]()
    for code, leaves in _leaves(flow, settings, standing.topic_share).items():
        held = guarded(code, settings)
        remaining = _at_least(leaves, standing.stopped.get(code, lag if held else 0))
        if isinstance(remaining, Unknown):
            notes += remaining.reasons
            continue
        if held and standing.falls_behind is not None:
            notes.append(standing.falls_behind)
            remaining = Span(remaining.low, math.inf)
        if settings.min_wallclock_ms is not None:
            remaining = remaining.at_least(rate.times(Span.of(settings.min_wallclock_ms)))
        remaining = remaining.plus(Span(0.0, rate.high * every_ms))
        by = code if remaining.high < best.high else by
        best = best.at_most(remaining)
    waits_ms, wait = standing.waits if by == Code.R1 else (0, None)
    notes = list(dict.fromkeys(notes if wait is None else [*notes, wait]))
    if unbounded is not None and by == BROKERS:
        return Unknown((*unbounded.reasons, *notes))
    return Retained(best, by, tuple(notes), waits_ms)


@or_unknown
def _at_least(leaves: Maybe[Span], unread: Maybe[int]) -> Span:
    least = Span.of(float(certain(unread)))
    return certain(leaves).at_least(least)


def guarded(code: str, settings: Settings) -> bool:
    """Return whether a rule stops at what a consumer has yet to read (R1 by itself, others by G2)."""
    if code == Code.R4 and not settings.forced_age_guarded:
        return False
    return code == Code.R1 or settings.unconsumed == "hold"


def _leaves(flow: Flow, settings: Settings, share: float) -> dict[str, Maybe[Span]]:
    """Return how many records each rule that is on would leave, before guards and between no trims."""
    rate, now, found = flow.rate.span, Span.of(float(flow.records)), dict[str, Maybe[Span]]()
    if settings.consumed_after_ms is not None:
        found[Code.R1] = rate.times(Span.of(settings.consumed_after_ms))
    if settings.event_time_ms is not None:  # event time moves only with new records: else nothing expires
        found[Code.R2] = rate.times(Span.of(settings.event_time_ms)) if rate.high else Span(0.0, now.high)
    if settings.min_timestamp_ms:
        found[Code.R3] = Span(0.0, math.inf)  # as its application moves it
    if settings.forced_age_ms is not None:
        found[Code.R4] = rate.times(Span.of(settings.forced_age_ms))
    of_topic = None if settings.max_topic_bytes is None else settings.max_topic_bytes * share
    sizes = [float(one) for one in (settings.max_bytes, of_topic) if one is not None]
    if sizes and isinstance(flow.bytes_per_record, Unknown):
        found[Code.R5] = flow.bytes_per_record
    elif sizes and not isinstance(flow.bytes_per_record, Unknown):
        fits = Span.of(min(sizes)).over(flow.bytes_per_record)
        found[Code.R5] = fits if rate.high else fits.at_most(now)
    return found


def _standing(one: Seen, settings: Settings, rate: Rate, terms: Terms, share: float) -> Standing:
    facts, floor = one.facts, one.facts.floor
    touch = untouchable(facts.topic, settings)
    never = touch if isinstance(touch, Reason) else frozen(settings)
    stopped: dict[str, Unknown] = {}
    if isinstance(touch, Unknown):
        stopped = dict.fromkeys((*_TRIGGERS, Code.R5), touch)
    elif never is None and not facts.empty:
        stopped = {
            weighed.code: weighed.allowed
            for weighed in weigh(facts, settings, terms.now_ms)
            if weighed.code in _TRIGGERS and isinstance(weighed.allowed, Unknown)
            if any(reason.code not in _PASSING for reason in weighed.allowed.reasons)
        }
    until_ms, why = watched_until_ms(facts, settings, terms.now_ms), watched_first(facts, settings, terms.now_ms)
    waits = (0, None) if until_ms is None or why is None else (until_ms - terms.now_ms, why.reasons[0])
    if isinstance(floor, Unknown):
        return Standing(settings, never, 0 if facts.empty else floor, None, stopped, share, waits)
    behind: Reason | None = None
    if one.floor_gone:
        behind = Reason(Code.F6, f"{floor.by} no longer exists, and holds until groups.remember has passed")
    elif one.floor_before is not None:
        read = group_rate(one.floor_before, Sample(one.now.wall_ms, floor.offset), terms.least_ms)
        if not isinstance(read, Unknown) and read.high < _KEEPS_UP * rate.low:
            behind = Reason(Code.G2, f"{floor.by} reads more slowly than producers write, so it holds more and more")
    return Standing(settings, never, max(0, one.now.high_watermark - floor.offset), behind, stopped, share, waits)


def _active_bytes(flow: Flow, limits: TopicSettings) -> float:
    """Return how many bytes an active segment takes at most: brokers free whole segments only."""
    if isinstance(limits.segment_bytes, Unknown) or isinstance(limits.segment_ms, Unknown):
        return float("inf")
    if isinstance(flow.bytes_per_record, Unknown):
        return float(limits.segment_bytes)
    return min(float(limits.segment_bytes), flow.rate.high * limits.segment_ms * flow.bytes_per_record.high)


@or_unknown
def _topic_rate(parts: Sequence[PartitionForecast]) -> Rate:
    low, mean, high, over_ms = zip(*(certain(one.rate) for one in parts), strict=True)
    return Rate(sum(low), sum(mean), sum(high), min(over_ms))


@or_unknown
def _records(facts: PartitionFacts) -> int:
    start = certain(facts.log_start)
    return certain(facts.high_watermark) - start


@or_unknown
def _exactly(number: Maybe[int]) -> Span:
    return Span.of(certain(number))


@or_unknown
def _records_of(retained: Maybe[Retained]) -> Span:
    return certain(retained).records


@or_unknown
def product(records: Maybe[Span], each: Maybe[Span]) -> Span:
    """Return the bytes of this many records."""
    return certain(records).times(certain(each))


def _bounded(amounts: Amounts) -> bool:
    return not isinstance(amounts.records, Unknown) and amounts.records.bounded


def _sum(parts: Iterable[tuple[Maybe[Span], Maybe[Span]]]) -> Amounts:
    """Return the sums of records and of their bytes: both are unknown if the number of records is."""
    some = list(parts)
    records = _added(one for one, _ in some)
    return Amounts(records, records if isinstance(records, Unknown) else _added(size for _, size in some))


@or_unknown
def _added(spans: Iterable[Maybe[Span]]) -> Span:
    return total(map(certain, spans))
