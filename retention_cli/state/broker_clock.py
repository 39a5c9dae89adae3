"""Compare our clock with the brokers', by appending to a topic that they stamp (G8)."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.writer import ClusterWriter
from retention_cli.core.codes import Code
from retention_cli.core.model import Unknown
from retention_cli.decide.guards.our_clock import compare_clocks
from retention_cli.state.own_topics import STATE_TOPIC

PATIENCE_S: Final = 10.0
"""How long to wait for the brokers' time (s): much shorter than a recheck stays valid."""


class BrokerClock:
    """Compares our clock with the brokers', as often as it is called. A context manager.

    ``compared``: a comparison was possible at least once.
    """

    def __init__(self, reader: ClusterReader, clock_ms: Callable[[], int]) -> None:
        self.compared = False
        self._clock_ms = clock_ms
        self._writer = ClusterWriter(reader.settings, {STATE_TOPIC}, min(reader.timeout_s, PATIENCE_S))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def compare(self) -> Unknown | None:
        """Return why our clock can't be trusted, None if it is within 60 s of the brokers'.

        If the brokers' time can't be read, that is the reason: rules that use our clock hold then.
        """
        from retention_cli.state import messages

        before = self._clock_ms()
        value = messages.encode(None, messages.Written(before, 0))
        try:
            stamp = self._writer.append(STATE_TOPIC, messages.CLOCK_KEY.encode(), value).broker_ms
        except BrokerError as error:
            return Unknown.because(Code.G8, f"the brokers' time could not be read (state: cluster): {error}")
        if stamp is None:
            text = f"the brokers don't stamp {STATE_TOPIC} (message.timestamp.type): kretain cluster init shows why"
            return Unknown.because(Code.G8, f"the brokers' time could not be read: {text}")
        self.compared = True
        return compare_clocks(before, stamp, self._clock_ms())
