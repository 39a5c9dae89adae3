"""Log dirs as brokers describe them."""

from __future__ import annotations

from dataclasses import dataclass

from retention_cli.core.model import Maybe, TopicPartition
from retention_cli.policy.settings import DiskRules

ORDERS, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 0)


R6 = DiskRules(percent=50)


@dataclass
class Copy:
    tp: TopicPartition
    size_bytes: int
    future: bool = False


@dataclass
class Dir:
    path: str
    total_bytes: Maybe[int] = 1000
    usable_bytes: Maybe[int] = 400
    replicas: tuple[Copy, ...] = (Copy(ORDERS, 500),)
    error: str | None = None
