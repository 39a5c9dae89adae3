"""Calculate how long a broker keeps data, at most and in normal traffic (docs/rules.md, Worked cases). Pure.

A broker deletes whole segments. A segment is deleted when its newest record is older than ``retention.ms``, or when
the log without it still has ``retention.bytes``. The active segment grows until it is ``segment.ms`` old or
``segment.bytes`` large, so its oldest record is kept that much longer than its newest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from retention_cli.advise.facts import PartitionState, TopicSettings, TopicState
from retention_cli.advise.format import HOUR, MINUTE
from retention_cli.advise.sure import or_unknown, sure
from retention_cli.core.model import Maybe, Unknown

CLOCK_DIFFERENCE_MS: Final = MINUTE
"""A timestamp no more than this ahead of now may only mean that two clocks differ (G8)."""


@dataclass(frozen=True, slots=True)
class AtMost:
    """The parts of the longest time that a broker with steady writes can keep a record (ms).

    ``ahead_ms`` is how far ahead of now the newest timestamp is: its segment is kept that much longer.
    ``check_interval_ms`` may pass until the broker finds the segment expired, and ``delete_delay_ms`` passes until
    the files are deleted.
    """

    retention_ms: int
    segment_ms: int
    ahead_ms: int
    check_interval_ms: Maybe[int]
    delete_delay_ms: Maybe[int]

    @property
    def settings_ms(self) -> int:
        """The time by the topic's settings and timestamps: ``retention.ms + segment.ms``, plus ``ahead_ms``."""
        return self.retention_ms + self.segment_ms + self.ahead_ms

    @property
    def readable_ms(self) -> Maybe[int]:
        """The time until consumers can't read the record any longer."""
        return _sum(self.settings_ms, self.check_interval_ms)

    @property
    def on_disk_ms(self) -> Maybe[int]:
        """The time until the record's bytes are deleted from disk."""
        return _sum(self.settings_ms, self.check_interval_ms, self.delete_delay_ms)


@dataclass(frozen=True, slots=True)
class Normal:
    """The age of a segment's youngest and oldest record when it is deleted, at the measured rate (ms).

    ``by`` is ``"time"`` if ``retention.ms`` takes effect first, ``"size"`` if ``retention.bytes`` does. The broker's
    check interval is not included.
    """

    least_ms: int
    most_ms: int
    by: Literal["time", "size"]


Forever = Literal["forever"]
Usual = Normal | Literal["forever", "idle"]
"""``idle``: no writes in the last day; everything is deleted ``retention.ms`` after the newest record."""


@or_unknown
def retention_ms(topic: TopicState) -> int | None:
    """Return the broker's ``retention.ms``, None if it is unlimited or the topic is not ``cleanup.policy=delete``."""
    return sure(topic.settings.retention_ms) if sure(topic.deletes) else None


@or_unknown
def retention_bytes(topic: TopicState) -> int | None:
    """Return the broker's ``retention.bytes`` (per partition), None if unlimited or the broker does not delete."""
    return sure(topic.settings.retention_bytes) if sure(topic.deletes) else None


def ahead_ms(partitions: Iterable[PartitionState], now_ms: int) -> int:
    """Return how far ahead of now the newest known timestamp is (ms), 0 if two clocks may merely differ."""
    newest = (one.newest for one in partitions)
    ahead = max((one.time_ms - now_ms for one in newest if one is not None and not isinstance(one, Unknown)), default=0)
    return ahead if ahead > CLOCK_DIFFERENCE_MS else 0


@or_unknown
def at_most(topic: TopicState, now_ms: int) -> AtMost | Forever:
    """Return the longest that the broker keeps a record: with little traffic, when only time limits apply."""
    retention = sure(retention_ms(topic))
    if retention is None:
        return "forever"
    segment, ahead = sure(topic.settings.segment_ms), ahead_ms(topic.partitions, now_ms)
    return AtMost(retention, segment, ahead, topic.check_interval_ms, topic.settings.delete_delay_ms)


@or_unknown
def roll_ms(partition: PartitionState, settings: TopicSettings) -> int:
    """Return how long a segment is active at the measured rate (ms): ``segment.ms``, or until it is full."""
    longest, rate = sure(settings.segment_ms), sure(partition.bytes_per_hour)
    return longest if rate == 0 else min(longest, round(sure(settings.segment_bytes) / rate * HOUR))


@or_unknown
def size_window_ms(partition: PartitionState, limit: int) -> int | None:
    """Return how many ms of traffic ``limit`` bytes hold at the measured rate, None if nothing is written."""
    rate = sure(partition.bytes_per_hour)
    return None if rate == 0 else round(limit / rate * HOUR)


@or_unknown
def in_normal_traffic(partition: PartitionState, topic: TopicState) -> Usual:
    """Return how old a partition's records are when they are deleted, if traffic stays as measured."""
    time, limit = sure(retention_ms(topic)), sure(retention_bytes(topic))
    if time is None and limit is None:
        return "forever"
    if sure(partition.records_per_hour) == 0:
        return "idle"
    size = None if limit is None else sure(size_window_ms(partition, limit))
    roll = sure(roll_ms(partition, topic.settings))
    if size is not None and (time is None or size < time):
        return Normal(size, size + roll, "size")
    return Normal(time, time + roll, "time") if time is not None else "forever"


def usual(topic: TopicState) -> Maybe[Usual]:
    """Return :func:`in_normal_traffic` over all partitions whose traffic is known: smallest to largest age."""
    answers = [in_normal_traffic(one, topic) for one in topic.partitions]
    spans = [one for one in answers if isinstance(one, Normal)]
    if spans:
        by: Literal["time", "size"] = "size" if any(one.by == "size" for one in spans) else "time"
        return Normal(min(one.least_ms for one in spans), max(one.most_ms for one in spans), by)
    if (unknown := next((one for one in answers if isinstance(one, Unknown)), None)) is not None:
        return unknown
    return "forever" if "forever" in answers else "idle"


@or_unknown
def _sum(*parts: Maybe[int]) -> int:
    return sum(sure(part) for part in parts)
