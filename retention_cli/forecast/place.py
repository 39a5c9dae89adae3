"""What one partition leaves the groups that have yet to read it. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from retention_cli.core.model import Maybe, Sample, Unknown
from retention_cli.forecast.disks import R6
from retention_cli.forecast.loss import Loss, Unread, time_to_loss
from retention_cli.forecast.make import PartitionForecast, Seen, Terms
from retention_cli.forecast.observed import stood_at
from retention_cli.forecast.rates import Rate, age_of, group_rate
from retention_cli.forecast.span import Span
from retention_cli.forecast.steady import BrokerLimits
from retention_cli.memory.group import GroupMemory
from retention_cli.policy.settings import Settings

_KEPT: Final = 8
"""Offsets of a partition whose results are kept: most groups stand at its end."""
_NOT_SEEN: Final = Unknown.because("rate", "its position was not seen before")


class Left(NamedTuple):
    """What a group has yet to read: the age of its oldest unread record (ms), its lag in offsets, and the loss."""

    age_ms: Span
    lag: int
    loss: Maybe[Loss]


class Place:
    """A partition. What depends on a group's offset alone is worked out once for groups that stand at the same."""

    def __init__(
        self, here: Seen, part: PartitionForecast, limits: BrokerLimits, settings: Settings, r6: R6, terms: Terms
    ) -> None:
        self._here, self._part, self._terms = here, part, terms
        self._limits, self._settings, self._r6 = limits, settings, r6
        self._samples = () if isinstance(here.samples, Unknown) else here.samples
        self._start = 0 if isinstance(here.facts.log_start, Unknown) else here.facts.log_start
        self._at: dict[int, tuple[Span, Maybe[Span]]] = {}
        self._left: dict[tuple[int, Maybe[Rate]], Left] = {}

    def left(self, offset: int, memory: GroupMemory | None) -> Left:
        """Return what a group that stands at an offset has yet to read; ``memory`` is where it stood before."""
        here = self._here
        stood = None if memory is None else stood_at(memory, here.facts)
        now = Sample(here.now.wall_ms, offset)
        read = _NOT_SEEN if stood is None else group_rate(stood, now, self._terms.least_ms)
        if (known := self._left.get((offset, read))) is not None:
            return known
        age_ms, due = self._ages(offset)
        unread = Unread(
            age_ms=age_ms,
            lag=max(0, here.now.high_watermark - offset),
            lost=max(0, self._start - offset),
            written=self._part.rate,
            read=read,
            bytes_per_record=self._part.each,
        )
        loss = time_to_loss(unread, self._limits, self._settings, due, self._terms.every_ms)
        if len(self._left) >= _KEPT:
            self._left.clear()
        found = self._left[offset, read] = Left(age_ms, unread.lag, loss)
        return found

    def _ages(self, offset: int) -> tuple[Span, Maybe[Span]]:
        """Return how old the record at an offset is, and how long until R6 comes to it (ms)."""
        if (known := self._at.get(offset)) is not None:
            return known
        age_ms = age_of(self._samples, self._here.now, offset)
        if len(self._at) >= _KEPT:
            self._at.clear()
        found = self._at[offset] = age_ms, self._r6.deadline(self._here.facts.tp, age_ms, self._here.now.wall_ms)
        return found
