"""The cluster that the synthetic brokers answer for: where each partition is, what it holds, who has committed what."""

from __future__ import annotations

import hashlib
import time
import uuid
from bisect import bisect_left
from dataclasses import dataclass, field

from bench.seed import Shape

HOUR_MS = 3_600_000
RECORD_BYTES = 120


@dataclass
class Cluster:
    """A shape on so many brokers, one replica each. ``starts`` are the log start offsets, which DeleteRecords moves.

    ``committed`` is the offset of every commit; none has a leader epoch. ``moving`` groups commit
    again each time they are listed, as on a live cluster. On an empty log their commits stay: they belong to an earlier
    topic of that name.
    """

    shape: Shape
    brokers: int = 3
    committed: int = 3
    moving: bool = False
    cluster_id: str = "c3ludGhldGljLWJlbmNoMQ"
    then_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000 - 240 * HOUR_MS)

    def __post_init__(self) -> None:
        self.names = self.shape.names()
        self.number_of = {name: number for number, name in enumerate(self.names)}
        self.groups = self.shape.group_names()
        self.group_of = {name: number for number, name in enumerate(self.groups)}
        self.ends = [
            [self.shape.records_in(number, partition) for partition in range(self.shape.partitions_a_topic)]
            for number in range(self.shape.topics)
        ]
        self.starts = [[0] * self.shape.partitions_a_topic for _ in range(self.shape.topics)]
        self.stamps = [self.then_ms + record * HOUR_MS for record in range(self.shape.records)]
        self.left_behind = self.committed
        self.changes = 0
        self._listings = 0

    def leader(self, topic: int, partition: int) -> int:
        return (topic * self.shape.partitions_a_topic + partition) % self.brokers + 1

    def coordinator(self, group: str) -> int:
        return self.group_of[group] % self.brokers + 1

    def topic_id(self, name: str) -> uuid.UUID:
        """Return a topic's id, the same in every run."""
        return uuid.UUID(bytes=hashlib.blake2b(name.encode(), digest_size=16).digest())

    def listed(self, topic: int, partition: int, time_ms: int) -> tuple[int, int]:
        """Return the timestamp and offset that ListOffsets answers for a time or one of Kafka's sentinels."""
        start, end = self.starts[topic][partition], self.ends[topic][partition]
        if time_ms == -2:
            return -1, start
        if time_ms == -1:
            return -1, end
        if start == end:
            return -1, -1
        if time_ms == -3:
            return self.stamps[end - 1], end - 1
        found = max(start, bisect_left(self.stamps, time_ms))
        return (-1, -1) if found >= end else (self.stamps[found], found)

    def listed_groups(self) -> None:
        """Note that one broker listed its groups."""
        self._listings += 1
        if self.moving and self._listings % self.brokers == 1:
            self.committed = self.committed % (self.shape.records - 1) + 1

    def delete(self, topic: int, partition: int, offset: int) -> int | None:
        """Move a log's start; return it, None where the offset is beyond the log's end."""
        end = self.ends[topic][partition]
        wanted = end if offset == -1 else offset
        if wanted > end:
            return None
        self.starts[topic][partition] = max(self.starts[topic][partition], wanted)
        self.changes += 1
        return self.starts[topic][partition]
