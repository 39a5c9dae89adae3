"""A cluster in memory for protection: topics whose brokers delete by time and size, groups, a disk, settings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, Literal

from confluent_kafka import Message

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.errors import NotSentError, RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, LogDirState, NotFound, Replica, Spec, Wanted
from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata, TopicConfig, TopicMetadata, TopicValue
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Range, Reached
from retention_cli.brokers.writer import Appended
from retention_cli.core.model import TopicPartition
from retention_cli.state.own_topics import PROTECTED_TOPIC

CHECK_MS: Final = 60_000
RECORD: Final = 1_000
SEGMENT: Final = 5
DISK: Final = 1_000_000
DEFAULTS: Final = {
    "cleanup.policy": "delete",
    "segment.ms": "1",
    "segment.bytes": "1",
    "remote.storage.enable": "false",
}
LIMITS: Final = {"retention.ms": str(3_600_000), "retention.bytes": "-1"}


@dataclass(slots=True)
class Topic:
    """A topic of one partition: the timestamps of its records, where it starts, and its own settings.

    ``ends`` has where each earlier leader epoch ended: the log was cut there. ``away``: its leader can't be reached.
    ``late`` are its settings by the second broker, where that has not heard of a change yet.
    """

    topic_id: str
    stamps: list[int] = field(default_factory=list)
    start: int = 0
    own: dict[str, str] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    away: bool = False
    late: dict[str, str] | None = None

    @property
    def said(self) -> dict[str, str]:
        """Its own settings as one broker says that is asked alone."""
        return self.own if self.late is None else self.late

    def cut(self, end: int) -> None:
        """Lose the records from an offset on, in an unclean election."""
        self.ends.append(end)
        del self.stamps[end:]

    @property
    def size(self) -> int:
        return (len(self.stamps) - self.start) * RECORD

    def sweep(self, now_ms: int, limits: Mapping[str, str]) -> None:
        """Delete whole segments that are too old or too many, as a broker does; the last one stays by size."""
        while self.start < len(self.stamps):
            end = min(len(self.stamps), self.start + SEGMENT)
            old, most = (int(self.own.get(key, limit)) for key, limit in limits.items())
            aged = old >= 0 and max(self.stamps[self.start : end]) < now_ms - old
            if not aged and not (0 <= most <= (len(self.stamps) - end) * RECORD):
                return
            self.start = end


class ProtectKafka:
    """The cluster. ``hook`` is called while a run reads, and right before and after each append and each change."""

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000
        self.ids = itertools.count(1)
        self.topics: dict[str, Topic] = {}
        self.limits = dict(LIMITS)
        self.other_limits = self.limits
        """The defaults of a second broker, which leads nothing, and answers for topics."""
        self.names_defaults = True
        self.groups: dict[str, dict[str, int]] = {}
        self.epochs: dict[tuple[str, str], int] = {}
        """The leader epochs of groups' commits, by group and topic."""
        self.unreadable: set[str] = set()
        self.messages: list[tuple[bytes, bytes | None, int] | None] = []
        self.others = 0
        self.refused = 0
        self.cleanup = "compact"
        self.stamped: Literal["CreateTime", "LogAppendTime"] = "LogAppendTime"
        self.hidden = 0
        self.no_configs: RequestFailedError | TopicConfig | None = None
        self.hook: Callable[[str], None] = lambda _where: None
        self.altered: list[tuple[str, str, str | None]] = []

    def create(self, name: str) -> None:
        self.topics[name] = Topic(f"ID{next(self.ids):020d}")

    @property
    def used(self) -> int:
        return self.others + sum(one.size for one in self.topics.values())

    def pass_time(self, milliseconds: int) -> None:
        for _ in range(0, milliseconds, CHECK_MS):
            self.now_ms += min(CHECK_MS, milliseconds)
            for one in self.topics.values():
                one.sweep(self.now_ms, self.limits)

    def compact(self, end: int) -> None:
        """Keep the last message of each key below an offset, where the active segment begins; offsets stay."""
        last = {one[0]: at for at, one in enumerate(self.messages[:end]) if one is not None}
        self.messages = [one if at in last.values() or at >= end else None for at, one in enumerate(self.messages)]

    # -- as the engine's writer and alterer --------------------------------------------------

    def append(self, topic: str, key: bytes, value: bytes | None) -> Appended:
        assert topic == PROTECTED_TOPIC
        self.hook("append")
        self.messages.append((key, value, self.now_ms))
        at = len(self.messages) - 1
        self.hook("appended")
        return Appended(0, at, self.now_ms if self.stamped == "LogAppendTime" else None)

    def alter(self, topic: str, key: str, value: str | None, good_until: float) -> RequestFailedError | None:
        if self.now_ms / 1000 > good_until:
            return NotSentError("not sent")
        self.hook("alter")
        if self.refused:
            self.refused -= 1
            return RequestFailedError("POLICY_VIOLATION", retriable=False, answered=True)
        own = self.topics[topic].own
        if value is None:
            own.pop(key, None)
        else:
            own[key] = value
        self.altered.append((topic, key, value))
        self.hook("altered")
        return None


class ProtectReader:
    """The reader's methods that protection calls."""

    timeout_s = 1.0
    settings = SimpleNamespace(bootstrap="simulated")
    extents: Any = ClusterReader.extents

    def __init__(self, kafka: ProtectKafka) -> None:
        self._kafka = kafka
        self._waited = 0.0
        self.clock = SimpleNamespace(
            monotonic=lambda: self._waited, sleep=self._sleep, since_boot=lambda: self._kafka.now_ms / 1000
        )

    def _sleep(self, seconds: float) -> None:
        self._waited += seconds

    def check_offers(self, *_: object) -> None:
        pass

    def topic_configs(self, topics: Sequence[str]) -> dict[str, TopicConfig | RequestFailedError]:
        found = TopicConfig(frozenset({self._kafka.cleanup}), -1, self._kafka.stamped)
        return dict.fromkeys(topics, self._kafka.no_configs or found)

    def brokers(self) -> list[int]:
        return [1]

    def agree(self, brokers: frozenset[int]) -> bool:
        del brokers
        return True

    def metadata(self, topics: Collection[str] | None = None) -> ClusterMetadata:
        found = {
            name: TopicMetadata(
                name, one.topic_id, internal=False, partitions={0: PartitionMetadata(1, len(one.ends), (1,))}
            )
            for name, one in self._kafka.topics.items()
        }
        place = {0: PartitionMetadata(1, 0, (1,))}
        found[PROTECTED_TOPIC] = TopicMetadata(PROTECTED_TOPIC, "own", internal=False, partitions=place)
        chosen = {name: one for name, one in found.items() if topics is None or name in topics}
        return ClusterMetadata("simulated", frozenset([1]), chosen)

    def topic_values(self, topics: Sequence[str], keys: Sequence[str]) -> dict[str, dict[str, str]]:
        known = {name: {**DEFAULTS, **self._kafka.other_limits, **self._kafka.topics[name].own} for name in topics}
        return {name: {key: value for key, value in one.items() if key in keys} for name, one in known.items()}

    def own_values(self, topics: Sequence[str], keys: Sequence[str]) -> dict[str, dict[str, TopicValue]]:
        self._kafka.hook("look")
        own, defaults = {name: self._kafka.topics[name].said for name in topics}, self._kafka.other_limits
        return {
            name: {key: TopicValue(own[name].get(key, defaults[key]), key in own[name]) for key in keys} for name in own
        }

    def values_everywhere(self, topic: str, keys: Sequence[str]) -> dict[str, frozenset[TopicValue]]:
        if topic != PROTECTED_TOPIC:
            self._kafka.hook("look")
            limits, one = self._kafka.other_limits, self._kafka.topics[topic]
            return {
                key: frozenset(TopicValue(own.get(key, limits[key]), key in own) for own in (one.own, one.said))
                for key in keys
            }
        if not self._kafka.names_defaults:
            return {key: frozenset({TopicValue("1", own=True)}) for key in keys}
        both = (self._kafka.limits, self._kafka.other_limits)
        return {key: frozenset(TopicValue(one[key], own=False) for one in both) for key in keys}

    def broker_values(self, brokers: Sequence[int], keys: Sequence[str]) -> dict[int, dict[str, str]]:
        return {broker: dict.fromkeys(keys, str(CHECK_MS)) for broker in brokers}

    def read_commits(self, names: Sequence[str], on_group: Callable[[Any], None]) -> None:
        for name in names:
            if name in self._kafka.unreadable:
                on_group(CommitsUnknown(name, "its coordinator is away", None))
            else:
                at, epochs = self._kafka.groups.get(name, {}), self._kafka.epochs
                rows = {topic: [(0, offset, epochs.get((name, topic)))] for topic, offset in at.items()}
                on_group(GroupCommits(name, rows))

    def epoch_ends(
        self, wanted: Sequence[tuple[TopicPartition, int]], _leaders: object
    ) -> dict[tuple[TopicPartition, int], Found]:
        return {(tp, epoch): Found(min(self._kafka.topics[tp.topic].ends[epoch:])) for tp, epoch in wanted}

    def search_records(self, searches: Mapping[TopicPartition, Any], _seconds: float) -> dict[TopicPartition, Reached]:
        stamps = {tp: self._kafka.topics[tp.topic].stamps for tp in searches}
        return {
            tp: Reached(one.start, stopped=False, timestamp=stamps[tp][one.start], record=one.start)
            for tp, one in searches.items()
        }

    def list_offsets(self, wanted: Sequence[Wanted], _leaders: object) -> list[dict[TopicPartition, Answer]]:
        return [{tp: self._answer(tp.topic, spec) for tp, spec in one.items()} for one in wanted]

    def _answer(self, name: str, spec: Spec) -> Answer:
        if name == PROTECTED_TOPIC:
            stable = len(self._kafka.messages) - self._kafka.hidden
            return Found({"earliest": 0, "last-stable": stable}.get(str(spec), len(self._kafka.messages)))
        one = self._kafka.topics[name]
        if one.away:
            return RequestFailedError("it has no leader", retriable=True)
        if isinstance(spec, str):
            return Found(one.start if spec == "earliest" else len(one.stamps))
        at = next((n for n in range(one.start, len(one.stamps)) if one.stamps[n] >= spec), None)
        return NotFound() if at is None else Found(at, one.stamps[at])

    def log_dirs(self, brokers: Sequence[int]) -> dict[int, list[LogDirState]]:
        self._kafka.hook("read")
        replicas = [Replica(TopicPartition(name, 0), one.size, False) for name, one in self._kafka.topics.items()]
        usable = max(0, DISK - self._kafka.used)
        return {broker: [LogDirState("/data", DISK, usable, replicas)] for broker in brokers}

    def read_ranges(
        self, ranges: Mapping[TopicPartition, Range], _deadline: float, on_record: Callable[..., Any]
    ) -> dict[TopicPartition, None]:
        for tp, span in ranges.items():
            for at in range(span.start, span.end):
                if (one := self._kafka.messages[at]) is not None:
                    key, value, stamp_ms = one
                    on_record(tp, Message(offset=at, key=key, value=value, timestamp=(2, stamp_ms)))
        return dict.fromkeys(ranges)
