"""Count one partition's records by hour, in one pass, or in pieces that merge to the same result. Pure.

Pieces travel between processes as bytes.

Records are added as columns, in offset order. Memory is bounded for any times: each hour from 2000 to the
ceiling, beyond which times count as future, has its own row; all records stamped before 2000 share one row, as do
all stamped beyond the ceiling, and all without a time.

And a topic's hours in summary: totals, late and future records, and what a retention would keep.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np

from retention_cli.core.grouping import by_key
from retention_cli.core.model import ANCIENT_MS
from retention_cli.policy.settings import DEFAULT_MAX_AHEAD_MS

HOUR_MS: Final = 3_600_000
AHEAD_AT_MOST_MS: Final = 10 * 366 * 24 * HOUR_MS
NO_TIME_MS: Final = -1
"""In a column of times: this record has none. Used only in this package: rows have the kind ``no-time``."""

Kind = Literal["hour", "before-2000", "future", "no-time"]
_NO_TIME, _ANCIENT, _FUTURE = -3, -2, -1
_KINDS: Final[dict[int, Kind]] = {_NO_TIME: "no-time", _ANCIENT: "before-2000", _FUTURE: "future"}
_LARGEST: Final = 2**63 - 1
STEPS_AT_MOST: Final = 1_000_000
"""A front has counts for at most this many distinct times: 16 MB."""


class BrokenPieceError(Exception):
    """The bytes are not a valid piece of a profile."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The limits that times are compared with, in Unix ms. Pieces merge only if their frames are equal.

    A time more than ``max_ahead_ms`` (at most ten years) after ``now_ms`` counts as future. If a window is given, only
    records with a time in [``from_ms``, ``to_ms``) are counted.
    """

    now_ms: int
    max_ahead_ms: int = DEFAULT_MAX_AHEAD_MS
    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def ceiling_ms(self) -> int:
        """The last moment that does not count as future (Unix ms)."""
        return self.now_ms + min(self.max_ahead_ms, AHEAD_AT_MOST_MS)


class Row(NamedTuple):
    """The records of one hour, or of one of the kinds without an hour. Times are in Unix ms, sizes in bytes.

    ``size_bytes`` are keys, values and headers as a consumer sees them, uncompressed. ``unreadable`` counts records
    whose event time can't be read. ``newest_offset`` is the first record with the largest time. ``late`` counts
    records that are older than a record before them, ``late_ms`` is the largest such difference; a record from the
    future makes no other record late.
    """

    records: int
    size_bytes: int
    tombstones: int
    unreadable: int
    first_offset: int
    last_offset: int
    oldest_ms: int
    newest_ms: int
    newest_offset: int
    late: int
    late_ms: int

    def plus(self, later: Row) -> Row:
        """Return the row with the counts of one with later offsets."""
        newest = later if later.newest_ms > self.newest_ms else self
        return Row(
            records=self.records + later.records,
            size_bytes=self.size_bytes + later.size_bytes,
            tombstones=self.tombstones + later.tombstones,
            unreadable=self.unreadable + later.unreadable,
            first_offset=self.first_offset,
            last_offset=later.last_offset,
            oldest_ms=min(self.oldest_ms, later.oldest_ms),
            newest_ms=newest.newest_ms,
            newest_offset=newest.newest_offset,
            late=self.late + later.late,
            late_ms=max(self.late_ms, later.late_ms),
        )


@dataclass(slots=True)
class Front:
    """A piece's in-order times (Unix ms, ascending) and how many records have each, at most ``STEPS_AT_MOST`` of them.

    They may prove late once an earlier piece is merged. It is complete for times before ``known_to_ms`` (None: all).
    """

    steps: list[tuple[Any, Any]] = field(default_factory=list)
    length: int = 0
    known_to_ms: int | None = None

    def add(self, times: Any) -> None:
        """Add the times of the next in-order records (a numpy array, Unix ms), none before those already in it."""
        if self.known_to_ms is not None or not len(times):
            return
        values, counts = np.unique(times, return_counts=True)
        if self.steps and self.steps[-1][0][-1] == values[0]:
            self.steps[-1][1][-1] += counts[0]
            values, counts = values[1:], counts[1:]
        if len(values) > (room := STEPS_AT_MOST - self.length):
            self.known_to_ms = int(values[room])
            values, counts = values[:room], counts[:room]
        if len(values):
            self.steps.append((values, counts))
            self.length += len(values)

    def count(self, begin_ms: int, end_ms: int) -> tuple[int, bool]:
        """Return how many records have a time in [``begin_ms``, ``end_ms``), and whether that count is exact."""
        found = (counts[slice(*values.searchsorted((begin_ms, end_ms)))].sum() for values, counts in self.steps)
        return int(sum(found)), self.known_to_ms is None or self.known_to_ms >= end_ms


@dataclass(slots=True)
class PartitionHours:
    """The rows of one partition from ``start`` to ``end`` (exclusive, the next offset to read).

    ``max_ms`` is the largest time so far that is not in the future, None if there is none. If earlier records may be
    merged in before these (``merged``), ``front`` keeps the times of records that those could make late. ``exact`` is
    false if it could not keep enough of them; ``late`` is then a lower bound.
    """

    frame: Frame
    start: int
    end: int
    rows: dict[int, Row] = field(default_factory=dict)
    max_ms: int | None = None
    front: Front | None = None
    exact: bool = True

    @classmethod
    def begin(cls, frame: Frame, start: int, *, piece: bool = False) -> PartitionHours:
        """Return empty hours that begin at an offset. ``piece``: earlier records may be merged in before them."""
        return cls(frame, start, start, front=Front() if piece else None)

    def add(self, offsets: Any, times: Any, sizes: Any, tombstones: Any = None, unreadable: Any = None) -> None:
        """Add the next records, as numpy arrays of equal length in offset order.

        Args:
            offsets: int64.
            times: int64, Unix ms; :data:`NO_TIME_MS` for a record without one.
            sizes: int64, bytes.
            tombstones: bool, whether the value is null; None: no value is null.
            unreadable: bool, whether an expected event time is missing; None: none is missing.

        Raises:
            ValueError: they do not follow the records added before.
        """
        if not len(offsets):
            return
        if offsets[0] < self.end:
            raise ValueError(f"offset {offsets[0]} comes after {self.end - 1}")
        self.end = int(offsets[-1]) + 1
        times = np.maximum(times, NO_TIME_MS)
        dated = (times >= 0) & (times <= self.frame.ceiling_ms)
        before = np.empty(len(times) + 1, np.int64)
        before[0] = NO_TIME_MS if self.max_ms is None else self.max_ms
        np.copyto(before[1:], np.where(dated, times, NO_TIME_MS))
        np.maximum.accumulate(before, out=before)
        late = dated & (times < before[:-1])
        columns = [
            offsets,
            times,
            sizes,
            np.zeros(len(times), np.int64) if tombstones is None else tombstones.astype(np.int64),
            np.zeros(len(times), np.int64) if unreadable is None else unreadable.astype(np.int64),
            late.astype(np.int64),
            np.where(late, before[:-1] - times, 0),
        ]
        if before[-1] >= 0:
            self.max_ms = int(before[-1])
        if (inside := self._inside(times)) is not None:
            columns, dated = [column[inside] for column in columns], dated[inside]
        if self.front is not None:
            self.front.add(columns[1][dated & (columns[5] == 0)])
        for key, row in self._grouped(columns):
            self._take(key, row)

    def reached(self, offset: int) -> None:
        """Note that all records before ``offset`` have been added."""
        self.end = max(self.end, offset)

    def merged(self, later: PartitionHours) -> PartitionHours:
        """Return the hours of these records, which are no piece, followed by those of a piece: as one pass finds both.

        Raises:
            ValueError: ``later`` does not begin where these end, their frames differ, or ``later`` was not begun as
                a piece.
        """
        if later.frame != self.frame:
            raise ValueError("hours that were seen against different clocks don't merge")
        if later.start != self.end:
            raise ValueError(f"offsets up to {self.end} and from {later.start} on don't follow on each other")
        if later.front is None and self.max_ms is not None and later.max_ms is not None:
            raise ValueError(f"the hours from offset {later.start} on are no piece: what comes before can't be added")
        found = PartitionHours(
            self.frame,
            self.start,
            later.end,
            dict(self.rows),
            self.max_ms,
            exact=self.exact and later.exact,
        )
        for key, row in later.rows.items():
            found._take(key, found._after(row, key, later.front))
        found.max_ms = max((one for one in (self.max_ms, later.max_ms) if one is not None), default=None)
        return found

    def items(self) -> Iterator[tuple[Kind, int | None, Row]]:
        """Yield (kind, start of the hour in Unix ms or None, row): the hours in order, then the kinds without one."""
        for key in sorted(self.rows, key=lambda key: (key < 0, key)):
            yield _KINDS.get(key, "hour"), None if key < 0 else key * HOUR_MS, self.rows[key]

    def _inside(self, times: Any) -> Any:
        """Return a mask of the times in the window, None if there is no window."""
        low, high = self.frame.from_ms, self.frame.to_ms
        if low is None and high is None:
            return None
        inside = times >= max(0, low or 0)
        return inside if high is None else inside & (times < high)

    def _take(self, key: int, row: Row) -> None:
        self.rows[key] = self.rows[key].plus(row) if key in self.rows else row

    def _after(self, row: Row, key: int, front: Front | None) -> Row:
        """Return a row with those in-order records counted as late that are older than a record before this piece."""
        top = self.max_ms
        if top is None or front is None or key == _NO_TIME or row.oldest_ms >= top:
            return row
        late = row.records
        if row.newest_ms >= top:
            in_order, proven = front.count(max(0, key * HOUR_MS), top)
            late = row.late + in_order
            self.exact = self.exact and proven
        return row._replace(late=late, late_ms=max(row.late_ms, top - row.oldest_ms))

    def _grouped(self, columns: list[Any]) -> Iterator[tuple[int, Row]]:
        times = columns[1]
        if not len(times):
            return
        keys = times // HOUR_MS
        keys[times < ANCIENT_MS] = _ANCIENT
        keys[times > self.frame.ceiling_ms] = _FUTURE
        keys[times < 0] = _NO_TIME
        order = np.argsort(keys, kind="stable")
        keys, starts, counts = np.unique(keys[order], return_index=True, return_counts=True)
        columns = [column[order] for column in columns]
        offsets, times, sizes, tombstones, unreadable, late, late_ms = columns
        newest = np.maximum.reduceat(times, starts)
        is_newest = times == np.repeat(newest, counts)
        found = (
            counts,
            np.add.reduceat(sizes, starts),
            np.add.reduceat(tombstones, starts),
            np.add.reduceat(unreadable, starts),
            offsets[starts],
            offsets[starts + counts - 1],
            np.minimum.reduceat(times, starts),
            newest,
            np.minimum.reduceat(np.where(is_newest, offsets, _LARGEST), starts),
            np.add.reduceat(late, starts),
            np.maximum.reduceat(late_ms, starts),
        )
        for key, *values in zip(keys.tolist(), *(one.tolist() for one in found), strict=True):
            yield key, Row(*values)


def to_bytes(piece: PartitionHours) -> bytes:
    """Return a piece as compressed bytes: a line of JSON, then its front as little-endian int64: times, then counts."""
    front = piece.front
    steps = [] if front is None else front.steps
    head = {
        "frame": asdict(piece.frame),
        "start": piece.start,
        "end": piece.end,
        "rows": list(piece.rows.items()),
        "max_ms": piece.max_ms,
        "front": None if front is None else [front.length, front.known_to_ms],
        "exact": piece.exact,
    }
    columns = [column.astype("<i8").tobytes() for place in (0, 1) for column in (step[place] for step in steps)]
    return zlib.compress(json.dumps(head).encode() + b"\n" + b"".join(columns), 1)


def from_bytes(raw: bytes) -> PartitionHours:
    """Return the piece that :func:`to_bytes` wrote.

    Raises:
        BrokenPieceError: the bytes are not a valid piece.
    """
    try:
        head_text, _, content = zlib.decompress(raw).partition(b"\n")
        head = json.loads(head_text)
        rows = {key: Row(*values) for key, values in head.pop("rows")}
        if (front := head.pop("front")) is not None:
            length, known_to_ms = front
            values, counts = np.frombuffer(content, "<i8").astype(np.int64).reshape(2, length)
            front = Front([(values, counts)] if length else [], length, known_to_ms)
        return PartitionHours(**head | {"frame": Frame(**head["frame"]), "rows": rows, "front": front})
    except (zlib.error, ValueError, TypeError, KeyError):
        raise BrokenPieceError("this is not a part of a profile, or it is damaged") from None


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

    def retained(self, now_ms: int, retentions_ms: Sequence[int]) -> dict[int, Amount]:
        """Return what each retention would keep, to the hour. The hour that contains the cutoff is counted in full.

        Records stamped in the future or without a time are kept; those stamped before 2000 are not.
        """
        found = {}
        for retention in retentions_ms:
            young = (one for hour, one in self.hours.items() if hour + HOUR_MS > now_ms - retention)
            remaining = [*young, self.kinds["future"], self.kinds["no-time"]]
            found[retention] = Amount(sum(one.records for one in remaining), sum(one.size_bytes for one in remaining))
        return found


def summarize(partitions: Mapping[int, PartitionHours]) -> Summary:
    """Return the summary over a topic's partitions."""
    rows = [(number, *row) for number, hours in sorted(partitions.items()) for row in hours.items()]
    of_kind = by_key((kind, (number, row)) for number, kind, _hour, row in rows)
    dated = [(number, row) for number, _kind, hour, row in rows if hour is not None]
    late_ms, late_partition = max(
        ((row.late_ms, number) for number, row in dated if row.late_ms), key=lambda one: one[0], default=(0, None)
    )
    found = Summary(
        records=sum(row.records for *_, row in rows),
        size_bytes=sum(row.size_bytes for *_, row in rows),
        tombstones=sum(row.tombstones for *_, row in rows),
        unreadable=sum(row.unreadable for *_, row in rows),
        late=sum(row.late for *_, row in rows),
        late_ms=late_ms,
        late_partition=late_partition,
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
    if not (hours := sorted(summary.hours)):
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
