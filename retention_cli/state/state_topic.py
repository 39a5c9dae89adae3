"""The topic ``_kretain_state`` on a real cluster: what the shared ledger reads and writes (docs/memory.md)."""

from __future__ import annotations

from collections.abc import Sequence

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Range
from retention_cli.brokers.writer import ClusterWriter
from retention_cli.core.model import TopicPartition
from retention_cli.memory.shared_topic import STATE_TOPIC, Extent, Placed, SharedTopicError, Stored
from retention_cli.state.own_topics import look_at, read_stored, wrong_settings


class StateTopic:
    """A :class:`retention_cli.memory.shared_topic.SharedTopic`. It writes to that topic only."""

    def __init__(self, reader: ClusterReader) -> None:
        self._reader = reader
        self._writer = ClusterWriter(reader.settings, {STATE_TOPIC}, reader.timeout_s)

    def check(self) -> None:
        """Check that the topic keeps its messages, and that brokers stamp them."""
        self.extent()  # its error for a missing topic is clearer than that of the settings
        config = self._reader.topic_configs([STATE_TOPIC])[STATE_TOPIC]
        if isinstance(config, RequestFailedError):
            raise SharedTopicError(f"the settings of topic {STATE_TOPIC} can't be read: {config}")
        if (problem := wrong_settings(STATE_TOPIC, config)) is not None:
            raise SharedTopicError(problem)

    def extent(self) -> Extent:
        """Return where the topic begins and ends now."""
        try:
            topic = look_at(self._reader, STATE_TOPIC)
        except BrokerError as error:
            raise SharedTopicError(str(error)) from None
        if len(topic.ranges) != 1:
            raise SharedTopicError(f"topic {STATE_TOPIC} must have one partition: kretain init says how to mend that")
        (there,) = topic.ranges.values()
        return Extent(topic.topic_id or "", there.start, there.end)

    def read(self, start: int, end: int) -> Sequence[Stored]:
        """Return the messages of these offsets, in order."""
        try:
            return read_stored(self._reader, {TopicPartition(STATE_TOPIC, 0): Range(start, end)})
        except BrokerError as error:
            raise SharedTopicError(str(error)) from None

    def append(self, messages: Sequence[tuple[bytes, bytes | None]]) -> Sequence[Placed | SharedTopicError]:
        """Append messages (key and value), in order; return the place of each, or its error."""
        found: list[Placed | SharedTopicError] = []
        for one in self._writer.append_all(STATE_TOPIC, messages):
            if isinstance(one, BrokerError):
                found.append(SharedTopicError(str(one)))
            else:  # check() refuses a topic that its brokers don't stamp
                found.append(Placed(one.offset, one.broker_ms or 0))
        return found

    def connect(self) -> None:
        """Connect in the background, to append later."""
        self._writer.connect()

    def close(self) -> None:
        """Close the connections."""
        self._writer.close()
