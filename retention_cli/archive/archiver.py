"""Archive the records that a trim is about to delete, partition by partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from retention_cli.archive.interface import Archived, Archiver, failed
from retention_cli.archive.layout import ArchiveError
from retention_cli.archive.segment import check_unchanged
from retention_cli.archive.writer import SegmentSize, archive_range
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.core.extras import MissingPartError
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.core.progress import Progress
from retention_cli.plan.target import Target


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
        whole = sum(target.records for _url, target in wanted.values())
        before = 0
        result: dict[TopicPartition, Archived | Reason] = {}
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
        found = Archiver.differing(self, copied, leaders)
        for tp in self._done.keys() & copied:  # one of its new segments may be gone: somebody deletes there
            done = self._done[tp]
            try:
                for one in done.written:
                    check_unchanged(self.store(done.url), one)
            except ArchiveError as error:
                text = f"{tp} was archived, and is held: {error}. Run again: it is archived anew"
                found[tp] = Reason("archive", text)
        return found

    def _copy(
        self, tp: TopicPartition, url: str, target: Target, on_records: Callable[[int], None]
    ) -> Archived | Reason:
        source = self.source(tp, target)
        if isinstance(source, Reason):
            return source
        try:
            done = archive_range(self.reader, self.store(url), source, target.offset, self.clock, self.size, on_records)
        except (ArchiveError, MissingPartError) as error:
            return failed(tp, url, error)
        self.note(tp, done, done.start)
        self._done[tp] = done
        return done
