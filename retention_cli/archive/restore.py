"""Restore an archive into a topic, record for record: the same partitions, keys, values, headers and timestamps.

Offsets are the target's own. Each transaction commits the progress of the restore, so that a killed restore continues
where it stopped when it is run again, and writes no record twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from retention_cli.archive.catalog import ArchivedPartition, SegmentRange, read_catalog, stitched
from retention_cli.archive.layout import ArchiveError, Source
from retention_cli.archive.segment import records_of, verify_files
from retention_cli.archive.store import Store
from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.metadata import TopicMetadata
from retention_cli.brokers.reader import RESTORE, ClusterReader
from retention_cli.brokers.records import Record
from retention_cli.brokers.republisher import Marked, Republisher, RestoreGroup
from retention_cli.core.commands import kafka_tool
from retention_cli.core.errors import Refusal
from retention_cli.core.grouping import by_key
from retention_cli.core.model import TopicPartition
from retention_cli.core.progress import Progress, silent
from retention_cli.core.units import count

TRANSACTION_RECORDS: Final = 10_000
TRANSACTION_BYTES: Final = 8 * 2**20
GROUP_PREFIX: Final = "kretain-restore-"


class RestoreRefusedError(Refusal):
    """The restore must not proceed. Nothing was written."""


@dataclass(frozen=True, slots=True)
class WantedGroups:
    """The groups to reset in the target: those named, or all. ``overwrite`` allows groups with commits there.

    ``at_ms`` chooses the positions: the newest that were read at or before it (Unix ms).
    """

    names: tuple[str, ...] = ()
    overwrite: bool = False
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to restore, and the target topic.

    ``partitions`` are those to restore (empty: all). ``since_ms`` and ``until_ms`` (exclusive) are Unix ms, compared
    with the records' timestamps. ``append`` allows a target that is not empty. ``groups`` are to be reset there.
    """

    topic: str
    target: str
    cluster_id: str | None = None
    topic_id: str | None = None
    partitions: tuple[int, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    append: bool = False
    groups: WantedGroups | None = None

    def takes(self, record: Record) -> bool:
        """Return whether a record's timestamp is within ``since_ms`` and ``until_ms``."""
        if (stamp := record.timestamp) is None:
            return self.since_ms is None and self.until_ms is None
        return (self.since_ms is None or stamp >= self.since_ms) and (self.until_ms is None or stamp < self.until_ms)


@dataclass(frozen=True, slots=True)
class Job:
    """A restore that may proceed. ``warnings`` are shown before the user confirms; ``resumes``: a run has begun it.

    ``source`` is the archived topic, by its first partition. ``starts`` has the target's partitions. ``there``: the
    target is not empty, so only its groups are to be reset.
    """

    wanted: Wanted
    source: Source
    target_id: str
    ranges: dict[int, list[SegmentRange]]
    starts: dict[int, int]
    group: str
    resumes: bool
    warnings: tuple[str, ...] = ()
    there: bool = False

    @property
    def partitions(self) -> list[int]:
        """The target's partitions that are restored, in order."""
        return sorted(self.wanted.partitions or self.starts)

    @property
    def records(self) -> int:
        """The approximate number of records to restore, ignoring time limits and overlaps."""
        return sum(segment.manifest.records for ranges in self.ranges.values() for segment in ranges)


@dataclass(slots=True)
class RestoredPartition:
    """One partition's result: how many records this run wrote, and their archived offsets (``end`` exclusive)."""

    partition: int
    records: int = 0
    start: int = 0
    end: int = 0
    resumed_at: int | None = None


@dataclass(slots=True)
class Restored:
    """A restore's result. ``finished``: every record is restored, and its group is deleted from the cluster."""

    job: Job
    partitions: list[RestoredPartition] = field(default_factory=list)
    finished: bool = False
    interrupted: bool = False


def prepare(reader: ClusterReader, store: Store, wanted: Wanted, now_ms: int, progress: Progress = silent) -> Job:
    """Find the segments to restore, and check that the target can accept them. Nothing is written.

    Raises:
        ArchiveError: the archive has no such topic, or several, or is damaged.
        RestoreRefusedError: the target can't accept the records.
        BrokerError: a request to the cluster failed.
    """
    reader.check_offers(RESTORE, "nothing can be restored")
    chosen = _chosen(store, wanted, progress)
    source = chosen[0].source
    partitions = max(segment.partitions for one in chosen for segment in one.segments)
    metadata = reader.metadata([wanted.target])
    if (target := metadata.topics.get(wanted.target)) is None:
        forever = ("--config", "retention.ms=-1")  # brokers would delete old records again at once
        create = ("--create", "--topic", wanted.target, "--partitions", str(partitions), *forever)
        raise RestoreRefusedError(
            f"topic {wanted.target} does not exist: create it first, with {count(partitions, 'partition')} "
            f"({kafka_tool('kafka-topics.sh', *create)})"
        )
    if len(target.partitions) != partitions:
        raise RestoreRefusedError(
            f"topic {wanted.target} has {len(target.partitions)} partitions, and {wanted.topic} had {partitions}: "
            f"keys would no longer match their partitions"
        )
    if target.internal or target.topic_id is None:
        raise RestoreRefusedError(f"topic {wanted.target} is internal to Kafka, or has no topic id")
    warnings = _check_settings(reader, wanted, chosen, now_ms)
    ranges: dict[int, list[SegmentRange]] = {}
    for one in chosen:
        ranges[one.source.partition], gaps = stitched(one.segments)
        warnings += [
            f"{source.topic}-{one.source.partition}: offsets {start:,} to {end:,} are not in the archive"
            for start, end in gaps
        ]
    group = GROUP_PREFIX + _identity(wanted, source.cluster_id, source.topic_id, metadata.cluster_id, target.topic_id)
    with RestoreGroup(reader.pinned_settings, group, reader.timeout_s, settled=False) as ours:
        resumes = bool(ours.marks(wanted.target, target.partitions))
    starts, empty = _ends(reader, wanted, target, resumes=resumes)
    return Job(
        wanted,
        source,
        target.topic_id,
        ranges,
        starts,
        group,
        resumes,
        tuple(warnings),
        not (empty or resumes or wanted.append),
    )


def planned(job: Job) -> Restored:
    """Return the most that a restore would write: time limits and records restored before reduce it."""
    rows = [
        RestoredPartition(partition, sum(one.manifest.records for one in ranges), ranges[0].start, ranges[-1].end)
        for partition, ranges in sorted(job.ranges.items())
        if ranges and not job.there
    ]
    return Restored(job, rows)


def restore(reader: ClusterReader, store: Store, job: Job, progress: Progress = silent) -> Restored:
    """Run a restore, partition by partition, and delete its consumer group when every partition is done.

    Where groups are to be reset, it stays until :func:`end`: it holds the target's floor until they do.
    Ctrl-C ends it between two transactions, or aborts the current one.

    Raises:
        ArchiveError: the archive is damaged or can't be read. Written records stay, and the next run continues.
        BrokerError: a request to the cluster failed. Written records stay, and the next run continues.
    """
    result = Restored(job, finished=job.there)
    if job.there:
        return result
    before = 0
    with RestoreGroup(reader.pinned_settings, job.group, reader.timeout_s) as group:
        try:
            for partition, ranges in sorted(job.ranges.items()):
                row = RestoredPartition(partition)
                result.partitions.append(row)
                _restore_one(reader, store, job, group, row, progress, before)
                before += sum(segment.manifest.records for segment in ranges)
        except KeyboardInterrupt:
            result.interrupted = True
            return result
    if job.wanted.groups is None:
        end(reader, job)
    result.finished = True
    return result


def end(reader: ClusterReader, job: Job) -> None:
    """Delete a restore's consumer group: nothing is left to do.

    Raises:
        BrokerError: it could not be deleted.
    """
    RestoreGroup(reader.pinned_settings, job.group, reader.timeout_s).delete()


def check_target(reader: ClusterReader, job: Job) -> None:
    """Check that the target is the topic that the restore began with.

    Raises:
        BrokerError: it is another one, or no broker answered.
    """
    if reader.metadata([job.wanted.target]).topic_ids.get(job.wanted.target) != job.target_id:
        raise BrokerError(f"topic {job.wanted.target} was deleted or recreated during the restore")


def _restore_one(
    reader: ClusterReader,
    store: Store,
    job: Job,
    group: RestoreGroup,
    row: RestoredPartition,
    progress: Progress,
    before: int,
) -> None:
    """Restore one partition, after ``before`` records of others. Its start is committed first."""
    target, ranges = job.wanted.target, job.ranges[row.partition]
    check_target(reader, job)
    name = f"{job.group}-{row.partition}"
    with Republisher(reader.pinned_settings, target, row.partition, name, group, reader.timeout_s) as republisher:
        mark = group.marks(target, [row.partition]).get(row.partition)
        if mark is None:
            position, hold_at = ranges[0].start if ranges else 0, job.starts[row.partition]
            republisher.append((), hold_at, _progress_text(position))
        else:
            position, hold_at = _progress_of(mark, group.name), mark.offset
            row.resumed_at = position
        row.start = row.end = position
        done = 0
        for segment in ranges:
            done += segment.manifest.records
            if segment.end <= position:
                continue
            verify_files(store, segment.manifest)
            for batch in _batches(store, job.wanted, segment, max(segment.start, position)):
                republisher.append(batch, hold_at, _progress_text(batch[-1].offset + 1))
                row.records, row.end = row.records + len(batch), batch[-1].offset + 1
                progress("restoring", before + min(done, row.records), job.records)
            row.end = segment.end
        if ranges and row.end > position:
            republisher.append((), hold_at, _progress_text(row.end))


def restored_records(
    store: Store,
    wanted: Wanted,
    segment: SegmentRange,
    start: int,
    on_records: Callable[[int], None] = lambda _count: None,
) -> Iterator[Record]:
    """Yield the records of a range that a restore writes, from an archived offset on.

    ``on_records`` is called with how many were read.
    """
    for record in records_of(store, segment.manifest, start, on_records):
        if record.offset < segment.end and wanted.takes(record):
            yield record


def _batches(store: Store, wanted: Wanted, segment: SegmentRange, start: int) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in restored_records(store, wanted, segment, start):
        if record.timestamp is None or record.timestamp <= 0:
            raise ArchiveError(
                f"{segment.manifest.source.topic}-{segment.manifest.source.partition}: the record at offset "
                f"{record.offset:,} is stamped {record.timestamp}: no producer can write that. Restore around it "
                f"with --since 1970-01-01T00:00:00.001Z"
            )
        batch.append(record)
        size += record.size_bytes
        if len(batch) >= TRANSACTION_RECORDS or size >= TRANSACTION_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _chosen(store: Store, wanted: Wanted, progress: Progress) -> list[ArchivedPartition]:
    """Return the archived partitions of the one topic id that ``wanted`` selects."""
    found, _loose = read_catalog(store, [], progress)
    by_topic = by_key((one.source.topic, one) for one in found)
    if wanted.topic not in by_topic:
        raise ArchiveError(f"the archive has no topic {wanted.topic}; it has {', '.join(sorted(by_topic)) or 'none'}")
    by_id = by_key(((one.source.cluster_id, one.source.topic_id), one) for one in by_topic[wanted.topic])
    ids = [one for one in by_id if wanted.cluster_id in (None, one[0]) and wanted.topic_id in (None, one[1])]
    if len(ids) != 1:
        named = "; ".join(f"--from-cluster {cluster} --topic-id {topic_id}" for cluster, topic_id in sorted(by_id))
        raise ArchiveError(f"the archive has {len(by_id)} topics named {wanted.topic}; choose one: {named}")
    chosen = [one for one in by_id[ids[0]] if not wanted.partitions or one.source.partition in wanted.partitions]
    if missing := sorted(set(wanted.partitions) - {one.source.partition for one in chosen}):
        raise ArchiveError(f"the archive has no records of {wanted.topic}-{missing[0]}")
    if problems := [problem for one in chosen for problem in one.problems]:
        raise ArchiveError(f"{problems[0]}; kretain archive verify lists all damage")
    return chosen


def _check_settings(
    reader: ClusterReader, wanted: Wanted, chosen: Sequence[ArchivedPartition], now_ms: int
) -> list[str]:
    """Check the target's settings; return warnings.

    Raises:
        RestoreRefusedError: the settings would change the restored records.
    """
    if isinstance(config := reader.topic_configs([wanted.target])[wanted.target], RequestFailedError):
        raise RestoreRefusedError(f"the settings of topic {wanted.target} can't be read: {config}")
    if config.timestamp_type != "CreateTime":
        raise RestoreRefusedError(
            f"topic {wanted.target} has message.timestamp.type={config.timestamp_type}: its brokers would overwrite "
            f"timestamps. Set it to CreateTime first"
        )
    warnings = []
    oldest = min((time for one in chosen if (time := one.times[0]) is not None), default=None)
    oldest = oldest if oldest is None or wanted.since_ms is None else max(oldest, wanted.since_ms)
    if config.retention_ms >= 0 and oldest is not None and oldest < now_ms - config.retention_ms:
        warnings.append(
            f"topic {wanted.target} has retention.ms={config.retention_ms}, and records to restore are older: its "
            f"brokers will delete them again soon. Set retention.ms=-1 first"
        )
    if "compact" in config.cleanup_policy:
        warnings.append(f"topic {wanted.target} is compacted: only the last record of each key will stay")
    return warnings


def _ends(
    reader: ClusterReader, wanted: Wanted, target: TopicMetadata, *, resumes: bool
) -> tuple[dict[int, int], bool]:
    """Return the log start offsets of the target's partitions, and whether all of them are empty.

    Raises:
        BrokerError: they can't be read.
        RestoreRefusedError: it is not empty, ``append`` and ``resumes`` are not set, and no groups are wanted.
    """
    leaders = {TopicPartition(wanted.target, number): one for number, one in target.partitions.items()}
    starts: dict[int, int] = {}
    empty = True
    for tp, there in reader.extents(leaders).items():
        if isinstance(there, RequestFailedError):
            raise BrokerError(f"{tp}: its offsets can't be read: {there}")
        empty = empty and there.end == there.start
        if not (empty or resumes or wanted.append or wanted.groups):
            raise RestoreRefusedError(
                f"topic {wanted.target} is not empty ({tp} has offsets {there.start:,} to {there.end:,}), and no "
                f"restore of this topic is in progress there: choose an empty one, or add to it with --append"
            )
        starts[tp.partition] = there.start
    return starts, empty


def _identity(wanted: Wanted, cluster_id: str, topic_id: str, target_cluster: str, target_id: str) -> str:
    """Return an id for this restore: another run with the same arguments has the same id, and continues it."""
    what = [cluster_id, wanted.topic, topic_id, target_cluster, wanted.target, target_id]
    which = [sorted(wanted.partitions), wanted.since_ms, wanted.until_ms]
    return hashlib.blake2b(json.dumps([what, which]).encode(), digest_size=8).hexdigest()


def _progress_text(position: int) -> str:
    return json.dumps({"kretain.restore": 1, "next": position}, separators=(",", ":"))


def _progress_of(mark: Marked, group: str) -> int:
    try:
        position = json.loads(mark.progress)["next"]
    except (ValueError, KeyError, TypeError, RecursionError):
        position = None
    if type(position) is not int or position < 0:
        raise BrokerError(f"group {group} does not show how far the restore is: another client has committed there")
    return position
