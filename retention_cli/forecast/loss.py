"""How long until records go that a group has not read: time to forced loss. Pure.

What may take them: R4, R6 and the rules that ``unconsumed: trim`` lets past G2, and the broker's own retention.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from retention_cli.core.model import Maybe, Unknown
from retention_cli.forecast.rates import Rate
from retention_cli.forecast.span import Span
from retention_cli.forecast.steady import BrokerLimits, guarded
from retention_cli.policy.settings import Settings

Cause = Literal["R2", "R4", "R5", "R6", "retention.ms", "retention.bytes", "gone"]
"""What takes the record first; ``gone``: the group stands below the log start offset."""
_BROKERS: Final = frozenset({"retention.ms", "retention.bytes"})
"""Causes that don't wait for the policy's next trim."""
NEVER: Final = Span(math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Unread:
    """What one group has yet to read of one partition.

    ``age_ms`` is how long ago its oldest unread record was written (:func:`~retention_cli.forecast.rates.age_of`),
    ``lag`` how many offsets it is behind, ``lost`` how many went before it read them. ``written`` is how fast the
    partition is written to, ``read`` how fast the group reads. ``bytes_per_record`` is of one replica.
    """

    age_ms: Span
    lag: int
    lost: int = 0
    written: Maybe[Rate] = Unknown.because("rate", "not measured")  # noqa: RUF009  (a frozen value)
    read: Maybe[Rate] = Unknown.because("rate", "not measured")  # noqa: RUF009  (likewise)
    bytes_per_record: Maybe[Span] = Unknown.because("size", "not read")  # noqa: RUF009  (likewise)


class Loss(NamedTuple):
    """When a group loses records, and to what.

    ``if_stopped_ms`` is how long until its oldest unread record goes, if it reads nothing from now on: a low of 0 may
    mean now, and a high without end that nothing says by when. ``at_its_rate_ms`` is the same if it goes on reading as
    fast as it was seen to; :data:`NEVER` if it keeps up. ``age_known`` is false if the record is older than the
    ledger's samples, and not due for certain: a low of 0 is then only the least that can be said.
    """

    cause: Cause
    if_stopped_ms: Span
    at_its_rate_ms: Maybe[Span]
    age_known: bool = True

    @property
    def sure(self) -> bool:
        """Whether the low of ``if_stopped_ms`` is measured, and not for want of samples."""
        return self.age_known or self.if_stopped_ms.low > 0


def time_to_loss(
    unread: Unread, brokers: BrokerLimits, settings: Settings | None, r6_ms: Maybe[Span], every_ms: int = 0
) -> Maybe[Loss]:
    """Return when a group loses records to what comes first.

    Timestamps are taken to be the times of writing.

    Args:
        unread: what it has yet to read.
        brokers: the topic's live limits.
        settings: the policy's for the topic, None if it does not manage it.
        r6_ms: how long until R6 comes to the oldest unread record (:class:`~retention_cli.forecast.disks.R6`),
            :data:`NEVER` if no disk with it has a ceiling.
        every_ms: how often the policy trims: what is due waits for the next time (ms).
    """
    if unread.lost:
        return Loss("gone", Span.of(0.0), Span.of(0.0))
    deadlines = list(_deadlines(unread, brokers, settings, r6_ms))
    unknown = [one for _, one in deadlines if isinstance(one, Unknown)]
    known = [(cause, one) for cause, one in deadlines if not isinstance(one, Unknown)]
    due = any(one.high == 0 for _, one in known)
    known = [(cause, one if cause in _BROKERS else Span(one.low, one.high + every_ms)) for cause, one in known]
    if unknown:  # it might come first
        return Unknown(tuple(dict.fromkeys(reason for one in unknown for reason in one.reasons)))
    if not known:
        return Loss("retention.ms", NEVER, NEVER)
    first: Span = NEVER
    for _, span in known:
        first = first.at_most(span)
    cause = min(known, key=lambda one: (one[1].low, one[1].high))[0]
    stretched = [one if name == "R6" else _stretched(one, unread) for name, one in known]
    return Loss(cause, first, _soonest(stretched), due or not math.isinf(unread.age_ms.high))


def seconds_to_loss(loss: Maybe[Loss]) -> float | None:
    """Return the seconds that are left for sure if the group stops now: ``group_seconds_to_loss{group,topic}``.

    ``math.inf`` if nothing takes its records, None if it can't be told.
    """
    return None if isinstance(loss, Unknown) or not loss.sure else loss.if_stopped_ms.low / 1000


def _deadlines(
    unread: Unread, brokers: BrokerLimits, settings: Settings | None, r6_ms: Maybe[Span]
) -> Iterable[tuple[Cause, Maybe[Span]]]:
    """Yield how long each rule leaves the oldest unread record, if the group stops."""
    if isinstance(brokers.deletes, Unknown):
        yield "retention.ms", brokers.deletes
    elif brokers.deletes:
        yield from _by_brokers(unread, brokers)
    if settings is None or settings.hold is not None:
        return
    if settings.forced_age_ms is not None and not guarded("R4", settings):
        yield "R4", _after(settings.forced_age_ms, unread.age_ms)
    if settings.event_time_ms is not None and not guarded("R2", settings):
        yield "R2", _after(settings.event_time_ms, unread.age_ms)
    if not guarded("R5", settings):
        sizes = [one for one in (settings.max_bytes,) if one is not None]
        if settings.max_topic_bytes is not None:  # its partitions share it: none is sure of any of it
            yield "R5", Span(0.0, math.inf)
        if sizes:
            yield "R5", _when_full(min(sizes), 0, unread)
        if r6_ms != NEVER:
            yield "R6", r6_ms


def _by_brokers(unread: Unread, brokers: BrokerLimits) -> Iterable[tuple[Cause, Maybe[Span]]]:
    """Yield what brokers leave: whole segments go, so it may take as long as one is active, and until they check."""
    time, size = brokers.retention_ms, brokers.retention_bytes
    if isinstance(time, Unknown):
        yield "retention.ms", time
    elif time is not None:
        earliest = _after(time, unread.age_ms)
        late = [brokers.segment_ms, brokers.check_ms]
        slack = math.inf if any(isinstance(one, Unknown) for one in late) else sum(map(_number, late))
        yield "retention.ms", Span(earliest.low, earliest.high + slack)
    if isinstance(size, Unknown):
        yield "retention.bytes", size
    elif size is not None:
        segment = brokers.segment_bytes
        found = _when_full(size, math.inf if isinstance(segment, Unknown) else segment, unread)
        yield "retention.bytes", found


def _after(limit_ms: int, age_ms: Span) -> Span:
    """Return how long a record of this age has until it is as old as the limit."""
    low = 0.0 if math.isinf(age_ms.high) else max(0.0, limit_ms - age_ms.high)
    return Span(low, max(0.0, limit_ms - age_ms.low))


def _when_full(limit: int, slack: float, unread: Unread) -> Maybe[Span]:
    """Return how long until this many bytes (and up to so many more) stand behind the oldest unread record."""
    if isinstance(unread.bytes_per_record, Unknown):
        return unread.bytes_per_record
    if isinstance(unread.written, Unknown):
        return unread.written
    behind = unread.bytes_per_record.times(Span.of(unread.lag))
    growing = unread.bytes_per_record.times(unread.written.span)
    left = Span(max(0.0, limit - behind.high), max(0.0, limit + slack - behind.low))
    return left.over(growing)


def _stretched(deadline: Span, unread: Unread) -> Maybe[Span]:
    """Return a deadline that a group moves away from while it reads: by 1 / (1 − read / written)."""
    if isinstance(unread.read, Unknown):
        return unread.read
    if isinstance(unread.written, Unknown):
        return unread.written
    slowest = 0.0 if unread.read.low == 0 else unread.read.low / unread.written.high if unread.written.high else 1.0
    fastest = 0.0 if unread.read.high == 0 else unread.read.high / unread.written.low if unread.written.low else 1.0
    return Span(_divided(deadline.low, slowest), _divided(deadline.high, fastest))


def _divided(ms: float, share: float) -> float:
    """Return a time in which a share of it is won back: without end once that is all of it, but what is due is due."""
    return 0.0 if ms == 0 else math.inf if share >= 1 else ms / (1 - share)


def _soonest(spans: Iterable[Maybe[Span]]) -> Maybe[Span]:
    found = NEVER
    for one in spans:
        if isinstance(one, Unknown):
            return one
        found = found.at_most(one)
    return found


def _number(value: Maybe[int]) -> int:
    assert not isinstance(value, Unknown)  # noqa: S101  (for the type checker: checked by the caller)
    return value
