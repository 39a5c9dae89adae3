"""Make a forecast of one topic from what was read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from retention_cli.core.model import Maybe, PartitionFacts, Reason, Sample, Unknown
from retention_cli.decide.decision import weigh
from retention_cli.decide.guards import frozen, untouchable
from retention_cli.forecast.rates import Rate, group_rate, rate_of
from retention_cli.forecast.span import NOTHING, Span, total
from retention_cli.forecast.steady import (
    BROKERS,
    BrokerLimits,
    Flow,
    Kept,
    Standing,
    brokers_keep,
    bytes_per_record,
    policy_keeps,
)
from retention_cli.forecast.value import Amounts, TopicForecast, Totals
from retention_cli.policy.settings import Settings

_TRIGGERS = ("R1", "R2", "R3", "R4")
_KEEPS_UP = 0.9
"""A consumer that reads this share of what is written is not taken to fall behind: it commits now and then."""
_PASSING = frozenset({"G3"})
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


class PartitionForecast(NamedTuple):
    """What a topic's and a disk's forecast are made of: its rate, bytes per record, and what is kept of it."""

    rate: Maybe[Rate]
    each: Maybe[Span]
    alone: Maybe[Span]
    kept: Maybe[Kept]
    active_bytes: float


@dataclass(frozen=True, slots=True)
class Terms:
    """How often the policy trims (ms), the least time that a rate is measured over (ms), and now (Unix ms)."""

    every_ms: int
    least_ms: int
    now_ms: int


def forecast_partitions(
    seen: Sequence[Seen], limits: BrokerLimits, settings: Settings, terms: Terms
) -> list[PartitionForecast]:
    """Return the forecasts of all of a topic's partitions, in their order."""
    rates = [_rate(one, terms.least_ms) for one in seen]
    written = sum(one.mean for one in rates if not isinstance(one, Unknown))
    found = []
    for one, rate in zip(seen, rates, strict=True):
        start, end = one.facts.log_start, one.facts.high_watermark
        if isinstance(start, Unknown) or isinstance(end, Unknown):
            missing = start if isinstance(start, Unknown) else end
            assert isinstance(missing, Unknown)  # noqa: S101  (for the type checker)
            found.append(PartitionForecast(missing, missing, missing, missing, 0.0))
            continue
        each = bytes_per_record(one.facts.size_bytes, start, end, limits.segment_bytes)
        if isinstance(rate, Unknown):
            found.append(PartitionForecast(rate, each, rate, rate, 0.0))
            continue
        if end == start and rate.high == 0:
            each = NOTHING
        flow = Flow(end - start, rate, each)
        alone = brokers_keep(flow, limits)
        standing = _standing(one, settings, rate, terms, rate.mean / written if written else 1 / len(seen))
        kept = policy_keeps(flow, standing, alone, terms.every_ms)
        found.append(PartitionForecast(rate, each, alone, kept, _active_bytes(flow, limits)))
    return found


def forecast_topic(name: str, seen: Sequence[Seen], parts: Sequence[PartitionForecast]) -> TopicForecast:
    """Return a topic's forecast. One unknown partition makes its sums unknown."""
    reasons = list[Reason]()
    for one in parts:
        if isinstance(one.kept, Kept):
            reasons += one.kept.notes
        for value in (one.rate, one.each, one.alone, one.kept):
            if isinstance(value, Unknown):
                reasons += value.reasons
    rates = [one.rate for one in parts if not isinstance(one.rate, Unknown)]
    rate: Maybe[Rate] = Unknown.because("rate", "unknown")
    if len(rates) == len(parts) and parts:
        rate = Rate(
            sum(one.low for one in rates),
            sum(one.mean for one in rates),
            sum(one.high for one in rates),
            min(one.over_ms for one in rates),
        )
    elif len(rates) < len(parts):
        rate = next(one.rate for one in parts if isinstance(one.rate, Unknown))
    rules = sorted({one.kept.by for one in parts if isinstance(one.kept, Kept)})
    return TopicForecast(
        name=name,
        partitions=len(parts),
        now=_now(seen),
        rate=rate,
        alone=_sum((one.alone, one.each) for one in parts),
        policy=_sum((one.kept if isinstance(one.kept, Unknown) else one.kept.records, one.each) for one in parts),
        by=", ".join(rules) or BROKERS,
        reasons=tuple(dict.fromkeys(reasons)),
    )


def totals_of(topics: Sequence[TopicForecast]) -> Totals:
    """Return the sums over all topics, as far as they have any."""
    known = [one for one in topics if not any(isinstance(part, Unknown) for part in (*one.alone, *one.policy))]
    endless = [one for one in known if not _bounded(one.alone)]
    growing = [one for one in known if not _bounded(one.policy)]
    counted = [one for one in known if _bounded(one.alone) and _bounded(one.policy)]
    ended = [one for one in endless if _bounded(one.policy)]
    return Totals(
        topics=len(topics),
        known=len(counted),
        unknown=len(topics) - len(known),
        endless=len(endless),
        growing=len(growing),
        now=_all(one.now for one in counted),
        alone=_all(one.alone for one in counted),
        policy=_all(one.policy for one in counted),
        saved=_all(saved(one.alone, one.policy) for one in counted),
        ended=_all(one.policy for one in ended),
    )


def saved(alone: Amounts, policy: Amounts) -> Amounts:
    """Return how much less the policy keeps, as far as both are known."""
    return Amounts(_less(alone.records, policy.records), _less(alone.size_bytes, policy.size_bytes))


def _less(one: Maybe[Span], other: Maybe[Span]) -> Maybe[Span]:
    if isinstance(one, Unknown):
        return one
    if isinstance(other, Unknown):
        return other
    return NOTHING if one == other else one.less(other)  # by the brokers' own word: the same, at any rate


def _rate(one: Seen, least_ms: int) -> Maybe[Rate]:
    return one.samples if isinstance(one.samples, Unknown) else rate_of(one.samples, one.now, least_ms)


def _standing(one: Seen, settings: Settings, rate: Rate, terms: Terms, share: float) -> Standing:
    facts = one.facts
    touch = untouchable(facts.topic, settings)
    never = touch if isinstance(touch, Reason) else frozen(settings)
    lag: Maybe[int] = 0
    behind: Reason | None = None
    if isinstance(facts.floor, Unknown):
        lag = 0 if facts.empty else facts.floor
    else:
        lag = max(0, one.now.high_watermark - facts.floor.offset)
        if one.floor_gone:
            behind = Reason("F6", f"{facts.floor.by} is gone, and holds until groups.remember is over")
        elif one.floor_before is not None:
            read = group_rate(one.floor_before, Sample(one.now.wall_ms, facts.floor.offset), terms.least_ms)
            if not isinstance(read, Unknown) and read.high < _KEEPS_UP * rate.low:
                text = f"{facts.floor.by} reads more slowly than is written, so more and more is held"
                behind = Reason("G2", text)
    stopped: dict[str, Unknown] = {}
    if isinstance(touch, Unknown):
        stopped = dict.fromkeys((*_TRIGGERS, "R5"), touch)
    elif never is None and not facts.empty:
        for weighed in weigh(facts, settings, terms.now_ms):
            why = weighed.allowed
            if (
                weighed.code in _TRIGGERS
                and isinstance(why, Unknown)
                and any(reason.code not in _PASSING for reason in why.reasons)
            ):
                stopped[weighed.code] = why
    return Standing(settings, never, lag, behind, stopped, share)


def _active_bytes(flow: Flow, limits: BrokerLimits) -> float:
    """Return how many bytes an active segment takes at most: brokers free whole segments only."""
    if isinstance(limits.segment_bytes, Unknown) or isinstance(limits.segment_ms, Unknown):
        return float("inf")
    if isinstance(flow.bytes_per_record, Unknown):
        return float(limits.segment_bytes)
    return min(float(limits.segment_bytes), flow.rate.high * limits.segment_ms * flow.bytes_per_record.high)


def _now(seen: Sequence[Seen]) -> Amounts:
    records = 0
    size: Maybe[Span] = NOTHING
    for one in seen:
        start, end, bytes_now = one.facts.log_start, one.facts.high_watermark, one.facts.size_bytes
        if isinstance(start, Unknown) or isinstance(end, Unknown):
            unknown = start if isinstance(start, Unknown) else end
            assert isinstance(unknown, Unknown)  # noqa: S101  (for the type checker)
            return Amounts(unknown, unknown)
        records += end - start
        if not isinstance(size, Unknown):
            size = bytes_now if isinstance(bytes_now, Unknown) else size.plus(Span.of(bytes_now))
    return Amounts(Span.of(records), size)


def _sum(parts: Iterable[tuple[Maybe[Span], Maybe[Span]]]) -> Amounts:
    """Return the sums of records and of their bytes."""
    records: Maybe[Span] = NOTHING
    size: Maybe[Span] = NOTHING
    for kept, each in parts:
        if isinstance(kept, Unknown):
            return Amounts(kept, kept)
        if not isinstance(records, Unknown):
            records = records.plus(kept)
        if not isinstance(size, Unknown):
            size = each if isinstance(each, Unknown) else size.plus(kept.times(each))
    return Amounts(records, size)


def _bounded(amounts: Amounts) -> bool:
    return not isinstance(amounts.records, Unknown) and amounts.records.bounded


def _all(amounts: Iterable[Amounts]) -> Amounts:
    some = list(amounts)
    return Amounts(_added(one.records for one in some), _added(one.size_bytes for one in some))


def _added(spans: Iterable[Maybe[Span]]) -> Maybe[Span]:
    found = []
    for one in spans:
        if isinstance(one, Unknown):
            return one
        found.append(one)
    return total(found)
