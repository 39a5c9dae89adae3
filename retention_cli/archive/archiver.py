"""Archive the records that a trim is about to delete, partition by partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from retention_cli.archive.interface import Copied
from retention_cli.archive.layout import ArchiveError, Manifest, Source, place_at
from retention_cli.archive.segment import load
from retention_cli.archive.store import Store
from retention_cli.archive.writer import SegmentSize, archive_range
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.extras import MissingPartError
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.core.progress import Progress
from retention_cli.observe.lineage import other_log
from retention_cli.plan.target import Target


@dataclass(slots=True)
class LastArchived:
    """The marks (offset, leader epoch) that identify each archived partition's log right before its trim (M2)."""

    _marks: dict[TopicPartition, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def note(self, tp: TopicPartition, manifests: Iterable[Manifest], log_start: int) -> None:
        """Keep the last segment's marks from the log start on: if they match, so does everything before them."""
        last = max(manifests, key=lambda one: one.end, default=None)
        self._marks[tp] = () if last is None else tuple(mark for mark in last.marks if mark[0] >= log_start)

    def differing(
        self,
        reader: ClusterReader,
        copied: Collection[TopicPartition],
        leaders: Mapping[TopicPartition, PartitionMetadata],
    ) -> dict[TopicPartition, Reason]:
        """See :meth:`retention_cli.archive.interface.Archiver.differing`."""
        marks = {tp: self._marks[tp] for tp in copied if tp in self._marks}
        others = other_log(reader, marks, leaders)
        return {tp: Reason("archive", f"{tp} was archived, and is held: {why}") for tp, why in others.items()}


def failed(tp: TopicPartition, url: str, why: object) -> Reason:
    """Return the reason for a partition that could not be archived."""
    text = " ".join(str(why).split())
    return Reason(
        "archive",
        f"{tp} could not be archived to {url.partition('?')[0]}, so it is not trimmed: {text}. Mend that and "
        f"run again: it goes on where it stopped",
    )


def without_id(tp: TopicPartition) -> Reason:
    """Return the reason for a partition without a topic id: its records could not be attributed to one topic."""
    return Reason("archive", f"{tp} can't be archived: the cluster gives no topic id")


@dataclass(slots=True)
class PartitionArchiver:
    """Copies partitions to the archives that the policy names (:class:`retention_cli.archive.interface.Archiver`).

    Args:
        reader: the cluster, read-only.
        cluster_id: its id.
        clock: returns the current time in the manifests' format.
        size: when a segment counts as full.
    """

    reader: ClusterReader
    cluster_id: str
    clock: Callable[[], str]
    size: SegmentSize = field(default_factory=SegmentSize)
    _stores: dict[str, Store] = field(default_factory=dict)
    _written: dict[TopicPartition, tuple[Store, tuple[Manifest, ...]]] = field(default_factory=dict)
    _last: LastArchived = field(default_factory=LastArchived)

    def copy(
        self, wanted: Mapping[TopicPartition, tuple[str, Target]], progress: Progress
    ) -> dict[TopicPartition, Copied | Reason]:
        """Archive each partition up to its target. A failure becomes its Reason; the others are still archived."""
        whole = sum(target.records for _url, target in wanted.values())
        before = 0
        result: dict[TopicPartition, Copied | Reason] = {}
        progress("archiving", 0, whole)
        for tp, (url, target) in wanted.items():
            done = before

            def on_records(more: int) -> None:
                nonlocal done
                done += more
                progress("archiving", min(done, whole), whole)

            result[tp] = self._copy(tp, url, target, on_records)
            before += target.records
            progress("archiving", before, whole)
        return result

    def differing(
        self, copied: Collection[TopicPartition], leaders: Mapping[TopicPartition, PartitionMetadata]
    ) -> dict[TopicPartition, Reason]:
        """Return partitions whose log or whose archive no longer has what was archived, or that can't be checked."""
        return self._last.differing(self.reader, copied, leaders) | self._gone(copied)

    def _gone(self, copied: Collection[TopicPartition]) -> dict[TopicPartition, Reason]:
        """Return partitions one of whose new segments is no longer in the archive: somebody deletes there."""
        found: dict[TopicPartition, Reason] = {}
        for tp in copied:
            if tp not in self._written:
                continue
            store, manifests = self._written[tp]
            for one in manifests:
                try:
                    if load(store, place_at(one.source, one.start, one.end)) == one:
                        continue
                    why = f"{store.shown(one.path)} is another one than was written"
                except ArchiveError as error:
                    why = str(error)
                found[tp] = Reason("archive", f"{tp} was archived, and is held: {why}. Run again: it is archived anew")
                break
        return found

    def _copy(self, tp: TopicPartition, url: str, target: Target, on_records: Callable[[int], None]) -> Copied | Reason:
        topic_id = target.decision.topic_id
        if topic_id is None:
            return without_id(tp)
        source = Source(self.cluster_id, tp.topic, topic_id, tp.partition)
        try:
            store = self._stores[url] = self._stores.get(url) or Store(url)
            done = archive_range(self.reader, store, source, target.offset, self.clock, self.size, on_records)
        except (ArchiveError, MissingPartError) as error:
            return failed(tp, url, error)
        self._last.note(tp, done.segments, done.start)
        self._written[tp] = store, done.written
        return as_copied(url, source, done.start, done.end, done.segments, done.notes)


def as_copied(
    url: str, source: Source, start: int, end: int, segments: Collection[Manifest], notes: tuple[str, ...]
) -> Copied:
    """Return the result for a partition that is archived in these segments."""
    return Copied(
        url=url,
        topic_id=source.topic_id,
        start=start,
        end=end,
        records=sum(one.records for one in segments),
        manifests=tuple(one.path for one in segments),
        notes=notes,
    )
