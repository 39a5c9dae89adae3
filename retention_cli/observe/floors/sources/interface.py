"""What a source of floors returns: its consumers' positions, or why they can't be read (F3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader

MAX_OFFSET: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1
Position = tuple[int, int]
"""Partition, and the offset of the next record that the consumer will read."""


class Consumer(NamedTuple):
    """A consumer's positions by topic, and the topics on which they are ``unreadable``, with the reason.

    ``reads`` are the topics that its live members read, None if unknown. ``unread`` are partitions of these topics on
    which it may have a position that this reading does not give: what is known of it there stays unchanged (F5).
    """

    positions: Mapping[str, Sequence[Position]]
    reads: frozenset[str] | None = frozenset()
    unreadable: Mapping[str, str] = MappingProxyType({})
    unread: frozenset[tuple[str, int]] = frozenset()

    @property
    def rows(self) -> Mapping[str, Sequence[tuple[int, int, int | None]]]:
        """Its positions in the shape of commits: without a leader epoch."""
        return {topic: [(number, at, None) for number, at in some] for topic, some in self.positions.items()}


Consumers = Mapping[str, Consumer]
"""A source's consumers by name: one for a file or a command, each group for ZooKeeper."""


class Reach(NamedTuple):
    """What a source can reach besides its own settings: the cluster, its clock, and other clusters by their contexts.

    ``metadata`` is the cluster as the caller has read it, ``topics`` are those whose floors are wanted; None for all
    that have positions.
    """

    reader: ClusterReader
    metadata: ClusterMetadata
    topics: Collection[str] | None = None


class SourceError(Exception):
    """A source can't be read, or can't be trusted. The text says what to do, and quotes no secret."""
