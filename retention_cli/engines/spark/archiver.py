"""Archive on executors: tasks copy partitions, the client checks their reports, and only the client trims.

A task reads a cluster and writes an archive's files; it has no object that can delete. Its arguments (including URLs)
are part of its code, and in no setting, plan or page of Spark's.

The same path may be on another disk on the other machine, and an archive that this client can't see does not count.
The task read its files back record by record; the client compares their bytes, as equal bytes hold equal records.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
from pydantic import TypeAdapter

from retention_cli.archive.catalog import stitched
from retention_cli.archive.layout import ArchiveError, DamagedError, Manifest, Place, Source, checksum_of
from retention_cli.archive.segment import SegmentSize, load, verify_files
from retention_cli.archive.store import Store, digest_of
from retention_cli.archive.writer import Archived, Archiver, archive_range, failed
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.extras import MissingPartError, arrow
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.core.progress import Progress, adding
from retention_cli.core.units import count, timestamp
from retention_cli.engines.spark.session import SparkError
from retention_cli.engines.spark.shipping import (
    ConnectionRef,
    Row,
    Sender,
    as_they_end,
    reader_of,
    run_tasks,
)
from retention_cli.plan.reconcile import Target

TASKS_A_LEADER: Final = 4
"""At most this many tasks read from one leader at once, each over its own connection."""
RECORDS_A_TASK: Final = 200_000
"""A leader's partitions with at most this many records in total are read by one task."""
_TASKS_AT_ONCE: Final = 64
_SHARED: Final = "An archive must be storage that this machine and all executors share"

REPORTS: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("error", pa.string()), ("report", pa.string())]
)
"""One row per partition: :class:`retention_cli.engines.spark.archiver.RemoteReport` as JSON, or why there is none."""


@dataclass(frozen=True, slots=True)
class ArchiveRequest:
    """One partition's records to archive, up to ``end`` (exclusive)."""

    source: Source
    url: str
    end: int
    records: int

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.source.topic, self.source.partition)


@dataclass(slots=True)
class SparkArchiver(Archiver):
    """Has Spark's tasks copy partitions, and checks their reports.

    Args:
        spark: opens Spark if it is not open yet.
        size: when a segment counts as full.
    """

    spark: Callable[[Progress], Sender]
    size: SegmentSize = field(default_factory=SegmentSize)

    def copy(
        self, wanted: Mapping[TopicPartition, tuple[str, Target]], progress: Progress
    ) -> dict[TopicPartition, Archived | Reason]:
        """Archive each partition up to its target; see :class:`retention_cli.archive.writer.Archiver`."""
        result: dict[TopicPartition, Archived | Reason] = {}
        requests = []
        for tp, (url, target) in wanted.items():
            if isinstance(source := self.source(tp, target), Reason):
                result[tp] = source
            else:
                requests.append(ArchiveRequest(source, url, target.offset, target.records))
        if not requests:
            return result
        try:
            partitions = self.reader.metadata({one.source.topic for one in requests}).partitions_of()
            sender = self.spark(progress)
            connection = sender.connection(self.reader.settings)
        except (BrokerError, SparkError) as error:
            return result | {one.tp: failed(one.tp, one.url, error) for one in requests}
        add = adding(
            progress, f"archiving {count(len(requests), 'partition')} over Spark", sum(one.records for one in requests)
        )
        stopped = threading.Event()
        jobs = [
            functools.partial(self._job, sender.session, connection, some, stopped.is_set)
            for some in sliced(requests, {tp: one.leader for tp, one in partitions.items()})
        ]
        with contextlib.closing(as_they_end(sender.session, jobs, _TASKS_AT_ONCE)) as ended:
            try:
                for one in ended:
                    found = one.result()
                    result |= found
                    add(sum(wanted[tp][1].records for tp in found))
            finally:
                stopped.set()
        return result

    def _job(
        self, session: Any, connection: ConnectionRef, requests: Sequence[ArchiveRequest], stopped: Callable[[], bool]
    ) -> dict[TopicPartition, Archived | Reason]:
        work = functools.partial(
            copies, requests, (self.cluster_id, connection, self.reader.timeout_s), self.size, self.keys
        )
        try:
            rows = run_tasks(session, work, REPORTS, 1, "Spark's task failed")
        except SparkError as error:
            return {one.tp: failed(one.tp, one.url, error) for one in requests}
        reported = {TopicPartition(row["topic"], row["partition"]): row for row in rows}
        return {one.tp: self._checked(one, reported.get(one.tp), stopped) for one in requests}

    def _checked(self, request: ArchiveRequest, row: Row | None, stopped: Callable[[], bool]) -> Archived | Reason:
        """Return the copy in a task's row if this machine sees it in the archive, otherwise the reason."""
        if row is None:
            return failed(request.tp, request.url, "Spark's task did not report it")
        if row["error"] is not None:
            return failed(request.tp, request.url, row["error"])
        report = REMOTE_REPORT.validate_json(row["report"])
        try:
            done = check_report(self.store(request.url), request.source, request.end, report, stopped)
        except StoppedError as error:
            return failed(request.tp, request.url, error)
        except (ArchiveError, MissingPartError) as error:
            return Reason(
                "archive",
                f"{request.tp} was archived by Spark's tasks, but this machine can't see it, so it is not trimmed: "
                f"{' '.join(str(error).split())}. {_SHARED}: fix that and run again",
            )
        self.note(request.tp, done, report.start)
        return done


def sliced(
    requests: Sequence[ArchiveRequest], leaders: Mapping[TopicPartition, int | None]
) -> list[list[ArchiveRequest]]:
    """Return each task's partitions: of one leader, with at most :data:`TASKS_A_LEADER` tasks per leader. Pure.

    Partitions are assigned from the largest on, each to the task with the fewest records.
    """
    largest_first = sorted(requests, key=lambda one: (-one.records, one.source))
    by_leader = by_key((leaders.get(one.tp), one) for one in largest_first)
    found: list[list[ArchiveRequest]] = []
    for some in by_leader.values():
        count = min(TASKS_A_LEADER, len(some), -(-sum(one.records for one in some) // RECORDS_A_TASK)) or 1
        tasks: list[list[ArchiveRequest]] = [[] for _ in range(count)]
        sizes = [0] * count
        for one in some:
            least = sizes.index(min(sizes))
            tasks[least].append(one)
            sizes[least] += max(1, one.records)
        found += tasks
    return found


def copies(
    requests: Sequence[ArchiveRequest],
    where: tuple[str, ConnectionRef, float],
    size: SegmentSize,
    keys: Sequence[str],
    _number: int,
) -> Iterator[Row]:
    """Copy partitions, in a task; yield a row of :data:`REPORTS` for each."""
    stores: dict[str, NotingStore] = {}
    with contextlib.ExitStack() as stack:
        reader: ClusterReader | None = None
        for one in requests:
            try:
                reader = reader or stack.enter_context(reader_of(*where))
                store = stores.get(one.url) or stores.setdefault(one.url, NotingStore(one.url, keys))
                done = archive_range(reader, store, one.source, one.end, lambda: timestamp(SYSTEM.wall_ms()), size)
                answer: Row = {"report": REMOTE_REPORT.dump_json(store.report(done)).decode()}
            except (ArchiveError, BrokerError, MissingPartError) as error:
                answer = {"error": str(error)}
            yield {"topic": one.tp.topic, "partition": one.tp.partition, **answer}


class NotingStore(Store):
    """A store that remembers a checksum of each file's bytes when the file was last compared with its manifest."""

    def __init__(self, url: str, keys: Sequence[str] = ()) -> None:
        super().__init__(url, keys=keys)
        self._noted: dict[str, str] = {}

    @contextlib.contextmanager
    def opened(self, path: str, key_id: str = "") -> Iterator[Any]:
        """See :meth:`Store.opened`. The file is read once, so the checksum is of the bytes that are compared."""
        content = self.read(path)
        self._noted[path] = digest_of(content)
        with self._reported(path, "read"):
            yield self.keys.opened(arrow().BufferReader(content), path, key_id, self.shown(path))

    def report(self, done: Archived) -> RemoteReport:
        """Return the report for a partition that was archived through this store."""
        segments = (
            ReportedSegment(
                one.start,
                one.end,
                substance(one),
                {file.path: self._noted.get(f"{one.source.folder}/{file.path}", "") for file in one.files},
            )
            for one in done.segments
        )
        return RemoteReport(done.start, tuple(segments), done.notes)


@dataclass(frozen=True, slots=True)
class ReportedSegment:
    """A segment that another machine read back: checksums of its manifest, and of its files' bytes by path."""

    start: int
    end: int
    manifest: str
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RemoteReport:
    """The segments of a partition that another machine archived; its log began at ``start``."""

    start: int
    segments: tuple[ReportedSegment, ...]
    notes: tuple[str, ...]


REMOTE_REPORT: Final = TypeAdapter(RemoteReport)


class StoppedError(ArchiveError):
    """The check was interrupted."""


def substance(manifest: Manifest) -> str:
    """Return a checksum over a manifest, ignoring when it was written. Pure."""
    return checksum_of(replace(manifest, written_at="-"))


def check_report(
    store: Store, source: Source, end: int, report: RemoteReport, stopped: Callable[[], bool] = lambda: False
) -> Archived:
    """Compare another machine's report on a partition with the archive as seen from here; return what was archived.

    The range covered is determined by the manifests alone: from the end of the last gap between them to at least
    ``end``. Before trimming, the caller must check that the log starts there or later.

    Args:
        store: this machine's own view of the archive.
        source: the partition that was to be archived.
        end: the offset (exclusive) up to which it was to be archived.
        report: the other machine's report.
        stopped: returns whether to give up.

    Raises:
        ArchiveError: something differs from the report; the text names it.
        StoppedError: ``stopped`` returned true.
    """
    manifests = []
    for one in report.segments:
        manifest = load(store, Place(source, one.start, one.end))
        if substance(manifest) != one.manifest:
            raise DamagedError(f"{store.shown(manifest.path)} differs from what was written")
        for file in manifest.files:
            if stopped():
                raise StoppedError("interrupted")
            if store.digest(f"{source.folder}/{file.path}") != one.files.get(file.path):
                verify_files(store, manifest)  # other bytes may hold the same records
        manifests.append(manifest)
    ranges, gaps = stitched(manifests)
    if not ranges and report.start >= end:  # the log had lost all of it; the next recheck will find that
        return Archived(source, store.url, end, end, notes=report.notes)
    reached = ranges[-1].end if ranges else report.start
    if reached < end:
        raise ArchiveError(f"{store.shown(source.manifests)} goes to {reached:,} alone, and not to {end:,}")
    return Archived(
        source,
        store.url,
        gaps[-1][1] if gaps else ranges[0].start,
        reached,
        found=tuple(manifests),
        notes=report.notes,
    )
