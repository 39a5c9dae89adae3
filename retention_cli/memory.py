"""What kretain remembers of a cluster, as values: what brokers forget and decisions need (DESIGN.md, the ledger).

Pure: two memories of the same thing merge to one, in any order, so that two processes, pods or laptops can
remember together. Everything belongs to a topic id: a topic made anew starts anew.
"""

from __future__ import annotations

import array
import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from retention_cli import replica_memory
from retention_cli.disk_memory import DiskMemory
from retention_cli.event_scan import further
from retention_cli.model import EventMax, Sample, Unknown

SAMPLES_AT_MOST: Final = 64
SAMPLE_BYTES: Final = 24
_THINNED_TO: Final = 40
_DATA_AT_MOST: Final = 8


@dataclass(slots=True)
class PartitionMemory:
    """What is remembered of one partition of one topic id.

    ``packed`` are samples (:func:`unpack`), oldest first. ``newest`` is the largest timestamp of a data record ever
    seen there (R2). ``data_at`` are offsets at which a data record is known to stand. ``scan`` is how far
    event times were read out of records (:mod:`retention_cli.event_scan`). ``replicas`` is where its replicas' sizes
    stood (:mod:`retention_cli.replica_memory`), where a rule wanted to know.
    """

    packed: bytes = b""
    newest: EventMax | None = None
    data_at: tuple[int, ...] = ()
    scan: bytes | None = None
    replicas: bytes = b""
    changed: bool = False

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples, oldest first."""
        return unpack(self.packed)

    def add_sample(self, sample: Sample) -> None:
        """Remember a high watermark. One that says nothing new is dropped: the same H at a later time."""
        if self.packed:
            last = unpack(self.packed[-SAMPLE_BYTES:])[0]
            if sample.high_watermark == last.high_watermark:
                return
            if sample.wall_ms < last.wall_ms:  # our clock was set back: a later moment is as true
                sample = sample._replace(wall_ms=last.wall_ms)
        self.packed += pack([sample])
        if len(self.packed) > SAMPLES_AT_MOST * SAMPLE_BYTES:
            self.packed = pack(thinned(self.samples))
        self.changed = True

    def add_newest(self, newest: EventMax) -> None:
        """Remember the time of a data record, where it is the largest so far."""
        if self.newest is None or newest.rank > self.newest.rank:
            self.newest, self.changed = newest, True

    def add_data(self, offset: int) -> None:
        """Remember that a data record stands at ``offset``."""
        if offset not in self.data_at:
            self.data_at = (*self.data_at[1 - _DATA_AT_MOST :], offset)
            self.changed = True

    def set_scan(self, scan: bytes) -> None:
        """Remember how far event times were read."""
        if scan != self.scan:
            self.scan, self.changed = scan, True

    def set_replicas(self, replicas: bytes) -> None:
        """Remember where its replicas' sizes stood."""
        if replicas != self.replicas:
            self.replicas, self.changed = replicas, True

    def take(self, other: PartitionMemory) -> None:
        """Take over what somebody else remembers too."""
        both = self.merged(other)
        self.packed, self.newest, self.data_at = both.packed, both.newest, both.data_at
        self.scan, self.replicas = both.scan, both.replicas

    def merged(self, other: PartitionMemory) -> PartitionMemory:
        """Return what both remember: the same, whichever is asked. Of two sources of event times, this one's stays."""
        seen = [one for one in (self.newest, other.newest) if one is not None]
        return PartitionMemory(
            packed=_both(self.packed, other.packed),
            newest=max(seen, key=lambda one: one.rank, default=None),
            data_at=tuple(dict.fromkeys((*other.data_at, *self.data_at)))[-_DATA_AT_MOST:],
            scan=further(self.scan, other.scan),
            replicas=replica_memory.merged(self.replicas, other.replicas),
        )

    def covers(self, other: PartitionMemory) -> bool:
        """Return whether the other knows nothing that this one doesn't."""
        both = self.merged(other)
        return (both.packed, both.newest, both.scan, both.replicas) == (
            self.packed,
            self.newest,
            self.scan,
            self.replicas,
        )


def _both(packed: bytes, other: bytes) -> bytes:
    """Return the samples of both. Mostly one only goes on where the other ends."""
    if packed.startswith(other):
        return packed
    if other.startswith(packed):
        return other
    # Of two in one millisecond the lower counts as the later: a fall may not go unseen.
    samples = sorted({*unpack(packed), *unpack(other)}, key=lambda one: (one.wall_ms, -one.high_watermark, *one[2:]))
    samples = _without_repeats(samples)
    return pack(thinned(samples) if len(samples) > SAMPLES_AT_MOST else samples)


def _without_repeats(samples: Sequence[Sample]) -> list[Sample]:
    """Drop samples that only repeat the high watermark before them."""
    return [
        one
        for number, one in enumerate(samples)
        if not number or one.high_watermark != samples[number - 1].high_watermark
    ]


def pack(samples: Iterable[Sample]) -> bytes:
    """Return samples as bytes: wall clock, high watermark and leader epoch, 8 bytes each, little-endian."""
    flat = array.array("q", itertools.chain.from_iterable(samples))
    if sys.byteorder != "little":
        flat.byteswap()
    return flat.tobytes()


def unpack(packed: bytes) -> tuple[Sample, ...]:
    """Return :func:`pack`'s samples.

    Raises:
        ValueError: they are none.
    """
    if len(packed) % SAMPLE_BYTES:
        raise ValueError("samples are cut short")
    flat = array.array("q")
    flat.frombytes(packed)
    if sys.byteorder != "little":
        flat.byteswap()
    numbers = iter(flat)
    return tuple(map(Sample._make, zip(numbers, numbers, numbers, strict=True)))


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """Return fewer samples, the oldest and the newest among them: the older, the farther apart.

    Dropping one never makes a wrong answer, it makes a bound lower (RULES.md G3).
    """
    samples = without_falls(samples)
    now = samples[-1].wall_ms
    share = 0.05
    while True:
        kept = [samples[-1]]
        for sample in reversed(samples[1:-1]):
            if kept[-1].wall_ms - sample.wall_ms >= share * (now - sample.wall_ms):
                kept.append(sample)
        if len(samples) > 1:
            kept.append(samples[0])
        if len(kept) <= _THINNED_TO:
            return kept[::-1]
        share *= 1.5


def without_falls(samples: Sequence[Sample]) -> list[Sample]:
    """Return samples whose high watermarks only rise, and say the same.

    A high watermark that fell means that records were lost and others may stand at their offsets: nothing before
    counts for more than what was left then. Of equal ones the earliest says most.
    """
    rising: list[Sample] = []
    ceiling = samples[-1].high_watermark
    for sample in reversed(samples):
        ceiling = min(ceiling, sample.high_watermark)
        if rising and rising[-1].high_watermark == ceiling:
            rising.pop()
        rising.append(sample._replace(high_watermark=ceiling))
    return rising[::-1]


Commits = Mapping[str, Sequence[tuple[int, int, int | None]]]
"""A group's commits by topic: partition, committed offset, leader epoch where the commit carries one."""
Rows = dict[str, list[tuple[int, int, int | None]]]
"""Remembered commits, in the same form; they carry no leader epoch."""


@dataclass(frozen=True, slots=True)
class RecalledGroup:
    """What is remembered of a live group: commits that are there no more (F6), and leftovers (F5)."""

    gone: Rows = field(default_factory=dict)
    leftovers: Mapping[tuple[str, int], int] = field(default_factory=dict)


_NOTHING: Final = RecalledGroup()


class Memory(Protocol):
    """What reading a cluster asks of what is remembered, and tells it."""

    lost: Unknown | None
    """Why nothing can be recalled: what depends on it is unknown, and held."""

    def begin(self, topic_ids: Mapping[str, str]) -> None:
        """Take the ids that the cluster's topics have now."""
        ...

    def partition(self, topic: str, topic_id: str, partition: int) -> PartitionMemory:
        """Return what is remembered of a partition, to read and to add to."""
        ...

    def disk(self, name: str) -> DiskMemory:
        """Return what is remembered of a disk, to read and to add to."""
        ...

    def saw_group(self, name: str, commits: Commits, now_ms: int, since_ms: int) -> RecalledGroup:
        """Remember a group's commits; return what is known of it besides, seen at or after ``since_ms``."""
        ...

    def gone_groups(self, present: Iterable[str], since_ms: int) -> Iterable[tuple[str, int, Rows]]:
        """Return the groups that are not ``present``, seen at or after ``since_ms``: name, when (Unix ms), commits."""
        ...

    def note_leftovers(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Remember which commits lie beyond these high watermarks, until they change (RULES.md F5)."""
        ...


@dataclass(slots=True)
class NoMemory:
    """Remembers for as long as it lives, and recalls nothing. ``lost`` says why, where something was to be recalled."""

    lost: Unknown | None = None
    _partitions: dict[tuple[str, int], PartitionMemory] = field(default_factory=dict)
    _disks: dict[str, DiskMemory] = field(default_factory=dict)

    def begin(self, topic_ids: Mapping[str, str]) -> None:
        """Need no ids."""

    def partition(self, topic: str, topic_id: str, partition: int) -> PartitionMemory:
        """Return what was added in this process."""
        del topic
        return self._partitions.setdefault((topic_id, partition), PartitionMemory())

    def disk(self, name: str) -> DiskMemory:
        """Return what was added in this process."""
        return self._disks.setdefault(name, DiskMemory())

    def saw_group(self, name: str, commits: Commits, now_ms: int, since_ms: int) -> RecalledGroup:
        """Return nothing."""
        del name, commits, now_ms, since_ms
        return _NOTHING

    def gone_groups(self, present: Iterable[str], since_ms: int) -> Iterable[tuple[str, int, Rows]]:
        """Return nothing."""
        del present, since_ms
        return ()

    def note_leftovers(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Forget them."""


def lost(text: str) -> NoMemory:
    """Return a memory that can't be recalled: unknown, for every floor (F6) and every sample (G3)."""
    return NoMemory(Unknown.because("ledger", text))
