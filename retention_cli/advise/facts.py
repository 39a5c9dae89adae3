"""The facts that advice is based on: a topic's live settings and its measured traffic. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from retention_cli.advise.format import HOUR, MINUTE
from retention_cli.advise.sure import or_unknown, sure
from retention_cli.core.model import INFINITE_MS, Maybe, TopicFacts, Unknown
from retention_cli.decide.guards import untouchable
from retention_cli.policy.settings import Settings

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

    def changed(self, changes: Mapping[str, int]) -> TopicSettings:
        """Return the settings with these values in place of the live ones. Keys are Kafka's names."""
        fields: dict[str, int] = {_FIELDS[key]: value for key, value in changes.items()}
        return replace(self, **fields)  # type: ignore[arg-type]


class Stamp(NamedTuple):
    """An offset, and the timestamp of the record there (Unix ms)."""

    offset: int
    time_ms: int


class Window(NamedTuple):
    """How many records have a timestamp within the last ``covers_ms`` milliseconds."""

    records: int
    covers_ms: int


class Ago(NamedTuple):
    """The moment ``length_ms`` before now."""

    now_ms: int
    length_ms: int

    @property
    def since_ms(self) -> int:
        """The moment, in Unix ms."""
        return self.now_ms - self.length_ms


def measured(start: int, end: int, first: Maybe[Stamp | None], newest: Maybe[Stamp | None], ago: Ago) -> Maybe[Window]:
    """Return how many records a partition received since a moment.

    If the log begins after the moment, the window covers only the log.

    Args:
        start: log start offset.
        end: high watermark, read before ``first`` and ``newest`` were.
        first: the first record at or after the moment, as returned by the broker; None if it returned none. That does
            not prove that there is none (docs/rules.md, Look-ups), unless ``newest`` confirms it.
        newest: the record with the largest timestamp.
        ago: the moment.
    """
    if start >= end:
        return Window(0, ago.length_ms)
    if isinstance(first, Unknown):
        return first
    if first is None:
        if not isinstance(newest, Unknown) and newest is not None and newest.time_ms < ago.since_ms:
            return Window(0, ago.length_ms)
        return Unknown.because("traffic", "the broker names no record so young, nor its newest one")
    if first.offset > start:
        return Window(max(0, end - first.offset), ago.length_ms)
    covers = min(ago.length_ms, ago.now_ms - first.time_ms)
    if start == 0:  # nothing was deleted yet: the topic is younger than the moment
        return Window(end, max(covers, HOUR))
    if covers < MINUTE:
        return Unknown.because("traffic", "the log covers less than a minute")
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
    def records_per_hour(self) -> Maybe[float]:
        """The mean over the last day, or over the last hour if the day's is unknown."""
        window = self.last_hour if isinstance(self.last_day, Unknown) else self.last_day
        if isinstance(window, Unknown):
            return window
        return window.records * HOUR / window.covers_ms

    @property
    def bytes_per_hour(self) -> Maybe[float]:
        """:attr:`records_per_hour` in bytes on disk, assuming records of equal size."""
        return _bytes_per_hour(self)


@or_unknown
def _bytes_per_hour(one: PartitionState) -> float:
    rate = sure(one.records_per_hour)
    if rate == 0:
        return 0.0
    return rate * sure(one.size_bytes) / max(1, sure(one.high_watermark) - sure(one.log_start))


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic: its settings, those of its brokers, and its partitions.

    ``check_interval_ms`` is how often a broker looks for expired segments (the longest of the brokers with a replica),
    ``offsets_retention_ms`` how long a stopped group's commits are kept (the shortest of all brokers).
    """

    name: str
    internal: bool
    settings: TopicSettings
    check_interval_ms: Maybe[int]
    offsets_retention_ms: Maybe[int]
    partitions: tuple[PartitionState, ...]

    @property
    def deletes(self) -> Maybe[bool]:
        """Whether the broker deletes by time and size at all."""
        policy = self.settings.cleanup_policy
        return policy if isinstance(policy, Unknown) else "delete" in policy

    def untouched(self, policy: Settings) -> bool:
        """Whether kretain never touches the topic under a policy, or can't tell (G5)."""
        facts = TopicFacts(self.name, "", self.internal, self.settings.cleanup_policy, INFINITE_MS)
        return untouchable(facts, policy) is not None

    def changed(self, changes: Mapping[str, int]) -> TopicState:
        """Return the topic with these settings in place of the live ones. Keys are Kafka's names."""
        return replace(self, settings=self.settings.changed(changes))
