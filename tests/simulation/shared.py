"""The topics that kretain itself writes to, in memory: what all share (``state: cluster``), and the brokers' time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.writer import Appended
from retention_cli.core.model import Unknown
from retention_cli.decide.guards.our_clock import compare_clocks
from retention_cli.memory import documents
from retention_cli.state.broker_clock import BrokerClock
from retention_cli.state.own_topics import Stored
from retention_cli.state.state_topic import Extent, StateTopic
from tests.simulation.hub import Hub
from tests.simulation.kafka import SimKafka


class SimStateTopic(StateTopic):
    """The shared topic in memory."""

    def __init__(self, kafka: SimKafka, hub: Hub) -> None:
        self._kafka = kafka
        self._hub = hub

    def _ask(self, call: str) -> None:
        self._hub.pause(call)
        if self._kafka.lose(call):
            raise BrokerError(f"{call}: timed out")

    def check(self) -> None:
        self._ask("state")

    def extent(self) -> Extent:
        self._ask("state")
        return Extent("state", 0, self._kafka.state_end)

    def read(self, start: int, end: int) -> list[Stored]:
        self._ask("state")
        return [one for one in self._kafka.state_messages if start <= one.offset < end]

    def append(self, messages: Sequence[tuple[bytes, bytes | None]]) -> list[Appended | BrokerError]:
        """Append; of what gets lost half is carried out, and nobody knows which."""
        self._hub.pause("state append")
        lost = self._kafka.lose("state append")
        arriving = messages[: (len(messages) + 1) // 2] if lost else messages
        placed: list[Appended | BrokerError] = [self._kafka.append_state(key, value) for key, value in arriving]
        self._hub.pause("state appended")
        return [BrokerError("timed out") for _ in messages] if lost else placed

    def connect(self) -> None:
        pass

    def close(self) -> None:
        pass


class SimBrokerClock(BrokerClock):
    """Has the brokers' time by an append to the shared topic."""

    def __init__(self, kafka: SimKafka, hub: Hub, clock_ms: Callable[[], int]) -> None:
        self.compared = False
        self._kafka = kafka
        self._hub = hub
        self._clock_ms = clock_ms

    def __exit__(self, *_: object) -> None:
        pass

    def compare(self) -> Unknown | None:
        before = self._clock_ms()
        self._hub.pause("clock")
        if self._kafka.lose("clock"):
            return Unknown.because("G8", f"no time: {RequestFailedError('timed out', retriable=True)}")
        value = documents.encode(None, documents.Written(before, 0))
        stamp = self._kafka.append_state(documents.CLOCK_KEY.encode(), value).broker_ms
        assert stamp is not None
        self.compared = True
        return compare_clocks(before, stamp, self._clock_ms())
