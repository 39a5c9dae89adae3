"""Whether a copy in another cluster is one of the records that are there now: it begins and ends as they do.

The last offset sync names a record and its copy: both must be there and be equal. So must the first record of the
source and its copy, with no fewer offsets from one to the other than the source has; and where there are exactly as
many, a few between them. A topic that was recreated on either side, or has lost records, fails one of these. What two
logs do not show: records that were lost on the way and made up for by as many that were copied twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from retention_cli.brokers.log_offsets import Found
from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Message, Range, UnreadableHeadersError, headers_of
from retention_cli.core.model import TopicPartition
from retention_cli.observe.floors.sources.mirror_topics import Sync
from retention_cli.policy.shown import plain

_AHEAD: Final = 1_000
"""How many offsets are read for the first record, and for its copy."""
_BETWEEN: Final = 3
"""How many records between the first and the last are compared."""


class Extent(NamedTuple):
    """S and H of a partition."""

    start: int
    end: int


class Run(NamedTuple):
    """What was copied of a partition: from its first record to that of its last sync."""

    tp: TopicPartition
    extent: Extent
    copy: TopicPartition
    there: Extent
    sync: Sync


class Print(NamedTuple):
    """What is compared of a record: its timestamp and a digest of its key, value and headers; its offset is not."""

    offset: int
    timestamp: int
    content: bytes

    def is_of(self, other: Print) -> bool:
        """Return whether these are prints of equal records."""
        return self[1:] == other[1:]


Prints = Mapping[TopicPartition, Print | str]


def out_of_range(run: Run) -> str | None:
    """Return why the last sync is not of records that are there, None if both are."""
    sync, there = run.sync, run.there
    if sync.upstream >= run.extent.end:
        return f"its offset sync is of offset {sync.upstream:,}, which is not written yet: of a former topic?"
    if not there.start <= sync.downstream < there.end:
        return (
            f"the copy of offset {sync.upstream:,} is no longer there: it was {sync.downstream:,}, and there are "
            f"{there.start:,} to {there.end:,}"
        )
    return None


def spare_offsets(sync: Sync, first: int, copy: int) -> int:
    """Return how many offsets more the copy has than the source, from the first record to that of the sync.

    ``copy`` is where the copy of the record at ``first`` is. Records that were copied twice add, lost ones subtract.
    """
    return (sync.downstream - copy) - (sync.upstream - first)


@dataclass(frozen=True, slots=True)
class Proof:
    """Compares the records of two clusters, until a deadline (of ``time.monotonic``)."""

    here: ClusterReader
    there: ClusterReader
    near: ClusterMetadata
    far: ClusterMetadata
    place: str
    deadline: float

    def missing(self, runs: Sequence[Run]) -> Iterator[tuple[TopicPartition, str]]:
        """Yield the partitions of which this is not proven, with the reason."""
        sound = []
        for run in runs:
            if (text := out_of_range(run)) is not None:
                yield run.tp, f"{self._name(run)}: {text}"
            else:
                sound.append(run)
        last = self._equal({run.tp: (run.sync.upstream, run.copy, run.sync.downstream) for run in sound})
        firsts = self._first({run.tp: run.extent for run in sound})
        proven = []
        for run in sound:
            first = firsts[run.tp]
            if (text := last[run.tp]) is not None:
                yield run.tp, text
            elif isinstance(first, str):
                yield run.tp, f"its first record: {first}"
            else:
                proven.append((run, first))
        begun = self._copies_of(dict(proven))
        even = []
        for run, first in proven:
            copy = begun[run.tp]
            if copy is None:
                yield run.tp, f"no copy of its first record, at offset {first.offset:,}, is found in {self._name(run)}"
                continue
            spare = spare_offsets(run.sync, first.offset, copy)
            if spare < 0:
                why = "records were lost or left out there, or transactions have markers here"
                yield run.tp, f"{self._name(run)} is {-spare:,} short of offset {run.sync.upstream:,}: {why}"
            elif spare == 0:
                even.append((run, first))
        for part in range(1, _BETWEEN + 1):
            probes = {}
            for run, first in even:
                at = first.offset + (run.sync.upstream - first.offset) * part // (_BETWEEN + 1)
                probes[run.tp] = (at, run.copy, at - run.sync.upstream + run.sync.downstream)
            found = self._equal(probes)
            for run, _ in even:
                if (text := found[run.tp]) is not None:
                    yield run.tp, text
            even = [(run, first) for run, first in even if found[run.tp] is None]

    def _equal(
        self, pairs: Mapping[TopicPartition, tuple[int, TopicPartition, int]]
    ) -> dict[TopicPartition, str | None]:
        """Return, for an offset here and one of a copy each, why their records are not equal; None: they are."""
        ours = self._prints(self.here, {tp: Range(at, at + 1) for tp, (at, _, _) in pairs.items()})
        theirs = self._prints(self.there, {copy: Range(at, at + 1) for _, copy, at in pairs.values()})
        found: dict[TopicPartition, str | None] = {}
        for tp, (offset, copy, at) in pairs.items():
            one, other = ours[tp], theirs[copy]
            name = f"offset {at:,} of {plain(copy.topic)} in {self.place}"
            if isinstance(one, str):
                found[tp] = f"offset {offset:,}: {one}"
            elif isinstance(other, str):
                found[tp] = f"{name}: {other}"
            elif one.is_of(other):
                found[tp] = None
            else:
                why = "a topic was recreated, or records are changed or stamped anew on the way"
                found[tp] = f"{name} is not a copy of offset {offset:,}: {why}"
        return found

    def _first(self, extents: Mapping[TopicPartition, Extent]) -> Prints:
        """Return the first record of each partition."""
        return self._prints(
            self.here, {tp: Range(one.start, min(one.end, one.start + _AHEAD)) for tp, one in extents.items()}
        )

    def _copies_of(self, firsts: Mapping[Run, Print]) -> dict[TopicPartition, int | None]:
        """Return where the copy of the first record is: where the last sync lets expect it, or else by its time."""
        found: dict[TopicPartition, int | None] = {}
        expected = {run: first.offset - run.sync.upstream + run.sync.downstream for run, first in firsts.items()}
        there = {run.copy: Range(at, at + 1) for run, at in expected.items() if at >= run.there.start}
        prints = self._prints(self.there, there)
        for run, first in firsts.items():
            one = prints.get(run.copy, "")
            found[run.tp] = expected[run] if not isinstance(one, str) and one.is_of(first) else None
        elsewhere = {run: first for run, first in firsts.items() if found[run.tp] is None}
        leaders = self.far.places(sorted({run.copy.topic for run in elsewhere}))
        times = {run.copy: first.timestamp for run, first in elsewhere.items() if first.timestamp >= 0}
        [begins] = self.there.list_offsets([times], leaders) if times else [{}]
        ranges = {
            run.copy: Range(begin.offset, min(begin.offset + _AHEAD, run.sync.downstream + 1))
            for run in elsewhere
            if isinstance(begin := begins.get(run.copy), Found)
        }
        by_time = self._prints(self.there, ranges, {run.copy: first for run, first in elsewhere.items()})
        for run in elsewhere:
            one = by_time.get(run.copy, "")
            found[run.tp] = None if isinstance(one, str) else one.offset
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
