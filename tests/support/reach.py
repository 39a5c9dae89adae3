"""What sources of floors reach in tests of their own: a clock that stands still, and a cluster that is not asked."""

from __future__ import annotations

from dataclasses import dataclass

from retention_cli.brokers.metadata import ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.clock import Clock
from retention_cli.observe.floors.sources.interface import Reach


@dataclass
class StillClock(Clock):
    """It is always ``now_ms``."""

    now_ms: int

    def wall_ms(self) -> int:
        return self.now_ms


def reach_at(now_ms: int) -> Reach:
    return Reach(
        ClusterReader(ConnectionSettings("not-asked:9092"), clock=StillClock(now_ms)),
        ClusterMetadata("c", frozenset(), {}),
    )
