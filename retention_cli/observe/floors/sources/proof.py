"""Whether a copy in another cluster is a copy of the current records: it begins and ends as they do.

The last offset sync names a record and its copy: both must exist and be equal, and so must the first record of the
source and its copy. From there on, both logs are read side by side: each record of the source needs an equal one in the
copy, in order; other records of the copy are skipped (those copied twice, or from other writers). As far as that goes,
and no farther, the copy holds what the source has. Transaction markers are no records.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from retention_cli.brokers.log_offsets import Found
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Message, Range, UnreadableHeadersError, headers_of
from retention_cli.core.model import TopicPartition
from retention_cli.core.printable import plain

_AHEAD: Final = 1_000
"""How many offsets are read for the first record, and for its copy."""
_SPARE_S: Final = 0.5
"""How long before the deadline reading ends (s)."""
_IN_ALL, _MOST, _LEAST = 500_000, 20_000, 200
"""How many records are compared at a time: of all partitions, of each at most, and at least."""


class Sync(NamedTuple):
    """An offset sync: the record ``upstream`` is the record ``downstream`` of the copy."""

    upstream: int
    downstream: int


class Run(NamedTuple):
    """What was copied of a partition: from its first record to that of its last sync."""

    tp: TopicPartition
    extent: Range
    copy: TopicPartition
    there: Range
    sync: Sync


class Print(NamedTuple):
    """What is compared of a record: its timestamp and a digest of its key, value and headers; its offset is not."""

    offset: int
    timestamp: int
    content: bytes

    def is_of(self, other: Print) -> bool:
        """Return whether these are prints of equal records."""
        return self[1:] == other[1:]


def out_of_range(run: Run) -> str | None:
    """Return why the last sync is not of records that still exist, None if both do."""
    sync, there = run.sync, run.there
    if sync.upstream >= run.extent.end:
        return f"its offset sync is of offset {sync.upstream:,}, which is not written yet: maybe of a former topic"
    if not there.start <= sync.downstream < there.end:
        return (
            f"the copy of offset {sync.upstream:,} no longer exists: it was {sync.downstream:,}, and the copy has "
            f"{there.start:,} to {there.end:,}"
        )
    return None


def proven_to(run: Run, ours: Sequence[Print], matched: int, *, complete: bool) -> int:
    """Return up to where a partition was copied, exclusive.

    Args:
        run: the partition.
        ours: its first records, in order.
        matched: how many of them, from the first on, have an equal one in the copy, in order.
        complete: whether those are all up to the record of the sync.
    """
    if matched < len(ours):
        return ours[matched].offset
    if complete:
        return run.sync.upstream + 1
    return ours[-1].offset + 1 if ours else run.extent.start


@dataclass(frozen=True, slots=True)
class Proof:
    """Compares the records of two clusters, until a deadline (of ``time.monotonic``)."""

    here: ClusterReader
    there: ClusterReader
    far: ClusterMetadata
    place: str
    deadline: float

    def check(self, runs: Sequence[Run]) -> dict[TopicPartition, int | str]:
        """Return up to where each partition was copied for certain, or why that is unknown."""
        found: dict[TopicPartition, int | str] = {
            run.tp: f"{self._name(run)}: {text}" for run in runs if (text := out_of_range(run)) is not None
        }
        sound = [run for run in runs if run.tp not in found]
        ours = self._prints(self.here, {run.tp: Range(run.sync.upstream, run.sync.upstream + 1) for run in sound})
        theirs = self._prints(
            self.there, {run.copy: Range(run.sync.downstream, run.sync.downstream + 1) for run in sound}
        )
        firsts = self._prints(
            self.here,
            {run.tp: Range(run.extent.start, min(run.extent.end, run.extent.start + _AHEAD)) for run in sound},
        )
        begun: dict[Run, Print] = {}
        for run in sound:
            last, copy, first = ours[run.tp], theirs[run.copy], firsts[run.tp]
            name = f"offset {run.sync.downstream:,} of {plain(run.copy.topic)} in {self.place}"
            if isinstance(last, str):
                found[run.tp] = f"offset {run.sync.upstream:,}: {last}"
            elif isinstance(copy, str):
                found[run.tp] = f"{name}: {copy}"
            elif not last.is_of(copy):
                found[run.tp] = (
                    f"{name} is not a copy of offset {run.sync.upstream:,}: a topic was recreated, or records are "
                    f"changed or get new timestamps on the way"
                )
            elif isinstance(first, str):
                found[run.tp] = f"its first record: {first}"
            else:
                begun[run] = first
                found[run.tp] = (  # unless it is found
                    f"no copy of its first record, at offset {first.offset:,}, is found in {self._name(run)}"
                )
        return found | self._side_by_side(self._copies_of(begun))

    def _side_by_side(self, starts: Mapping[Run, int]) -> dict[TopicPartition, int | str]:
        """Return up to where each record has its copy, behind that of the first one: as far as there is time for."""
        limit = max(_LEAST, min(_MOST, _IN_ALL // max(1, len(starts))))
        ours: dict[TopicPartition, list[Print]] = {run.tp: [] for run in starts}
        matched = {run.copy: 0 for run in starts}
        of_copy = {run.copy: run.tp for run in starts}
        finished, unreadable = set[TopicPartition](), set[TopicPartition]()

        def note(tp: TopicPartition, message: Message) -> bool:
            try:
                ours[tp].append(_print(message))
            except UnreadableHeadersError:
                unreadable.add(tp)
                return True
            return len(ours[tp]) >= limit

        def compare(copy: TopicPartition, message: Message) -> bool:
            wanted, at = ours[of_copy[copy]], matched[copy]
            try:
                if at < len(wanted) and _print(message).is_of(wanted[at]):
                    matched[copy] += 1
            except UnreadableHeadersError:
                return True
            return matched[copy] == len(wanted)

        now = time.monotonic()
        halfway = now + (self.deadline - now) / 2
        ranges = {run.tp: Range(run.extent.start, run.sync.upstream + 1) for run in starts}
        for tp, error in self.here.read_ranges(ranges, halfway, note, scan=True).items():
            if error is None and tp not in unreadable and len(ours[tp]) < limit:
                finished.add(tp)
        self.there.read_ranges(
            {run.copy: Range(at, run.sync.downstream + 1) for run, at in starts.items() if ours[run.tp]},
            self.deadline - _SPARE_S,
            compare,
            scan=True,
        )
        return {run.tp: proven_to(run, ours[run.tp], matched[run.copy], complete=run.tp in finished) for run in starts}

    def _copies_of(self, firsts: Mapping[Run, Print]) -> dict[Run, int]:
        """Return where the copy of the first record is: where the last sync suggests, else by its time."""
        expected = {run: first.offset - run.sync.upstream + run.sync.downstream for run, first in firsts.items()}
        there = {run.copy: Range(at, at + 1) for run, at in expected.items() if at >= run.there.start}
        prints = self._prints(self.there, there)
        found = {
            run: expected[run]
            for run, first in firsts.items()
            if isinstance(one := prints.get(run.copy), Print) and one.is_of(first)
        }
        elsewhere = {run: first for run, first in firsts.items() if run not in found}
        leaders = self.far.partitions_of(sorted({run.copy.topic for run in elsewhere}))
        times = {run.copy: first.timestamp for run, first in elsewhere.items() if first.timestamp >= 0}
        [begins] = self.there.list_offsets([times], leaders) if times else [{}]
        ranges = {
            run.copy: Range(begin.offset, min(begin.offset + _AHEAD, run.sync.downstream + 1))
            for run in elsewhere
            if isinstance(begin := begins.get(run.copy), Found)
        }
        by_time = self._prints(self.there, ranges, {run.copy: first for run, first in elsewhere.items()})
        found |= {run: one.offset for run in elsewhere if isinstance(one := by_time.get(run.copy), Print)}
        return found

    def _prints(
        self,
        reader: ClusterReader,
        ranges: Mapping[TopicPartition, Range],
        wanted: Mapping[TopicPartition, Print] | None = None,
    ) -> dict[TopicPartition, Print | str]:
        """Return the first record in each range, or the first that equals what is ``wanted``; or why there is none."""
        found: dict[TopicPartition, Print | str] = {}

        def take(tp: TopicPartition, message: Message) -> bool:
            try:
                one = _print(message)
            except UnreadableHeadersError as error:
                found[tp] = str(error)
                return True
            if wanted is not None and not one.is_of(wanted[tp]):
                return False
            found[tp] = one
            return True

        for tp, error in reader.read_ranges(ranges, self.deadline, take).items():
            if error is not None:
                found[tp] = f"the record can't be read: {error}"
            elif tp not in found:
                found[tp] = "the record is gone (compacted, or its transaction was aborted)"
        return found

    def _name(self, run: Run) -> str:
        return f"{plain(str(run.copy))} in {self.place}"


def _print(message: Message) -> Print:
    digest = hashlib.sha256()
    headers = headers_of(message) or ()
    for one in (message.key(), message.value(), *(part for name, value in headers for part in (name.encode(), value))):
        digest.update(b"-" if one is None else b"%d:" % len(one))
        digest.update(one or b"")
    return Print(message.offset(), message.timestamp()[1], digest.digest())
