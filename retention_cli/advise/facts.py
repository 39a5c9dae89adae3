"""The facts that advice is based on: a topic's live settings, its measured traffic, and the retention wanted. Pure.

And what follows: how long a broker keeps data, at most and in normal traffic (docs/rules.md, Worked cases). A broker
deletes whole segments. A segment is deleted when its newest record is older than ``retention.ms``, or when the log
without it still has ``retention.bytes``. The active segment grows until it is ``segment.ms`` old or ``segment.bytes``
large, so its oldest record is kept that much longer than its newest.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from retention_cli.core.model import INFINITE_MS, Maybe, TopicFacts, Unknown, certain, or_unknown
from retention_cli.core.units import LAST_DATE_MS, format_age, format_time
from retention_cli.decide.guards import untouchable
from retention_cli.policy.settings import Settings

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
MIB: Final = 1 << 20


def span(ms: int) -> str:
    """Return a duration in its two largest units, rounded: ``1d 2h``, ``25m``, ``40s``."""
    if ms < SECOND:
        return f"{ms}ms"
    for large_ms, small_ms in itertools.pairwise((DAY, HOUR, MINUTE, SECOND)):
        rounded = (ms + small_ms // 2) // small_ms * small_ms
        if rounded >= large_ms:
            return format_age(rounded)
    return f"{round(ms / SECOND)}s"


def moment(ms: int) -> str:
    """Return a moment in Unix ms as ISO 8601 in UTC, to the second; only its year if that is beyond 9999."""
    return f"the year {1970 + ms // 31_556_952_000:,}" if ms > LAST_DATE_MS else format_time(max(0, ms) // 1000 * 1000)


CLOCK_DIFFERENCE_MS: Final = MINUTE
"""A timestamp no more than this ahead of now may only mean that two clocks differ (G8)."""
SMALLEST_SEGMENT_BYTES: Final = MIB
"""Brokers from 4.x on accept no smaller ``segment.bytes``."""

WantedBy = Literal["--want", "policy", "retention.ms"]
_FIELDS: Final = {
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "segment.ms": "segment_ms",
    "segment.bytes": "segment_bytes",
    "message.timestamp.after.max.ms": "after_max_ms",
}
"""The settings that advice may change, and their fields in :class:`TopicSettings`."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic's live settings, each known or unknown by itself. None, where a field allows it, means no limit.

    ``before_max_ms`` and ``after_max_ms`` are how far a record's own timestamp may be before and after the
    broker's clock (``message.timestamp.before.max.ms``, ``….after.max.ms``). ``tiered``: old segments are in
    remote storage (``remote.storage.enable``).

    Of its brokers, ``check_interval_ms`` is how often they look for expired segments (the longest of those with a
    replica), ``offsets_retention_ms`` how long a stopped group's commits are kept (the shortest of all brokers;
    None: they never expire).
    """

    cleanup_policy: Maybe[frozenset[str]]
    retention_ms: Maybe[int | None]
    retention_bytes: Maybe[int | None]
    segment_ms: Maybe[int]
    segment_bytes: Maybe[int]
    timestamp_type: Maybe[str]
    before_max_ms: Maybe[int | None]
    after_max_ms: Maybe[int | None]
    delete_delay_ms: Maybe[int]
    tiered: Maybe[bool]
    check_interval_ms: Maybe[int]
    offsets_retention_ms: Maybe[int | None]

    @property
    @or_unknown
    def deletes(self) -> bool:
        """Whether the broker deletes by time and size at all."""
        return "delete" in certain(self.cleanup_policy)


class Stamp(NamedTuple):
    """An offset, and the timestamp of the record there (Unix ms)."""

    offset: int
    time_ms: int


class Window(NamedTuple):
    """How many records have a timestamp within the last ``covers_ms`` milliseconds."""

    records: int
    covers_ms: int


@or_unknown
def measured(
    log_start: Maybe[int],
    high_watermark: Maybe[int],
    first_since: Maybe[Stamp | None],
    newest: Maybe[Stamp | None],
    now_ms: int,
    length_ms: int,
) -> Window:
    """Return how many records a partition received since a moment, ``length_ms`` before now.

    If the log begins after the moment, the window covers only the log.

    Args:
        log_start: S.
        high_watermark: H, read before ``first_since`` and ``newest`` were.
        first_since: the first record at or after the moment, as returned by the broker; None if it returned none. That
            does not prove that there is none (docs/rules.md, Look-ups), unless ``newest`` confirms it.
        newest: the record with the largest timestamp.
        now_ms: now (Unix ms).
        length_ms: how long ago the moment was.
    """
    start, end = certain(log_start), certain(high_watermark)
    none = Window(0, length_ms)
    if start >= end:
        return none
    if (first := certain(first_since)) is None:
        if isinstance(newest, Stamp) and newest.time_ms < now_ms - length_ms:
            return none
        return certain(
            Unknown.because("traffic", "the broker has no record that young, and does not report its newest record")
        )
    if first.offset > start:
        return Window(max(0, end - first.offset), length_ms)
    covers = min(length_ms, now_ms - first.time_ms)
    if start == 0:  # nothing was deleted yet: the topic is younger than the moment
        return Window(end, max(covers, HOUR))
    if covers < MINUTE:
        return certain(Unknown.because("traffic", "the log covers less than a minute"))
    return Window(end - start, covers)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's log ends, its leader replica's size, its traffic, and its newest record by time (None: none)."""

    number: int
    log_start: Maybe[int]
    high_watermark: Maybe[int]
    size_bytes: Maybe[int]
    last_hour: Maybe[Window]
    last_day: Maybe[Window]
    newest: Maybe[Stamp | None]

    @property
    @or_unknown
    def records_per_hour(self) -> float:
        """The mean over the last day, or over the last hour if the day's is unknown."""
        window = certain(self.last_hour if isinstance(self.last_day, Unknown) else self.last_day)
        return window.records * HOUR / window.covers_ms

    @property
    @or_unknown
    def bytes_per_hour(self) -> float:
        """:attr:`records_per_hour` in bytes on disk, assuming records of equal size."""
        if (rate := certain(self.records_per_hour)) == 0:
            return 0.0
        return rate * certain(self.size_bytes) / max(1, certain(self.high_watermark) - certain(self.log_start))


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic: its settings and its partitions."""

    name: str
    internal: bool
    settings: TopicSettings
    partitions: tuple[PartitionState, ...]

    def untouched(self, policy: Settings) -> bool:
        """Whether kretain never touches the topic under a policy, or can't tell (G5)."""
        facts = TopicFacts(self.name, "", self.internal, self.settings.cleanup_policy, INFINITE_MS)
        return untouchable(facts, policy) is not None

    def changed(self, changes: Mapping[str, int]) -> TopicState:
        """Return the topic with these settings in place of the live ones. Keys are Kafka's names."""
        fields = {_FIELDS[key]: value for key, value in changes.items()}
        return replace(self, settings=replace(self.settings, **fields))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class AtMost:
    """The parts of the longest time that a broker with steady writes can keep a record (ms).

    ``ahead_ms`` is how far ahead of now the newest known timestamp is: its segment is kept that much longer. It is 0
    if two clocks may merely differ.
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
    @or_unknown
    def readable_ms(self) -> int:
        """The time until consumers can't read the record any longer."""
        return self.settings_ms + certain(self.check_interval_ms)

    @property
    @or_unknown
    def on_disk_ms(self) -> int:
        """The time until the record's bytes are deleted from disk."""
        return certain(self.readable_ms) + certain(self.delete_delay_ms)


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
    return certain(topic.settings.retention_ms) if certain(topic.settings.deletes) else None


@or_unknown
def retention_bytes(topic: TopicState) -> int | None:
    """Return the broker's ``retention.bytes`` (per partition), None if unlimited or the broker does not delete."""
    return certain(topic.settings.retention_bytes) if certain(topic.settings.deletes) else None


@or_unknown
def at_most(topic: TopicState, now_ms: int) -> AtMost | Forever:
    """Return the longest that the broker keeps a record: with little traffic, when only time limits apply."""
    if (retention := certain(retention_ms(topic))) is None:
        return "forever"
    segment, newest = certain(topic.settings.segment_ms), (one.newest for one in topic.partitions)
    ahead = max((one.time_ms - now_ms for one in newest if isinstance(one, Stamp)), default=0)
    return AtMost(
        retention,
        segment,
        ahead if ahead > CLOCK_DIFFERENCE_MS else 0,
        topic.settings.check_interval_ms,
        topic.settings.delete_delay_ms,
    )


@or_unknown
def roll_ms(partition: PartitionState, settings: TopicSettings) -> int:
    """Return how long a segment is active at the measured rate (ms): ``segment.ms``, or until it is full."""
    longest, rate = certain(settings.segment_ms), certain(partition.bytes_per_hour)
    return longest if rate == 0 else min(longest, round(certain(settings.segment_bytes) / rate * HOUR))


@or_unknown
def size_window_ms(partition: PartitionState, limit: int) -> int | None:
    """Return how many ms of traffic ``limit`` bytes hold at the measured rate, None if nothing is written."""
    rate = certain(partition.bytes_per_hour)
    return None if rate == 0 else round(limit / rate * HOUR)


@or_unknown
def in_normal_traffic(partition: PartitionState, topic: TopicState) -> Usual:
    """Return how old a partition's records are when they are deleted, if traffic stays as measured."""
    time, limit = certain(retention_ms(topic)), certain(retention_bytes(topic))
    if time is None and limit is None:
        return "forever"
    if certain(partition.records_per_hour) == 0:
        return "idle"
    size = None if limit is None else certain(size_window_ms(partition, limit))
    roll = certain(roll_ms(partition, topic.settings))
    if size is not None and (time is None or size < time):
        return Normal(size, size + roll, "size")
    return Normal(time, time + roll, "time") if time is not None else "forever"


def usual(topic: TopicState) -> Maybe[Usual]:
    """Return :func:`in_normal_traffic` over all partitions whose traffic is known: smallest to largest age."""
    answers = [in_normal_traffic(one, topic) for one in topic.partitions]
    if spans := [one for one in answers if isinstance(one, Normal)]:
        by: Literal["time", "size"] = "size" if any(one.by == "size" for one in spans) else "time"
        return Normal(min(one.least_ms for one in spans), max(one.most_ms for one in spans), by)
    if (unknown := next((one for one in answers if isinstance(one, Unknown)), None)) is not None:
        return unknown
    return "forever" if "forever" in answers else "idle"


@dataclass(frozen=True, slots=True)
class Demand:
    """What the operator and the policy want, each None if not given.

    ``keep_ms`` is how long data should be kept, ``topic_bytes`` how large the topic may become (one replica of each
    partition).
    ``least_segment_ms`` is the smallest ``segment.ms`` that may be advised: managed clusters often require a day.
    ``policy`` is the topic's policy, None if it has none.
    """

    keep_ms: int | None = None
    topic_bytes: int | None = None
    least_segment_ms: int = MINUTE
    policy: Settings | None = None

    @property
    def consumed_after_ms(self) -> int | None:
        """R1's T, if the policy enables R1."""
        return None if self.policy is None else self.policy.consumed_after_ms

    @property
    def forced_age_ms(self) -> int | None:
        """R4's A: the operator's value, else the policy's, else None."""
        if self.keep_ms is not None:
            return self.keep_ms
        return None if self.policy is None else self.policy.forced_age_ms

    @property
    def forced_age_by(self) -> str:
        """What sets :attr:`forced_age_ms`, in words."""
        return "the policy's retention.ms" if self.keep_ms is None else "--want"


def wanted(topic: TopicState, demand: Demand) -> tuple[Maybe[int | None], WantedBy]:
    """Return how long data should be kept (None: forever), and which source that comes from."""
    if demand.keep_ms is not None:
        return demand.keep_ms, "--want"
    if demand.forced_age_ms is not None:
        return demand.forced_age_ms, "policy"
    return retention_ms(topic), "retention.ms"


@or_unknown
def needed_ms(topic: TopicState, demand: Demand) -> int | None:
    """Return how long size limits must keep a record: as long as wanted, and until R1 may act (None: no minimum)."""
    keep = certain(wanted(topic, demand)[0])
    return demand.consumed_after_ms if keep is None else max(keep, demand.consumed_after_ms or 0)
