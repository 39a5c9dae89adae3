"""What brokers alone keep of a partition in steady state, and what a policy keeps of it beside them. Pure.

Steady state: records are written as fast as measured, consumers stay as far behind as they are now, and event time
goes on as the clock does. Between two trims the log grows: the smallest value is right after one, the largest right
before the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from retention_cli.advise.sure import or_unknown, sure
from retention_cli.core.model import Maybe, Reason, Unknown
from retention_cli.forecast.rates import Rate
from retention_cli.forecast.span import ENDLESS, NOTHING, Span
from retention_cli.policy.settings import Settings

BROKERS: Final = "brokers"
COMPACT: Final = "compact"
"""The code of a reason: a compacted topic."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What flows through a partition: its offsets now (H − S), its rate, and how many bytes an offset takes."""

    records: int
    rate: Rate
    bytes_per_record: Maybe[Span]


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """A topic's live settings as brokers use them; None means no limit. ``check_ms`` is their check interval."""

    deletes: Maybe[bool]
    compacts: Maybe[bool]
    retention_ms: Maybe[int | None]
    retention_bytes: Maybe[int | None]
    segment_ms: Maybe[int]
    segment_bytes: Maybe[int]
    check_ms: Maybe[int]


@dataclass(frozen=True, slots=True)
class Kept:
    """How many records are kept, and by which rule's word (``R1`` to ``R5``, else :data:`BROKERS`).

    ``notes`` say which rules can't act, and why.
    """

    records: Span
    by: str = BROKERS
    notes: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a policy stands on one partition.

    ``untouched``: the policy never trims it, or it is frozen, and why. ``lag`` is how far the floor is behind H;
    ``falls_behind`` says that its consumer reads more slowly than is written. ``stopped`` are the rules that can't act
    now, by code. ``topic_share`` is the partition's share of its topic's traffic, for limits on whole topics.
    """

    settings: Settings
    untouched: Reason | None = None
    lag: Maybe[int] = 0
    falls_behind: Reason | None = None
    stopped: Mapping[str, Unknown] | None = None
    topic_share: float = 1.0


def bytes_per_record(
    size_bytes: Maybe[int], log_start: int, high_watermark: int, segment_bytes: Maybe[int]
) -> Maybe[Span]:
    """Return how many bytes of a replica one offset takes, from its size.

    If the log start offset has moved, the size may include dead bytes of the segment that it lies in; but the whole
    size never takes more offsets than there ever were.
    """
    records = high_watermark - log_start
    if isinstance(size_bytes, Unknown):
        return size_bytes
    if records <= 0:
        return Unknown.because("size", "it is empty: how large its records are is unknown")
    most = size_bytes / records
    if log_start == 0:
        return Span.of(most)
    ever = size_bytes / high_watermark
    if isinstance(segment_bytes, Unknown):
        return Span(ever, most)
    return Span(max(ever, (size_bytes - segment_bytes) / records), most)


@or_unknown
def brokers_keep(flow: Flow, limits: BrokerLimits) -> Span:
    """Return how many records brokers alone keep: by ``retention.ms`` and ``.bytes``, in whole segments."""
    if sure(limits.compacts):
        return sure(Unknown.because("compact", "it is compacted: what stays depends on its keys"))
    if not sure(limits.deletes):
        return _forever(flow)
    time, size = sure(limits.retention_ms), sure(limits.retention_bytes)
    if time is None and size is None:
        return _forever(flow)
    rate = flow.rate.span
    if rate.high == 0 and size is None:
        return NOTHING  # brokers roll an active segment, too, once its newest record has expired
    segment = rate.high * sure(limits.segment_ms)
    if not isinstance(flow.bytes_per_record, Unknown):
        segment = min(segment, Span.of(sure(limits.segment_bytes)).over(flow.bytes_per_record).high)
    late = Span(0.0, segment + rate.high * sure(limits.check_ms))
    found = ENDLESS
    if time is not None:
        found = found.at_most(rate.times(Span.of(time)).plus(late))
    if size is not None:
        fits = Span.of(size).over(sure(flow.bytes_per_record))
        found = found.at_most(fits.plus(late) if rate.high else fits.at_most(Span.of(flow.records)))
    return found


def policy_keeps(flow: Flow, standing: Standing, brokers: Maybe[Span], every_ms: int) -> Maybe[Kept]:
    """Return how many records a policy keeps that trims every so often (ms); brokers go on deleting, too."""
    settings, rate = standing.settings, flow.rate.span
    if isinstance(brokers, Unknown):
        # A policy's own word may be enough; but nothing bounds what it does not let go of.
        brokers = ENDLESS
        alone: Unknown | None = Unknown.because("brokers", "what brokers keep is unknown, and no rule lets go of it")
    else:
        alone = None
    if standing.untouched is not None:
        return Kept(brokers, BROKERS, (standing.untouched,)) if alone is None else alone
    if settings.unsettled is not None:
        return settings.unsettled
    late = Span(0.0, rate.high * every_ms)
    best, notes = Kept(brokers), list[Reason]()
    for code, asked in _asked(flow, settings, standing.topic_share).items():
        stop = _stop(code, standing)
        if stop is not None:
            notes += stop.reasons
            continue
        if isinstance(asked, Unknown):
            notes += asked.reasons
            continue
        kept = asked
        if guarded(code, settings) and not isinstance(standing.lag, Unknown):
            behind = standing.falls_behind
            notes += [] if behind is None else [behind]
            kept = kept.at_least(Span(float(standing.lag), float(standing.lag) if behind is None else math.inf))
        if settings.min_wallclock_ms is not None:
            kept = kept.at_least(rate.times(Span.of(settings.min_wallclock_ms)))
        kept = kept.plus(late)
        low = min(best.records.low, kept.low)
        wins = kept.high < best.records.high
        best = Kept(Span(low, kept.high if wins else best.records.high), code if wins else best.by)
    notes = list(dict.fromkeys(notes))
    if alone is not None and best.by == BROKERS:
        return Unknown((*alone.reasons, *notes))
    return Kept(best.records, best.by, tuple(notes))


def guarded(code: str, settings: Settings) -> bool:
    """Return whether a rule stops at what somebody has yet to read (R1 by itself, others by G2)."""
    if code == "R1":
        return True
    if code == "R4" and not settings.forced_age_guarded:
        return False
    return settings.unconsumed == "hold"


def _asked(flow: Flow, settings: Settings, share: float) -> dict[str, Maybe[Span]]:
    """Return how many records each rule that is on would leave, before guards and between no trims."""
    rate, found = flow.rate.span, dict[str, Maybe[Span]]()
    if settings.consumed_after_ms is not None:
        found["R1"] = rate.times(Span.of(settings.consumed_after_ms))
    if settings.event_time_ms is not None:
        # Event time moves only with new records: nothing expires where nothing is written.
        idle = Span(0.0, float(flow.records))
        found["R2"] = idle if rate.high == 0 else rate.times(Span.of(settings.event_time_ms))
    if settings.min_timestamp_ms:
        found["R3"] = Span(0.0, math.inf)  # as its application moves it
    if settings.forced_age_ms is not None:
        found["R4"] = rate.times(Span.of(settings.forced_age_ms))
    sizes = [
        *([] if settings.max_bytes is None else [float(settings.max_bytes)]),
        *([] if settings.max_topic_bytes is None else [settings.max_topic_bytes * share]),
    ]
    if sizes:
        each = flow.bytes_per_record
        if isinstance(each, Unknown):
            found["R5"] = each
        else:
            fits = Span.of(min(sizes)).over(each)
            found["R5"] = fits if rate.high else fits.at_most(Span.of(flow.records))
    return found


def _stop(code: str, standing: Standing) -> Unknown | None:
    """Return why a rule can't act, None if it can."""
    if standing.stopped is not None and code in standing.stopped:
        return standing.stopped[code]
    if guarded(code, standing.settings) and isinstance(standing.lag, Unknown):
        return standing.lag
    return None


def _forever(flow: Flow) -> Span:
    """Return what is kept if nothing is deleted: all that is there, or without end while something is written."""
    if flow.rate.high == 0:
        return Span.of(flow.records)
    return ENDLESS if flow.rate.low > 0 else Span(float(flow.records), math.inf)
