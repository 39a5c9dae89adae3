"""An operator's clock."""

from __future__ import annotations

from retention_cli.core.clock import Clock
from tests.simulation.hub import Hub
from tests.simulation.kafka import SimKafka


class SimClock(Clock):
    """An operator's clock: the cluster's, and how far it is off. Waiting lets time pass, and others act."""

    def __init__(self, kafka: SimKafka, hub: Hub) -> None:
        self.off_ms = 0
        self._kafka = kafka
        self._hub = hub

    def monotonic(self) -> float:
        return self._kafka.elapsed_s

    def since_boot(self) -> float:
        return self._kafka.elapsed_s

    def wall_ms(self) -> int:
        return self._kafka.now_ms + self.off_ms

    def sleep(self, seconds: float) -> None:
        self._hub.pause("sleep")
        self._kafka.pass_time(int(seconds * 1000))
