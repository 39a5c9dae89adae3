"""Numbers of which only the bounds are known. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple


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
    """Return the sum of all."""
    found = NOTHING
    for one in spans:
        found = found.plus(one)
    return found


def _product(one: float, other: float) -> float:
    return 0.0 if 0 in (one, other) else one * other


def _quotient(one: float, other: float) -> float:
    if one == 0 or math.isinf(other):
        return 0.0 if not math.isinf(one) else math.inf
    return math.inf if other == 0 else one / other
