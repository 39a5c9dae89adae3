"""What is remembered of one partition, and which log that is of (M1 to M4). Pure.

Two memories of the same partition merge in any order, so that processes, pods or laptops can share them. A memory
belongs to a topic id: a recreated topic starts over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Final, NamedTuple, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from retention_cli.core.grouping import by_key
from retention_cli.core.model import EventMax, Sample
from retention_cli.memory import replica as replica_memory
from retention_cli.memory.event_scan import further, read_scan
from retention_cli.memory.positions import Int32, Int64

SAMPLES_AT_MOST: Final = 64
SAMPLE: Final = struct.Struct("<qq")
"""How one is packed: the wall clock (Unix ms), and H."""
SAMPLE_BYTES: Final = SAMPLE.size
_THINNED_TO: Final = 40
Row = TypeVar("Row", bound=tuple[int, ...])


def both_samples(packed: bytes, other: bytes) -> bytes:
    """Return the samples of both. Usually one continues the other."""
    if packed.startswith(other):
        return packed
    if other.startswith(packed):
        return other
    # Of two in one millisecond the lower counts as the later: a fall must not be missed.
    samples = sorted({*unpack(packed), *unpack(other)}, key=lambda one: (one.wall_ms, -one.high_watermark))
    samples = without_repeats(samples)
    return pack(thinned(samples) if len(samples) > SAMPLES_AT_MOST else samples)


def samples_below(samples: Sequence[Sample], cut: int) -> list[Sample]:
    """Return the samples of a log that was cut: those above ``cut`` become ``cut``, as all below it existed then."""
    return without_repeats([one._replace(high_watermark=min(one.high_watermark, cut)) for one in samples])


def without_repeats(samples: Sequence[Sample]) -> list[Sample]:
    """Drop samples that only repeat the high watermark before them."""
    return [
        one
        for number, one in enumerate(samples)
        if not number or one.high_watermark != samples[number - 1].high_watermark
    ]


def pack(samples: Iterable[Sample]) -> bytes:
    """Return samples as bytes: wall clock and high watermark, 8 bytes each, little-endian."""
    return b"".join(SAMPLE.pack(*one) for one in samples)


def unpack(packed: bytes) -> tuple[Sample, ...]:
    """Return the samples that :func:`pack` packed.

    Raises:
        ValueError: they are cut short.
    """
    if len(packed) % SAMPLE_BYTES:
        raise ValueError("samples are cut short")
    return tuple(map(Sample._make, SAMPLE.iter_unpack(packed)))


def last(packed: bytes) -> Sample:
    """Return the newest of packed samples; there must be at least one."""
    return Sample(*SAMPLE.unpack_from(packed, len(packed) - SAMPLE_BYTES))


def seen_past(packed: bytes, offset: int) -> int | None:
    """Return since when H was seen past an offset without a break (wall clock, Unix ms); None if it is not."""
    since = None
    for start in range(len(packed) - SAMPLE_BYTES, -1, -SAMPLE_BYTES):
        wall_ms, high_watermark = SAMPLE.unpack_from(packed, start)
        if high_watermark <= offset:
            break
        since = wall_ms
    return since


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """Return fewer samples, the oldest and the newest among them: the older, the farther apart.

    Dropping one never makes an answer wrong, only a bound lower (G3).
    """
    return thinned_by_age(without_falls(samples))


def thinned_by_age(rows: Sequence[Row]) -> list[Row]:
    """Return at most 40 rows, the oldest and the newest among them: the older, the farther apart.

    Each begins with its time (Unix ms); they are sorted by that. One is dropped if its distance from the next is less
    than a share of its age.
    """
    now, share = rows[-1][0], 0.05
    while True:
        thinned = [rows[-1]]
        for row in reversed(rows[1:-1]):
            if thinned[-1][0] - row[0] >= share * (now - row[0]):
                thinned.append(row)
        if len(rows) > 1:
            thinned.append(rows[0])
        if len(thinned) <= _THINNED_TO:
            return thinned[::-1]
        share *= 1.5


def without_falls(samples: Sequence[Sample]) -> list[Sample]:
    """Return equivalent samples whose high watermarks only rise.

    If a high watermark fell, records were lost and others may have their offsets now: earlier samples count only up to
    what was left. Of equal ones the earliest is kept.
    """
    rising: list[Sample] = []
    ceiling = samples[-1].high_watermark
    for sample in reversed(samples):
        ceiling = min(ceiling, sample.high_watermark)
        if rising and rising[-1].high_watermark == ceiling:
            rising.pop()
        rising.append(sample._replace(high_watermark=ceiling))
    return rising[::-1]


_DATA_AT_MOST: Final = 8
_STILL: Final = 2**63 - 1
"""The end of what a setting applies to that still counts."""
_EARLIER_AT_MOST: Final = 4


class Front(NamedTuple):
    """Who stamped the record at ``offset``, which was S then: the broker (append time), or its producer (G3)."""

    offset: Int64
    append_time: bool


class Earlier(NamedTuple):
    """An earlier memory that a later one replaced, last proven under ``leader_epoch``, of the log up to ``reach``.

    Two runs may observe a partition under two leader epochs and remember both (``state: cluster``, or one state
    directory). The later memory replaces the earlier one. But if it was not derived from it, kretain has not asked yet
    whether the log was cut after the earlier run, and commits that counted then may lie beyond the cut (F5, M2).

    The end of ``proving_epoch`` shows whether the log was cut since. ``settled``: it was asked for, and the answer
    was applied to the groups' commits.
    """

    proving_epoch: Int32
    leader_epoch: Int32
    reach: Int64
    settled: bool = False

    def settles(self, other: Earlier) -> bool:
        """Return whether this one is settled, and its answer also settles the other."""
        as_far = self.leader_epoch >= other.leader_epoch and self.reach >= other.reach
        return self.settled and self.proving_epoch == other.proving_epoch and as_far


def _askable(newest: EventMax | None) -> EventMax | None:
    """Return it, unless a number is too large for a broker to be asked about.

    Raises:
        ValueError: one is.
    """
    if newest is not None and not all(-(2**63) <= one < 2**63 for one in (newest.time_ms, newest.offset or 0)):
        raise ValueError("its time or its offset is too large")
    return newest


@dataclass(slots=True)
class PartitionMemory:
    """What is remembered of one partition of one topic id, and which log that is of.

    ``leader_epoch`` is the one under which all of this was last proven (M1, M2), None if nothing is remembered yet;
    ``log_start`` was S then. ``last_epoch`` is the last record's, the same or an earlier one, None if unknown.
    ``packed`` are samples (:func:`unpack`), oldest first. ``newest`` is the largest timestamp of a data record ever
    seen (R2), ``newest_under`` the settings under which it was read (M0): under others it is none. ``data_at`` are
    offsets of data records. ``scan`` is how far event times were read from records
    (:mod:`retention_cli.memory.event_scan`). ``replicas`` are the replicas' sizes
    (:mod:`retention_cli.memory.replica`), if a rule needed them. ``created``: the topic was last seen with CreateTime;
    ``created_below`` was H when it was first seen without it again: below that, timestamps may be producers' (G3). Both
    only ever hold. ``segments`` are the topic's ``segment.bytes`` as they were seen, each with the offset below which
    segments may have begun under it (R5). ``front`` is who stamped the record at S. ``earlier`` are memories that this
    one replaced.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    packed: bytes = b""
    newest: Annotated[EventMax | None, AfterValidator(_askable)] = None
    data_at: tuple[Int64, ...] = ()
    scan: bytes | None = None
    replicas: bytes = b""
    leader_epoch: Int32 | None = None
    log_start: Int64 = 0
    created: bool = False
    created_below: Int64 = 0
    segments: tuple[tuple[Int64, Int64], ...] = ()
    front: Front | None = None
    last_epoch: Int32 | None = None
    earlier: tuple[Earlier, ...] = ()
    newest_under: str = ""
    changed: Annotated[bool, Field(exclude=True)] = False

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples, oldest first."""
        return unpack(self.packed)

    @property
    def high_watermark(self) -> int:
        """H when it was last seen, from the last sample."""
        return last(self.packed).high_watermark if self.packed else 0

    @property
    def reach(self) -> int:
        """The offset up to which the memory covers the log."""
        reached = self.high_watermark
        if self.newest is not None and self.newest.offset is not None:
            reached = max(reached, self.newest.offset + 1)
        if self.data_at:
            reached = max(reached, *(one + 1 for one in self.data_at))
        scan = read_scan(self.scan)
        return reached if scan is None else max(reached, scan.end)

    def add_sample(self, sample: Sample) -> None:
        """Remember a high watermark, unless it is the last one again."""
        if self.packed:
            before = last(self.packed)
            if sample.high_watermark == before.high_watermark:
                return
            if sample.wall_ms < before.wall_ms:  # our clock was set back: a later time is true, too
                sample = sample._replace(wall_ms=before.wall_ms)
        self.packed += pack([sample])
        if len(self.packed) > SAMPLES_AT_MOST * SAMPLE_BYTES:
            self.packed = pack(thinned(self.samples))
        self.changed = True

    def newest_of(self, under: str) -> EventMax | None:
        """Return the largest timestamp that was read under these settings."""
        return self.newest if self.newest_under == under else None

    def add_newest(self, newest: EventMax, under: str) -> None:
        """Remember the time of a data record, read under these settings, if it is the largest so far."""
        if (known := self.newest_of(under)) is None or newest.rank > known.rank:
            self.newest, self.newest_under, self.changed = newest, under, True

    def add_data(self, offset: int) -> None:
        """Remember that there is a data record at ``offset``."""
        if offset not in self.data_at:
            self.data_at = (*self.data_at[1 - _DATA_AT_MOST :], offset)
            self.changed = True

    def note(self, *, scan: bytes | None = None, replicas: bytes | None = None, front: Front | None = None) -> None:
        """Remember how far event times were read, its replicas' sizes, or who stamped the record at S."""
        before = self.scan, self.replicas, self.front
        now = scan or self.scan, self.replicas if replicas is None else replicas, front or self.front
        self.scan, self.replicas, self.front = now
        self.changed |= now != before

    def saw_stamps(self, high_watermark: int, *, append_time: bool) -> None:
        """Remember who stamps the topic's records now: the brokers (``append_time``), or the producers (G3)."""
        if append_time and self.created:
            self.created_below, self.changed = max(self.created_below, high_watermark), True
        if self.created == append_time:
            self.created, self.changed = not append_time, True

    def saw_segment_bytes(self, segment_bytes: int, log_start: int, high_watermark: int) -> int:
        """Remember a topic's ``segment.bytes``; return how large the segment that contains S may be.

        A broker keeps segments as they are when the setting changes: those below the H of that time may be larger.
        """
        ends = {size: min(end, high_watermark) for size, end in self.segments} | {segment_bytes: _STILL}
        segments = tuple(sorted((size, end) for size, end in ends.items() if end > log_start))
        self.changed |= segments != self.segments
        self.segments = segments
        return max(size for size, _end in segments)

    # -- of which log it is (M1 to M4) --------------------------------------------

    @property
    def is_blank(self) -> bool:
        """Whether nothing is remembered that a change of the log could make wrong."""
        return not (self.packed or self.newest or self.data_at or self.scan or self.replicas or self.front)

    @property
    def proving_epoch(self) -> int | None:
        """The leader epoch whose end proves the memory: one under which nothing was written leaves no trace."""
        return self.leader_epoch if self.last_epoch is None else self.last_epoch

    def continue_at(
        self, leader_epoch: int, log_start: int, now_ms: int, cut: int | None = None, last_epoch: int | None = None
    ) -> None:
        """Continue in this leader epoch, at this S: the memory was proven to be of this log, up to the cut.

        What lies beyond the cut is forgotten. If S has moved back, prefixes start over (M3). Sizes start over after any
        election: a former leader may have lost a tail that no other replica had.

        Args:
            leader_epoch: the partition's current one.
            log_start: S.
            now_ms: our wall clock (Unix ms).
            cut: where the log was cut since, None if it was not.
            last_epoch: the leader epoch of the last record below H, None if unknown.
        """
        moved_on, moved_back = self.leader_epoch != leader_epoch, log_start < self.log_start
        self._settle(moved_on=moved_on)
        if self.leader_epoch is not None and (moved_on or moved_back or cut is not None):
            self.changed = True
            self.replicas = replica_memory.started_over(self.replicas, now_ms)
            if moved_back or cut is not None:
                self.front = None
        if cut is not None:
            self.packed = pack(samples_below(self.samples, cut))
            self.newest = self.newest if self.newest is not None and (self.newest.offset or 0) < cut else None
            self.data_at = tuple(offset for offset in self.data_at if offset < cut)
            scan = read_scan(self.scan)
            self.scan = None if scan is None else scan.cut(cut).as_bytes()
        if (self.log_start, self.last_epoch) != (log_start, last_epoch) and self.leader_epoch is not None:
            self.changed = True
        self.leader_epoch, self.log_start, self.last_epoch = leader_epoch, log_start, last_epoch

    def start_over(self, leader_epoch: int, log_start: int) -> None:
        """Start over: nothing remembered can be proven to be of this log. What only ever holds is kept."""
        self._settle(moved_on=True)
        self.packed, self.newest, self.data_at, self.scan, self.replicas, self.front = b"", None, (), None, b"", None
        self.newest_under = ""
        self.leader_epoch, self.log_start, self.last_epoch, self.changed = leader_epoch, log_start, None, True

    def _settle(self, *, moved_on: bool) -> None:
        """Mark the earlier memories as settled; with ``moved_on`` this one, too: the next is derived from it."""
        itself = self.as_earlier() if moved_on else ()
        if itself or (self.earlier and pending(self.earlier)):
            self.earlier = joined(one._replace(settled=True) for one in (*self.earlier, *itself))
            self.changed = True

    def as_earlier(self) -> tuple[Earlier, ...]:
        """Return what is to be proven of it once another one has replaced it, nothing if it is blank."""
        if self.leader_epoch is None or self.proving_epoch is None or self.is_blank:
            return ()
        return (Earlier(self.proving_epoch, self.leader_epoch, self.reach),)

    # -- two memories of the same ---------------------------------------------------------

    def become(self, both: PartitionMemory) -> None:
        """Take over the values that :meth:`merged` returned."""
        for name in self.__slots__:
            if name != "changed":
                setattr(self, name, getattr(both, name))

    def merged(self, other: PartitionMemory) -> PartitionMemory:
        """Return what both remember; their order matters only for two sources of event times: this one's are kept.

        If they were proven under different leader epochs, only the later one counts: the earlier one may describe a
        tail that was lost in between. Whether it was is asked the next time, unless the later one was derived from it.
        So it is where one reached farther than the last sample of both: when that was taken is known no better than
        that it was not later (G3), so it may be the earlier one, and the log not have been cut there.
        """
        created, created_below = self.created or other.created, max(self.created_below, other.created_below)
        ends = by_key((*self.segments, *other.segments))
        segments = tuple(sorted((size, max(some)) for size, some in ends.items()))
        if self.leader_epoch != other.leader_epoch:
            first, later = sorted((self, other), key=lambda one: -1 if one.leader_epoch is None else one.leader_epoch)
            known = joined((*first.earlier, *later.earlier, *first.as_earlier()))
            later = replace(later, earlier=known, changed=False)
            return replace(later, created=created, created_below=created_below, segments=segments)
        packed = both_samples(self.packed, other.packed)
        end = last(packed).high_watermark if packed else 0
        fallen = [known for one in (self, other) if one.high_watermark > end for known in one.as_earlier()]
        source = self if self.newest is not None else other
        seen = [
            one
            for one in (self.newest_of(source.newest_under), other.newest_of(source.newest_under))
            if one is not None
        ]
        fronts = [one for one in (self.front, other.front) if one is not None]
        return PartitionMemory(
            packed=packed,
            newest=max(seen, key=lambda one: one.rank, default=None),
            newest_under=source.newest_under,
            data_at=tuple(dict.fromkeys((*other.data_at, *self.data_at)))[-_DATA_AT_MOST:],
            scan=further(self.scan, other.scan),
            replicas=replica_memory.merged(self.replicas, other.replicas),
            leader_epoch=self.leader_epoch,
            log_start=max(self.log_start, other.log_start),
            created=created,
            created_below=created_below,
            segments=segments,
            front=max(fronts, key=lambda one: (one.offset, not one.append_time), default=None),
            last_epoch=None if self.leader_epoch is None else max(self.proving_epoch or 0, other.proving_epoch or 0),
            earlier=joined((*self.earlier, *other.earlier, *fallen)) if self.earlier or other.earlier or fallen else (),
        )

    def covers(self, other: PartitionMemory) -> bool:
        """Return whether this memory has all that the other has."""
        both, mine = self.merged(other), replace(self)
        same_pending = pending(both.earlier) == pending(mine.earlier)
        for one in (both, mine):
            one.data_at, one.log_start, one.front, one.earlier, one.changed = (), 0, None, (), False
        return same_pending and both == mine

    # -- as bytes -------------------------------------------------------------------------

    def as_bytes(self) -> bytes:
        """Return the memory as JSON, without what is empty."""
        return _ADAPTER.dump_json(self, exclude_defaults=True)

    @classmethod
    def from_bytes(cls, raw: bytes) -> PartitionMemory:
        """Return the memory that :meth:`as_bytes` wrote.

        Raises:
            ValueError: it is not valid.
        """
        return _ADAPTER.validate_json(raw, strict=True)


def pending(earlier: Iterable[Earlier]) -> list[Earlier]:
    """Return those that are not settled yet."""
    return [one for one in earlier if not one.settled]


def joined(earlier: Iterable[Earlier]) -> tuple[Earlier, ...]:
    """Return the earlier memories that several memories have, merged and shortened; their order does not matter.

    Only the last few settled ones are kept: one that is dropped is asked about again. If too many are not settled, the
    earliest are merged into one with the lowest ``proving_epoch`` and the largest ``reach``: it may find a cut where
    there is none, but never misses one.
    """
    every = frozenset(earlier)
    settled = [one for one in every if one.settled]
    settled = sorted(one for one in settled if not any(other.settles(one) for other in settled if other != one))
    settled = sorted(settled, key=lambda one: one.leader_epoch)[-_EARLIER_AT_MOST:]
    unsettled = _without_lesser(one for one in every if not one.settled and not any(o.settles(one) for o in settled))
    while len(unsettled) > _EARLIER_AT_MOST:
        one, other, *more = unsettled
        lowest, reach = min(one.proving_epoch, other.proving_epoch), max(one.reach, other.reach)
        unsettled = _without_lesser([Earlier(lowest, max(one.leader_epoch, other.leader_epoch), reach), *more])
    return (*settled, *unsettled)


def _without_lesser(unsettled: Iterable[Earlier]) -> list[Earlier]:
    """Return those that are not settled, by epoch, without those that another's answer settles."""
    every = frozenset(unsettled)
    return sorted(one for one in every if not any(o._replace(settled=True).settles(one) for o in every if o != one))


_ADAPTER: Final = TypeAdapter(PartitionMemory)
