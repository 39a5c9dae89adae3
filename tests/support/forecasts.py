"""What forecasts and advice are made of, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from retention_cli.advise.facts import DAY, HOUR, MINUTE, PartitionState, Stamp, TopicSettings, TopicState, Window
from retention_cli.core.model import Sample, TopicPartition, Unknown
from retention_cli.disks.disk import Disk, Room
from retention_cli.forecast.loss import Queued
from retention_cli.forecast.value import Span


def limits(**values: Any) -> TopicSettings:
    """Live settings without a limit, but for these."""
    return replace(SETTINGS, **{"retention_ms": None, "segment_ms": HOUR, "check_interval_ms": 0, **values})


HERE, OTHER = TopicPartition("t", 0), TopicPartition("other", 0)


LAST_LOOK = 1_000_000


def disk(used: int, *tps: TopicPartition, broker: int = 1) -> Disk:
    """A disk of 1,000 bytes; at 50 % is the ceiling."""
    return Disk(broker, ("/data",), Room(1000, used, used), dict.fromkeys(tps or (HERE,), 100))


def queued(tp: TopicPartition = HERE, *written: tuple[int, int], start: int = 0, segment: int = 0) -> Queued:
    """A partition of one byte a record: so many ms ago its log ended there."""
    return Queued(tp, [Sample(LAST_LOOK - ago, end) for ago, end in written], start, Span.of(1.0), segment)


NOW = 1_800_000_000_000
GIB = 1 << 30
UNREAD = Unknown.because("topic-settings", "TOPIC_AUTHORIZATION_FAILED")

SETTINGS = TopicSettings(
    cleanup_policy=frozenset({"delete"}),
    retention_ms=7 * DAY,
    retention_bytes=None,
    segment_ms=DAY,
    segment_bytes=GIB,
    timestamp_type="CreateTime",
    before_max_ms=None,
    after_max_ms=HOUR,
    delete_delay_ms=MINUTE,
    tiered=False,
    check_interval_ms=5 * MINUTE,
    offsets_retention_ms=7 * DAY,
)
"""Nothing is wrong with them."""


def part(number: int = 0, bytes_per_hour: int = 0, newest_ms: int | None = None, **more: Any) -> PartitionState:
    """A partition with a day of records of 100 bytes at a steady rate."""
    a_day = bytes_per_hour * 24 // 100
    values: dict[str, Any] = {
        "log_start": 1_000,
        "high_watermark": 1_000 + a_day,
        "size_bytes": a_day * 100,
        "last_hour": Window(bytes_per_hour // 100, HOUR),
        "last_day": Window(a_day, DAY),
        "newest": None if newest_ms is None else Stamp(1_000 + a_day - 1, newest_ms),
    }
    return PartitionState(number, **(values | more))


def topic(partitions: Sequence[PartitionState] | None = None, name: str = "orders", **settings: Any) -> TopicState:
    """A topic that is well but for what is said."""
    return TopicState(name, False, replace(SETTINGS, **settings), tuple([part()] if partitions is None else partitions))
