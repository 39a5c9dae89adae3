"""Disks, partitions and limits that forecasts are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from retention_cli.advise.facts import TopicSettings
from retention_cli.core.model import Sample, TopicPartition
from retention_cli.disks.disk import Disk, Room
from retention_cli.forecast.disks import Queued
from retention_cli.forecast.rates import Span
from tests.support.advised import SETTINGS

HOUR = 3_600_000


def limits(**values: Any) -> TopicSettings:
    """Live settings without a limit, but for these."""
    return replace(SETTINGS, **{"retention_ms": None, "segment_ms": HOUR, "check_interval_ms": 0, **values})


HERE, OTHER = TopicPartition("t", 0), TopicPartition("other", 0)


NOW = 1_000_000


def disk(used: int, *tps: TopicPartition, broker: int = 1) -> Disk:
    """A disk of 1,000 bytes; at 50 % is the ceiling."""
    return Disk(broker, ("/data",), Room(1000, used, used), dict.fromkeys(tps or (HERE,), 100))


def queued(tp: TopicPartition = HERE, *written: tuple[int, int], start: int = 0, segment: int = 0) -> Queued:
    """A partition of one byte a record: so many ms ago its log ended there."""
    return Queued(tp, [Sample(NOW - ago, end) for ago, end in written], start, Span.of(1.0), segment)
