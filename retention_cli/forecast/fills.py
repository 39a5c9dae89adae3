"""When a disk is full, if its replicas grow as measured, each up to what is kept of it. Pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from retention_cli.forecast.span import Span


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
