"""Summarize a topic's hours: totals, late and future records, and what a retention would keep. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, NamedTuple, get_args

from retention_cli.core.grouping import by_key
from retention_cli.profile.hours import HOUR_MS, Kind, PartitionHours, Row

DAY_MS: Final = 24 * HOUR_MS
RETENTIONS_MS: Final = tuple(days * DAY_MS for days in (1, 3, 7, 30))
"""Common values of ``retention.ms``."""
_BINS_H: Final = (1, 2, 3, 4, 6, 8, 12, 24, 48, 72, 96, 7 * 24, 14 * 24, 28 * 24, 56 * 24, 91 * 24, 182 * 24, 365 * 24)
_SELDOM: Final = 2_000
"""A chart may leave out the outermost hours on each side, if they hold at most one in this many records."""
_WORTH: Final = 4
"""… if the full range is at least this many times as long as the rest."""


class At(NamedTuple):
    """A record: its partition, its offset, and its time in Unix ms."""

    partition: int
    offset: int
    time_ms: int


@dataclass(slots=True)
class Amount:
    """A number of records, and their bytes as a consumer sees them."""

    records: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class Summary:
    """One topic. ``hours`` is keyed by the start of the hour in Unix ms; ``kinds`` has the records without an hour.

    ``late`` counts records that are older than an earlier one in their partition; ``late_ms`` is the largest such
    difference among those stamped since 2000. ``late_exact`` is false if ``late`` is a lower bound. ``furthest`` is
    the record furthest in the future. ``ancient_from`` is the first record stamped before 2000.
    """

    records: int = 0
    size_bytes: int = 0
    tombstones: int = 0
    unreadable: int = 0
    late: int = 0
    late_ms: int = 0
    late_partition: int | None = None
    late_exact: bool = True
    oldest_ms: int | None = None
    newest: At | None = None
    furthest: At | None = None
    ancient_from: At | None = None
    hours: dict[int, Amount] = field(default_factory=dict)
    kinds: dict[Kind, Amount] = field(default_factory=lambda: {kind: Amount() for kind in get_args(Kind)})

    def kept(self, now_ms: int, retentions_ms: Sequence[int] = RETENTIONS_MS) -> dict[int, Amount]:
        """Return what each retention would keep, to the hour. The hour that contains the cutoff is counted in full.

        Records stamped in the future or without a time are kept; those stamped before 2000 are not.
        """
        found = {}
        for retention in retentions_ms:
            kept = [one for hour, one in self.hours.items() if hour + HOUR_MS > now_ms - retention]
            kept += self.kinds["future"], self.kinds["no-time"]
            found[retention] = Amount(sum(one.records for one in kept), sum(one.size_bytes for one in kept))
        return found


def summarize(partitions: Mapping[int, PartitionHours]) -> Summary:
    """Return the summary over a topic's partitions."""
    rows = [(number, *row) for number, hours in sorted(partitions.items()) for row in hours.items()]
    of_kind = by_key((kind, (number, row)) for number, kind, _hour, row in rows)
    dated = [(number, row) for number, _kind, hour, row in rows if hour is not None]
    latest, latest_row = max(dated, key=lambda one: one[1].late_ms, default=(None, None))
    found = Summary(
        records=sum(row.records for *_, row in rows),
        size_bytes=sum(row.size_bytes for *_, row in rows),
        tombstones=sum(row.tombstones for *_, row in rows),
        unreadable=sum(row.unreadable for *_, row in rows),
        late=sum(row.late for *_, row in rows),
        late_ms=0 if latest_row is None else latest_row.late_ms,
        late_partition=latest if latest_row is not None and latest_row.late_ms else None,
        late_exact=all(one.exact for one in partitions.values()),
        oldest_ms=min((row.oldest_ms for _, row in dated), default=None),
        newest=_newest(of_kind.get("hour", ())),
        furthest=_newest(of_kind.get("future", ())),
        ancient_from=next((At(n, row.first_offset, row.oldest_ms) for n, row in of_kind.get("before-2000", ())), None),
    )
    for _, kind, hour, row in rows:
        amount = found.kinds[kind] if hour is None else found.hours.setdefault(hour, Amount())
        amount.records += row.records
        amount.size_bytes += row.size_bytes
    return found


def _newest(rows: Iterable[tuple[int, Row]]) -> At | None:
    return max((At(n, row.newest_offset, row.newest_ms) for n, row in rows), key=lambda one: one.time_ms, default=None)


@dataclass(frozen=True, slots=True)
class Bins:
    """A summary's hours as bins: a value for each ``bin_ms`` from ``start_ms`` on; ``left_out`` counts records."""

    start_ms: int
    bin_ms: int
    values: Sequence[int]
    left_out: int

    @property
    def end_ms(self) -> int:
        """The end of the last bin in Unix ms."""
        return self.start_ms + self.bin_ms * len(self.values)


def binned(summary: Summary, most: int, *, of_bytes: bool = False) -> Bins | None:
    """Return at most ``most`` bins of equal length over a topic's hours, None if there are no hours.

    A few records far from all the others would flatten the chart: they are left out, and counted.
    """
    hours = sorted(summary.hours)
    if not hours:
        return None
    first, last = _span(summary, hours)
    bin_ms = next(
        (size * HOUR_MS for size in _BINS_H if (last - first) // HOUR_MS // size + 2 <= most),
        HOUR_MS * 24 * 365 * (1 + (last - first) // (HOUR_MS * 24 * 365 * max(1, most - 2))),
    )
    start = first // bin_ms * bin_ms
    values = [0] * ((last - start) // bin_ms + 1)
    left_out = 0
    for hour, amount in summary.hours.items():
        if first <= hour <= last:
            values[(hour - start) // bin_ms] += amount.size_bytes if of_bytes else amount.records
        else:
            left_out += amount.records
    return Bins(start, bin_ms, values, left_out)


def _span(summary: Summary, hours: Sequence[int]) -> tuple[int, int]:
    spare = sum(one.records for one in summary.hours.values()) // _SELDOM
    low, high = _skip(summary, hours, spare), -1 - _skip(summary, hours[::-1], spare)
    if (hours[-1] - hours[0] + HOUR_MS) >= _WORTH * (hours[high] - hours[low] + HOUR_MS):
        return hours[low], hours[high]
    return hours[0], hours[-1]


def _skip(summary: Summary, hours: Sequence[int], spare: int) -> int:
    """Return how many of these hours, from the first on, hold at most ``spare`` records together."""
    return bisect_right(list(accumulate(summary.hours[hour].records for hour in hours)), spare)
