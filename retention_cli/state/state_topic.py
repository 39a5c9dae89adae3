"""The topic ``_kretain_state`` on a real cluster: what the shared ledger reads and writes (docs/memory.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Range
from retention_cli.brokers.writer import Appended, ClusterWriter
from retention_cli.core.model import TopicPartition
from retention_cli.state.own_topics import STATE_TOPIC, Stored, look_at, read_stored, wrong_settings


class Extent(NamedTuple):
    """The topic's current id, first offset, and end offset (exclusive)."""

    topic_id: str
    start: int
    end: int


class StateTopic:
    """The topic, of one partition, compacted, and stamped by its brokers. It writes to that topic only."""

    def __init__(self, reader: ClusterReader) -> None:
        self._reader = reader
        self._writer = ClusterWriter(reader.settings, {STATE_TOPIC}, reader.timeout_s)

    def check(self) -> None:
        """Check that the topic keeps its messages, and that brokers stamp them.

        Raises:
            BrokerError: it does not, or they don't; or that can't be read.
        """
        self.extent()  # its error for a missing topic is clearer than that of the settings
        config = self._reader.topic_configs([STATE_TOPIC])[STATE_TOPIC]
        if isinstance(config, RequestFailedError):
            raise BrokerError(f"the settings of topic {STATE_TOPIC} can't be read: {config}")
        if (problem := wrong_settings(STATE_TOPIC, config)) is not None:
            raise BrokerError(problem)

    def extent(self) -> Extent:
        """Return where the topic begins and ends now.

        Raises:
            BrokerError: it does not exist, has several partitions, or can't be read.
        """
        topic = look_at(self._reader, STATE_TOPIC)
        if len(topic.ranges) != 1:
            raise BrokerError(f"topic {STATE_TOPIC} must have one partition: kretain cluster init shows how to fix it")
        (there,) = topic.ranges.values()
        return Extent(topic.topic_id or "", there.start, there.end)

    def read(self, start: int, end: int) -> list[Stored]:
        """Return the messages of these offsets, in order.

        Raises:
            BrokerError: not all of them could be read.
        """
        return read_stored(self._reader, {TopicPartition(STATE_TOPIC, 0): Range(start, end)})

    def append(self, messages: Sequence[tuple[bytes, bytes | None]]) -> list[Appended | BrokerError]:
        """Append messages (key and value), in order; return the place of each, or its error."""
        return self._writer.append_all(STATE_TOPIC, messages)

    def connect(self) -> None:
        """Connect in the background, to append later."""
        self._writer.connect()

    def close(self) -> None:
        """Close the connections."""
        self._writer.close()
