"""The interface between a trim and its archiver: a verified copy per partition, or the reason for none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.core.progress import Progress
from retention_cli.plan.target import Target


@dataclass(frozen=True, slots=True)
class Copied:
    """A partition's records from ``start`` to ``end`` (exclusive) are stored at ``url``, and were read back.

    ``manifests`` are the manifests' paths there, ``records`` is the number of records. ``notes`` are known oddities.
    """

    url: str
    topic_id: str
    start: int
    end: int
    records: int
    manifests: tuple[str, ...]
    notes: tuple[str, ...] = ()


Copies = Mapping[TopicPartition, Copied | Reason]
"""The result for each partition that was to be copied."""


class Archiver(Protocol):
    """Copies records before they are trimmed. It changes nothing in a cluster."""

    def copy(
        self, wanted: Mapping[TopicPartition, tuple[str, Target]], progress: Progress
    ) -> dict[TopicPartition, Copied | Reason]:
        """Copy each partition's records up to its target to its URL; return the copy, or why there is none."""
        ...

    def differing(
        self, copied: Collection[TopicPartition], leaders: Mapping[TopicPartition, PartitionMetadata]
    ) -> dict[TopicPartition, Reason]:
        """Return the copied partitions whose log may have been replaced since, each with the reason."""
        ...


ArchiverFor = Callable[[ClusterReader, str], Archiver]
"""Creates the archiver for a reader's cluster, given the cluster's id."""
