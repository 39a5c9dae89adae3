"""A cluster's managed partitions in columns, as the first metadata read named them: some 20 bytes each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from retention_cli.core.model import TopicPartition
from retention_cli.engines.spark.packing import NO_BROKER, Piece, share
from retention_cli.observe.floors.fold import TopicScope


@dataclass(frozen=True, slots=True)
class Places:
    """The partitions in the order of a plan: by topic and number. A partition's position is its index in it.

    Topic ``names[n]`` has the positions from ``first[n]`` to ``first[n + 1]``.
    """

    cluster: str
    names: Sequence[str]
    ids: Sequence[str | None]
    internal: Sequence[bool]
    first: Sequence[int]
    numbers: Any
    leaders: Any
    epochs: Any

    @classmethod
    def of(cls, metadata: ClusterMetadata, names: Collection[str]) -> Places:
        """Return the partitions of these topics."""
        topics = [metadata.topics[name] for name in sorted(names)]
        rows = [
            (number, NO_BROKER if one.leader is None else one.leader, one.leader_epoch)
            for topic in topics
            for number, one in sorted(topic.partitions.items())
        ]
        first = [0]
        for topic in topics:
            first.append(first[-1] + len(topic.partitions))
        numbers, leaders, epochs = np.array(rows, np.int32).reshape(-1, 3).T.copy()
        ids, internal = [one.topic_id for one in topics], [one.internal for one in topics]
        return cls(metadata.cluster_id, [one.name for one in topics], ids, internal, first, numbers, leaders, epochs)

    def __len__(self) -> int:
        return len(self.numbers)

    def by_leader(self) -> dict[tuple[str, int], int]:
        """Return how many partitions each leader has, by cluster and broker."""
        brokers, counts = np.unique(self.leaders, return_counts=True)
        return {(self.cluster, int(broker)): int(count) for broker, count in zip(brokers, counts, strict=True)}

    def of_piece(self, piece: Piece) -> Any:
        """Return the positions that a piece has, in order."""
        led = np.flatnonzero(self.leaders == piece.broker)
        part = share(len(led), piece.part, piece.parts)
        return led[part.start : part.stop]

    def tasks(self, numbers: Mapping[Piece, int]) -> Any:
        """Return the task that reads each position; ``numbers`` are those of the pieces."""
        found = np.full(len(self), -1, np.int32)
        for piece, number in numbers.items():
            if piece.cluster == self.cluster:
                found[self.of_piece(piece)] = number
        return found

    def by_topic(self, positions: Any) -> Iterator[tuple[int, Any]]:
        """Yield each topic's index with its part of the positions, which are in order."""
        at = 0
        while at < len(positions):
            topic = bisect_right(self.first, int(positions[at])) - 1
            end = int(np.searchsorted(positions, self.first[topic + 1]))
            yield topic, positions[at:end]
            at = end

    def metadata(self, positions: Any = None) -> ClusterMetadata:
        """Return the metadata of these positions, or of all."""
        topics: dict[str, TopicMetadata] = {}
        for topic, some in self.by_topic(np.arange(len(self)) if positions is None else positions):
            name, columns = self.names[topic], (self.numbers[some], self.leaders[some], self.epochs[some])
            partitions = {
                number: PartitionMetadata(None if leader == NO_BROKER else leader, epoch)
                for number, leader, epoch in zip(*(one.tolist() for one in columns), strict=True)
            }
            topics[name] = TopicMetadata(name, self.ids[topic], self.internal[topic], partitions)
        return ClusterMetadata(self.cluster, frozenset(), topics)

    def tps(self, positions: Any) -> list[TopicPartition]:
        """Return the partitions at these positions."""
        return [
            TopicPartition(self.names[topic], number)
            for topic, some in self.by_topic(positions)
            for number in self.numbers[some].tolist()
        ]

    def scopes(self, topics: Collection[str], require: Mapping[str, tuple[str, ...]]) -> dict[str, TopicScope]:
        """Return what a fold must know of these topics; ``require`` are the groups that some of them require (F4)."""
        found = {}
        for topic, name in enumerate(self.names):
            some = self.topic(topic)
            if name in topics and some.start < some.stop:
                epochs = np.full(int(self.numbers[some].max()) + 1, -1)
                epochs[self.numbers[some]] = self.epochs[some]
                found[name] = TopicScope(epochs.tolist(), require.get(name, ()))
        return found

    @property
    def keys(self) -> Any:
        """What a topic's index and a partition's number come to at each position: they rise."""
        return np.repeat(np.arange(len(self.names)) << 32, np.diff(self.first)) | self.numbers

    def topic(self, index: int) -> slice:
        """Return the positions of a topic, by its index."""
        return slice(self.first[index], self.first[index + 1])

    def index(self, topic: str) -> int | None:
        """Return a topic's index, None if it is not among them."""
        index = bisect_left(self.names, topic)
        return index if index < len(self.names) and self.names[index] == topic else None

    def position(self, topic: str, number: int) -> int | None:
        """Return a partition's position, None if it is not among them."""
        if (index := self.index(topic)) is None:
            return None
        some = self.topic(index)
        at = some.start + int(np.searchsorted(self.numbers[some], number))
        return at if at < some.stop and self.numbers[at] == number else None
