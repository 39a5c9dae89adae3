"""Archive the records that a trim is about to delete: verify existing segments, and write the rest. Resumable.

To a trim, an :class:`Archiver` returns a verified copy per partition, or the reason for none. :func:`archive_range`
needs only a reader of the cluster and the archive's files, so a command and a Spark task can both run it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from retention_cli.archive.layout import ArchiveError, DamagedError, Manifest, Place, Source, place_of
from retention_cli.archive.positions import Positions, keep
from retention_cli.archive.segment import (
    DEFAULT_SIZE,
    SegmentBuilder,
    SegmentSize,
    check_unchanged,
    commit,
    load,
    verify_files,
)
from retention_cli.archive.store import Keys, Store
from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.log_offsets import Found
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Range, Record
from retention_cli.core.extras import MissingPartError
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.core.progress import Progress, adding
from retention_cli.observe.lineage import other_log
from retention_cli.plan.reconcile import Target


@dataclass(frozen=True, slots=True)
class Archived:
    """Every data record from ``start`` to ``end`` (exclusive) is in the archive at ``url``, and was read back.

    ``start`` is the log start offset, or the end of the records that the brokers deleted before they could be read.
    ``written`` are the manifests of this run, ``found`` the existing ones. ``notes`` are known oddities, such as
    records deleted before they could be read.
    """

    source: Source
    url: str
    start: int
    end: int
    written: tuple[Manifest, ...] = ()
    found: tuple[Manifest, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def segments(self) -> tuple[Manifest, ...]:
        """The written and found manifests, by start offset."""
        return tuple(sorted((*self.written, *self.found), key=lambda one: (one.start, one.end)))


Copies = Mapping[TopicPartition, Archived | Reason]
"""The result for each partition that was to be copied."""


@dataclass(slots=True)
class Archiver(ABC):
    """Copies records before they are trimmed. It changes nothing in a cluster.

    Args:
        reader: the cluster, read-only.
        cluster_id: its id.
    """

    reader: ClusterReader
    cluster_id: str
    keys: tuple[str, ...] = field(default=(), init=False)
    """The files of the policy's keys, the newest first."""
    _stores: dict[tuple[str, ...], Store] = field(default_factory=dict, init=False)
    _marks: dict[TopicPartition, tuple[tuple[int, int], ...]] = field(default_factory=dict, init=False)
    _sealed: dict[TopicPartition, frozenset[str]] = field(default_factory=dict, init=False)
    """The ids of the keys that copies are encrypted with."""

    @abstractmethod
    def copy(
        self, wanted: Mapping[TopicPartition, tuple[str, Target]], progress: Progress
    ) -> dict[TopicPartition, Archived | Reason]:
        """Copy each partition's records up to its target to its URL; return the copy, or why there is none."""

    def differing(
        self, copied: Collection[TopicPartition], leaders: Mapping[TopicPartition, PartitionMetadata]
    ) -> dict[TopicPartition, Reason]:
        """Return the copied partitions whose log may have been replaced since, or whose key is gone, each with why."""
        marks = {tp: self._marks[tp] for tp in copied if tp in self._marks}
        why = self._locked(copied) | other_log(self.reader, marks, leaders)
        return {tp: Reason("archive", f"{tp} was archived, and is held: {text}") for tp, text in why.items()}

    def _locked(self, copied: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Return the copies that today's key files do not decrypt: a file may have been replaced since they were made.

        Another machine may also have encrypted them with another key under the same path.
        """
        if not (sealed := {tp: ids for tp in copied if (ids := self._sealed.get(tp))}):
            return {}
        given, problem = frozenset[str](), "no file of archive.key has it"
        try:
            given = frozenset(Keys.read(self.keys).secrets)
        except ArchiveError as error:
            problem = str(error)
        return {
            tp: f"its copy is encrypted with the key of id {min(ids - given)}, and {problem}"
            for tp, ids in sealed.items()
            if ids - given
        }

    def keep(self, url: str, positions: Positions) -> None:
        """Keep a topic's positions with its records.

        Raises:
            ArchiveError: they can't be written.
        """
        keep(self.store(url), positions)

    def source(self, tp: TopicPartition, target: Target) -> Source | Reason:
        """Return where a partition's records come from; without a topic id, why they can't be attributed to a topic."""
        if (topic_id := target.decision.topic_id) is None:
            return Reason("archive", f"{tp} can't be archived: the cluster gives no topic id")
        return Source(self.cluster_id, tp.topic, topic_id, tp.partition)

    def store(self, url: str) -> Store:
        """Return the archive at a URL.

        Raises:
            ArchiveError: it can't be reached.
        """
        place = (url, *self.keys)
        if place not in self._stores:
            self._stores[place] = Store(url, keys=self.keys)
        return self._stores[place]

    def note(self, tp: TopicPartition, done: Archived, log_start: int) -> None:
        """Keep the last segment's marks from the log start on: if they match, so does everything before them.

        Keep the ids of all segments' keys, too.
        """
        self._sealed[tp] = frozenset(file.key for one in done.segments for file in one.files if file.key)
        last = max(done.segments, key=lambda one: one.end, default=None)
        self._marks[tp] = () if last is None else tuple(mark for mark in last.marks if mark[0] >= log_start)


ArchiverFor = Callable[[ClusterReader, str], Archiver]
"""Creates the archiver for a reader's cluster, given the cluster's id."""


def failed(tp: TopicPartition, url: str, why: object) -> Reason:
    """Return the reason for a partition that could not be archived."""
    text = " ".join(str(why).split())
    return Reason(
        "archive",
        f"{tp} could not be archived to {url.partition('?')[0]}, so it is not trimmed: {text}. Correct "
        f"this and run again: archiving resumes where it stopped",
    )


_PERIOD: Final = 1_000
"""The number of offsets between two progress calls."""


def archive_range(
    reader: ClusterReader,
    store: Store,
    source: Source,
    end: int,
    clock: Callable[[], str],
    size: SegmentSize = DEFAULT_SIZE,
    on_records: Callable[[int], None] = lambda _: None,
) -> Archived:
    """Archive a partition's data records from its log start to ``end``, and read them back.

    Existing segments are read in full before they are trusted. Damaged ones are written again if the log still has
    their records.

    Args:
        reader: the cluster, read-only.
        store: the archive.
        source: the partition, and the topic id that it must have throughout.
        end: the offset to stop at (exclusive).
        clock: returns the current time in the manifests' format.
        size: when a segment counts as full.
        on_records: called with the number of offsets archived since the last call.

    Raises:
        ArchiveError: not every record could be archived; the text gives the reason. Archived segments stay, and the
            next run continues after them.
    """
    return _Work(reader, store, source, end, clock, size, on_records).run()


@dataclass(slots=True)
class _Work:
    reader: ClusterReader
    store: Store
    source: Source
    end: int
    clock: Callable[[], str]
    size: SegmentSize
    on_records: Callable[[int], None]
    _start: int = 0
    _partitions: int = 0
    _epoch: int = -1
    _leader: Mapping[TopicPartition, PartitionMetadata] = field(default_factory=dict)
    _written: list[Manifest] = field(default_factory=list)
    _found: list[Manifest] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.source.topic, self.source.partition)

    def run(self) -> Archived:
        try:
            self._check_topic()
            self._start = position = self._log_start()
            listed = self._listed()
            while position < self.end:
                covering = [place for place in listed if place.start <= position < place.end]
                trusted = next((one for place in covering if (one := self._trusted(place)) is not None), None)
                if trusted is not None:
                    self._found.append(trusted)
                    self.on_records(min(trusted.end, self.end) - position)
                    position = trusted.end
                else:  # a damaged segment that begins here is written again under its own name, up to the same end
                    ends = (place.end for place in covering if place.start == position)
                    next_starts = (place.start for place in listed if place.start > position)
                    position = self._write(position, min([self.end, *ends, *next_starts]))
        except BrokerError as error:
            raise ArchiveError(f"{self.tp}: {error}") from None
        return Archived(
            self.source,
            self.store.url,
            self._start,
            position,
            tuple(self._written),
            tuple(self._found),
            tuple(self._notes),
        )

    def _listed(self) -> list[Place]:
        """Return the places of this partition's manifests by start offset, longer ones first among equal starts."""
        ours = [
            place
            for path in self.store.files(self.source.manifests)
            if (place := place_of(path)) is not None and place.source == self.source
        ]
        return sorted(ours, key=lambda place: (place.start, -place.end))

    def _trusted(self, place: Place) -> Manifest | None:
        """Return a segment's manifest, None if the segment is damaged.

        Raises:
            ArchiveError: the segment is undamaged, but the partition's log has been replaced since.
        """
        try:
            manifest = load(self.store, place)
            verify_files(self.store, manifest)
        except DamagedError as error:
            self._notes.append(f"not trusted: {error}")
            return None
        marks = [mark for mark in manifest.marks if mark[0] >= self._start]
        if (other := other_log(self.reader, {self.tp: marks}, self._leader).get(self.tp)) is not None:
            raise ArchiveError(
                f"{self.store.shown(place.path)}: {other}. Move that segment's files aside if what is in the log "
                f"now is to be archived"
            )
        return manifest

    def _write(self, start: int, end: int) -> int:
        """Read from the log and write segments up to ``end``; return the offset reached, larger than ``start``.

        Raises:
            ArchiveError: reading or writing failed.
        """
        self._epoch = self._leader[self.tp].leader_epoch  # the epoch before the first record is read
        building = SegmentBuilder(self.source, start)
        counted_to = start

        def take(record: Record) -> None:
            nonlocal building, counted_to
            building.add(record)
            if building.content_bytes >= self.size.content_bytes or building.records >= self.size.records:
                self._finish(building, record.offset + 1)
                building = SegmentBuilder(self.source, record.offset + 1)
            if record.offset - counted_to >= _PERIOD:
                self.on_records(record.offset - counted_to)
                counted_to = record.offset

        reached = self.reader.read_complete(self.tp, Range(start, end), take)
        if isinstance(reached, RequestFailedError):
            read_to = building.start if building.last is None else building.last[0] + 1
            return self._after_failure(building, read_to, end, reached)
        if reached > building.start:
            self._finish(building, reached)
        self.on_records(max(0, reached - counted_to))
        if reached < end:
            raise ArchiveError(
                f"{self.tp}: the log was read to {reached:,} and returned no more, though it should continue to {end:,}"
            )
        return reached

    def _after_failure(self, building: SegmentBuilder, read_to: int, end: int, error: RequestFailedError) -> int:
        """Continue after records that broker retention deleted before they could be read; otherwise fail.

        Raises:
            ArchiveError: the records still exist, and can't be read.
        """
        self._check_topic()
        log_start = self._log_start()
        if log_start <= read_to:
            raise ArchiveError(f"{self.tp}: records from {read_to:,} on can't be read: {error}")
        if read_to > building.start:
            self._finish(building, read_to)
        gone = self._start = min(log_start, end)  # if the log start moves back, the records before this aren't archived
        self.on_records(gone - read_to)
        self._notes.append(
            f"the records from {read_to:,} to {gone:,} are not archived: the brokers' retention or another trim "
            f"deleted them"
        )
        return gone

    def _finish(self, building: SegmentBuilder, end: int) -> None:
        """Write one segment. Its manifest is written only if every record is from the right topic and log.

        A read may begin at a deposed leader that has not noticed its replacement, and end at the current leader.

        Raises:
            ArchiveError: the topic or its log was replaced while it was read, or the segment can't be written.
        """
        manifest = building.write(self.store, end, self._partitions, self.clock(), self._epoch)
        self._check_topic()
        marks = [(offset, epoch) for epoch, offset in building.epochs.items() if offset >= self._start]
        if (other := other_log(self.reader, {self.tp: marks}, self._leader).get(self.tp)) is not None:
            raise ArchiveError(f"{self.tp}: what was read was discarded: {other}")
        commit(self.store, manifest)
        self._written.append(manifest)

    def _check_topic(self) -> None:
        """Read metadata again, and check that it is the same topic.

        Raises:
            ArchiveError: the topic was deleted or recreated.
            BrokerError: no broker answered.
        """
        cluster = self.reader.metadata([self.source.topic])
        topic = cluster.topics.get(self.source.topic)
        found = None if topic is None else topic.partitions.get(self.source.partition)
        if topic is None or found is None or cluster.cluster_id != self.source.cluster_id:
            raise ArchiveError(f"{self.tp}: the topic no longer exists")
        if topic.topic_id != self.source.topic_id:
            raise ArchiveError(f"{self.tp}: the topic was deleted and recreated during the read")
        self._partitions = len(topic.partitions)
        self._leader = {self.tp: found}

    def _log_start(self) -> int:
        answer = self.reader.list_offsets([{self.tp: "earliest"}], self._leader)[0][self.tp]
        if isinstance(answer, Found):
            return answer.offset
        cause = answer if isinstance(answer, RequestFailedError) else "the broker reports none"
        raise ArchiveError(f"{self.tp}: its log start offset can't be read: {cause}")


@dataclass(slots=True)
class PartitionArchiver(Archiver):
    """Copies partitions to the archives that the policy names.

    Args:
        clock: returns the current time in the manifests' format.
        size: when a segment counts as full.
    """

    clock: Callable[[], str]
    size: SegmentSize = field(default_factory=SegmentSize)
    _done: dict[TopicPartition, Archived] = field(default_factory=dict)

    def copy(
        self, wanted: Mapping[TopicPartition, tuple[str, Target]], progress: Progress
    ) -> dict[TopicPartition, Archived | Reason]:
        """Archive each partition up to its target. A failure becomes its Reason; the others are still archived."""
        on_records = adding(progress, "archiving", sum(target.records for _url, target in wanted.values()))
        return {tp: self._copy(tp, url, target, on_records) for tp, (url, target) in wanted.items()}

    def differing(
        self, copied: Collection[TopicPartition], leaders: Mapping[TopicPartition, PartitionMetadata]
    ) -> dict[TopicPartition, Reason]:
        """Return partitions whose log or whose archive no longer has what was archived, or that can't be checked."""
        found = Archiver.differing(self, copied, leaders)
        for tp in self._done.keys() & copied:  # another process may have deleted a new segment
            done = self._done[tp]
            try:
                for one in done.written:
                    check_unchanged(self.store(done.url), one)
            except ArchiveError as error:
                found[tp] = Reason("archive", f"{tp} was archived, and is held: {error}. Run again to archive it again")
        return found

    def _copy(
        self, tp: TopicPartition, url: str, target: Target, on_records: Callable[[int], None]
    ) -> Archived | Reason:
        if isinstance(source := self.source(tp, target), Reason):
            return source
        try:
            done = archive_range(self.reader, self.store(url), source, target.offset, self.clock, self.size, on_records)
        except (ArchiveError, MissingPartError) as error:
            return failed(tp, url, error)
        self.note(tp, done, done.start)
        self._done[tp] = done
        return done
