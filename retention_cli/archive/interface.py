"""The interface between a trim and its archiver: a verified copy per partition, or the reason for none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from retention_cli.archive.layout import ArchiveError, Manifest, Source
from retention_cli.archive.positions import Positions, keep
from retention_cli.archive.sealing import Keys
from retention_cli.archive.store import Store
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.core.progress import Progress
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
        sealed = {tp: ids for tp in copied if (ids := self._sealed.get(tp))}
        if not sealed:
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
        topic_id = target.decision.topic_id
        if topic_id is None:
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
