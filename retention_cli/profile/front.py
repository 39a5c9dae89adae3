"""The times of a piece's in-order records, which may prove late once an earlier piece is merged. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from retention_cli.core.extras import numpy

STEPS_AT_MOST: Final = 1_000_000
"""Counts are kept for at most this many distinct times: 16 MB."""


@dataclass(slots=True)
class Front:
    """Times (Unix ms, ascending) and how many records have each, for the earliest ``STEPS_AT_MOST`` of them.

    It is complete for times before ``known_to_ms`` (None: for all times).
    """

    steps: list[tuple[Any, Any]] = field(default_factory=list)
    length: int = 0
    known_to_ms: int | None = None

    def add(self, times: Any) -> None:
        """Add the times of the next in-order records (a numpy array, Unix ms)."""
        if self.known_to_ms is not None or not len(times):
            return
        np = numpy()
        values, counts = np.unique(times, return_counts=True)
        self._append(values, counts)

    def followed_by(self, later: Front | None, max_ms: int | None) -> Front:
        """Return the front of this piece and the next. In the next, only times from ``max_ms`` on are in order."""
        found = Front(list(self.steps), self.length, self.known_to_ms)
        if later is None or found.known_to_ms is not None:
            return found
        for values, counts in later.steps:
            kept = values >= (0 if max_ms is None else max_ms)
            found._append(values[kept], counts[kept])
        if later.known_to_ms is not None and found.known_to_ms is None:
            found.known_to_ms = max(later.known_to_ms, 0 if max_ms is None else max_ms)
        return found

    def count(self, begin_ms: int, end_ms: int) -> tuple[int, bool]:
        """Return how many records have a time in [``begin_ms``, ``end_ms``), and whether that count is exact."""
        found = 0
        for values, counts in self.steps:
            first, last = values.searchsorted((begin_ms, end_ms))
            found += int(counts[first:last].sum())
        return found, self.known_to_ms is None or self.known_to_ms >= end_ms

    def _append(self, values: Any, counts: Any) -> None:
        """Append ascending distinct times that follow the existing ones; the first may equal the last existing one."""
        if not len(values) or self.known_to_ms is not None:
            return
        if self.steps and self.steps[-1][0][-1] == values[0]:
            last_values, last_counts = self.steps[-1]
            last_counts = last_counts.copy()
            last_counts[-1] += counts[0]
            self.steps[-1] = last_values, last_counts
            values, counts = values[1:], counts[1:]
        room = STEPS_AT_MOST - self.length
        if len(values) > room:
            self.known_to_ms = int(values[room])
            values, counts = values[:room], counts[:room]
        if len(values):
            self.steps.append((values, counts))
            self.length += len(values)
