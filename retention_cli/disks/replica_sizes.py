"""Determine how many dead bytes a replica's size may include, from the ledger (R5, R6).

The replicas of one pass are compared with those of earlier passes (:mod:`retention_cli.memory.replica`), and the
brokers are asked for their sweep settings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import LogDirState
from retention_cli.brokers.metadata import TIERED, is_tiered
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Code, Maybe, PartitionFacts, TopicPartition, Unknown
from retention_cli.core.units import format_bytes, format_duration
from retention_cli.disks.disk import Disk
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.replica import UNKNOWN_START, ReplicaSeen, Sweeping, pack, place_of, seen_again, unpack

SEGMENT_BYTES: Final = "segment.bytes"
NO_SEGMENT_BYTES: Final = Unknown.because(Code.R5, "its segment.bytes could not be read: run again")
_DELAY: Final = "file.delete.delay.ms"
_OWN_DELAY: Final = "log.segment.delete.delay.ms"
"""The broker's setting, for topics without their own."""
_CLEANUP: Final = "cleanup.policy"
_CHECK: Final = "log.retention.check.interval.ms"
_INVENTORY: Final = "or give an inventory (kretain segments scan, --inventory)"

_SAME_SAMPLE_MS: Final = 30_000
"""Replicas and the disk are noted within this time of each other; looks at a disk are a minute apart."""
_SEGMENTS: Final = 2
"""Replicas of one log may differ by this many segments: each broker rolls and sweeps them at its own time."""

Memories = Mapping[TopicPartition, PartitionMemory]


@dataclass(slots=True)
class Sizes:
    """The replicas seen in a pass, and how far their sizes can be trusted.

    ``segment_bytes`` are the topics' settings that could be read.
    """

    segment_bytes: dict[str, int] = field(default_factory=dict)
    _seen: dict[tuple[int, str, TopicPartition], ReplicaSeen] = field(default_factory=dict)
    _before: dict[tuple[int, str, TopicPartition], ReplicaSeen | None] = field(default_factory=dict)
    _since: dict[str, int | None] = field(default_factory=dict)
    _moving: set[tuple[int, TopicPartition]] = field(default_factory=set)
    _checks_ms: dict[int, int] = field(default_factory=dict)
    _delays_ms: dict[str, int] = field(default_factory=dict)
    _own_delays_ms: dict[int, int] = field(default_factory=dict)
    _cleaned: dict[str, bool] = field(default_factory=dict)
    _tiered: dict[str, bool] = field(default_factory=dict)
    _segments: dict[TopicPartition, int] = field(default_factory=dict)
    _now_ms: int = 0

    def add(
        self,
        reader: ClusterReader,
        answers: Mapping[int, Sequence[LogDirState] | Exception],
        facts: Mapping[TopicPartition, PartitionFacts],
        memories: Memories,
        now_ms: int,
    ) -> None:
        """Add and remember one read of the log dirs. The facts' S and H must have been read before.

        A replica that is being moved to another dir is not remembered: its size is meaningless until it has moved.
        """
        self._now_ms = now_ms
        self._read_settings(reader, sorted(answers), sorted({tp.topic for tp in facts}))
        found: dict[TopicPartition, list[ReplicaSeen]] = {}
        remembered: dict[TopicPartition, dict[int, ReplicaSeen]] = {}
        for broker, dirs in answers.items():
            if isinstance(dirs, Exception):
                continue
            copies = [(one.path, replica) for one in dirs for replica in one.replicas]
            self._moving |= {(broker, replica.tp) for _, replica in copies if replica.future}
            for path, replica in copies:
                tp = replica.tp
                if tp not in facts or (broker, tp) in self._moving:
                    continue
                start, end = facts[tp].log_start, facts[tp].high_watermark
                if isinstance(start, Unknown) or isinstance(end, Unknown):
                    continue
                if tp not in remembered:
                    if (size := self.segment_bytes.get(tp.topic)) is not None:
                        self._segments[tp] = memories[tp].saw_segment_bytes(size, start, end)
                    remembered[tp] = {row.place: row for row in unpack(memories[tp].replicas)}
                place = place_of(broker, path)
                before, sweeping = remembered[tp].get(place), self._sweeping(broker, tp)
                row = seen_again(before, place, now_ms, start, end, replica.size_bytes, sweeping)
                self._seen[broker, path, tp] = row
                self._before.setdefault((broker, path, tp), remembered[tp].get(place))
                found.setdefault(tp, []).append(row)
        for tp, rows in found.items():
            memories[tp].note(replicas=pack({**remembered[tp], **{row.place: row for row in rows}}.values()))

    def doubt(self, disk: Disk, tp: TopicPartition, code: str) -> Unknown | None:
        """Return why a replica's size may include dead bytes, and what to do; None if it can't."""
        broker = disk.broker
        if (broker, tp) in self._moving:
            return Unknown.because(code, f"its replica on broker {broker} is being moved to another log dir: run again")
        if not (rows := self._rows(disk, tp)):
            return Unknown.because(
                code, f"its size on broker {broker} could not be compared with its log start: run again"
            )
        if (row := next((one for one in rows if not one.clean), None)) is None:
            return None
        if row.since_ms == UNKNOWN_START:
            text = (
                f"its log start has moved since its size on broker {broker} last fell: it may include dead bytes that "
                f"the broker has not removed yet; run again once it has ({_CHECK}, {_DELAY}), {_INVENTORY}"
            )
            return Unknown.because(code, text)
        when = f"how often the broker checks could not be read ({_CHECK}, {_DELAY})"
        if (wait_ms := self._sweeping(broker, tp).wait_ms) is not None:
            when = f"run again after kretain has watched it for {format_duration(wait_ms)} (two of the broker's checks)"
        text = f"its size may include dead bytes: what broker {broker} has removed of its log is unknown; {when}"
        return Unknown.because(code, f"{text}, {_INVENTORY}")

    def live_bytes(self, disk: Disk, tp: TopicPartition, log_start: int) -> Maybe[int]:
        """Return the bytes of a replica that are not dead, for R5, or why that is unknown.

        All of the segment that contains S is on disk, or of the one before it that was active at the last sweep. So one
        segment's bytes may be dead and are not counted; otherwise each pass would trim a little more. That segment may
        be from a time when ``segment.bytes`` was larger.
        """
        size_bytes = disk.replicas[tp]
        if (why := self.doubt(disk, tp, Code.R5)) is not None:  # while it is moved, both copies may be on one disk
            return why
        if log_start == 0:
            return size_bytes
        one_segment = self._segments.get(tp, self.segment_bytes.get(tp.topic))
        return NO_SEGMENT_BYTES if one_segment is None else max(0, size_bytes - one_segment)

    def dead_bytes(self, disk: Disk, tp: TopicPartition) -> int:
        """Return how many bytes of a replica are likely dead since its log start moved, and will be swept."""
        return sum(row.dead_bytes for row in self._rows(disk, tp) if row.since_ms == UNKNOWN_START)

    def doubtful_bytes(self, disk: Disk, tp: TopicPartition) -> int:
        """Return how many bytes of a replica may be dead because it was not observed for long enough."""
        return sum(row.dead_bytes for row in self._rows(disk, tp) if row.since_ms != UNKNOWN_START)

    def leaving_bytes(self, disk: Disk) -> int:
        """Return how many bytes replicas' sizes have lost recently that may still be on the disk."""
        return sum(
            row.leaving_bytes(self._now_ms, self._sweeping(broker, tp))
            for (broker, path, tp), row in self._seen.items()
            if row.fallen_bytes and broker == disk.broker and path in disk.dirs
        )

    def may_leave_bytes(self, disk: Disk, since_ms: int | None) -> int | None:
        """Return how many bytes of swept files may still be on a disk, at most; None if a replica has come since.

        Brokers delete segments of a compacted or tiered topic without moving S, and growth may hide it: then all bytes
        that the replica had may be leaving.

        Args:
            disk: the disk as just reported by its broker.
            since_ms: when the disk's replicas were looked at before (Unix ms), None if they were not.
        """
        since_ms = self._since.setdefault(disk.name, since_ms)  # a pass that looks again has noted a look of its own
        total = 0
        for tp in disk.replicas:
            on = [(disk.broker, path, tp) for path in disk.dirs if (disk.broker, path, tp) in self._seen]
            for one in on:
                row, before = self._seen[one], self._before[one]
                if before is None or (since_ms is not None and before.seen_ms < since_ms - _SAME_SAMPLE_MS):
                    return None
                total += row.may_leave_bytes(self._now_ms, self._sweeping(disk.broker, tp))
                if self._cleaned.get(tp.topic, True) or self._tiered.get(tp.topic, True):
                    total += max(row.size_bytes, before.size_bytes)
            if not on:
                return None
        return total

    def longest(self, brokers: Collection[int], topics: Collection[str]) -> tuple[int | None, int | None]:
        """Return the longest check interval of these brokers, and the longest delete delay of these topics (ms).

        Each is None if it is unknown for one of them.
        """
        return _largest(map(self._checks_ms.get, brokers)), _largest(map(self._delays_ms.get, topics))

    def longest_leaving_ms(self, brokers: Collection[int]) -> int | None:
        """Return how long it takes at most until swept or deleted files are removed (ms), None if unknown."""
        longest = _largest(map(self._checks_ms.get, brokers))
        delays = [*self._delays_ms.values(), *self._own_delays_ms.values()]
        return None if longest is None or not delays else longest + max(delays)

    def _rows(self, disk: Disk, tp: TopicPartition) -> list[ReplicaSeen]:
        return [row for row in (self._seen.get((disk.broker, path, tp)) for path in disk.dirs) if row is not None]

    def _sweeping(self, broker: int, tp: TopicPartition) -> Sweeping:
        return Sweeping(
            self._checks_ms.get(broker),
            self._delays_ms.get(tp.topic),
            self.segment_bytes.get(tp.topic, 0),
            self._cleaned.get(tp.topic, True),
        )

    def _read_settings(self, reader: ClusterReader, brokers: Sequence[int], topics: Sequence[str]) -> None:
        """Read the brokers' sweep settings, and the topics' segment sizes. Settings that can't be read stay missing."""
        checks = reader.broker_values([one for one in brokers if one not in self._checks_ms], [_CHECK, _OWN_DELAY])
        self._checks_ms |= _numbers(checks, _CHECK)
        self._own_delays_ms |= _numbers(checks, _OWN_DELAY)
        waiting = [one for one in topics if one not in self.segment_bytes]
        values = reader.topic_values(waiting, [SEGMENT_BYTES, _DELAY, _CLEANUP, *TIERED]) if waiting else {}
        for name, own in values.items():
            if not isinstance(own, RequestFailedError):
                self._cleaned[name] = "compact" in (own.get(_CLEANUP) or "compact")
                self._tiered[name] = is_tiered(own)
        self.segment_bytes |= {name: size for name, size in _numbers(values, SEGMENT_BYTES).items() if size > 0}
        self._delays_ms |= _numbers(values, _DELAY)


def smaller_replicas(
    disks: Sequence[Disk], tps: Collection[TopicPartition], segment_bytes: Mapping[str, int]
) -> dict[tuple[int, TopicPartition], Unknown]:
    """Return, by disk number and partition, why nothing is estimated for a replica that lags, or is being filled.

    An estimate spreads a replica's bytes over its partition's offsets. A replica that ends early has only older
    records, and would be trimmed much too far. Brokers don't report a follower's log end, but its size shows that it
    lags.

    Args:
        disks: the disks as reported by the brokers.
        tps: the partitions to check.
        segment_bytes: the topics' ``segment.bytes``, where they could be read.
    """
    sizes = by_key((tp, size_bytes) for disk in disks for tp, size_bytes in disk.replicas.items() if tp in tps)
    largest = {tp: max(some) for tp, some in sizes.items()}
    return {
        (n, tp): Unknown.because(
            Code.R6,
            f"its replica on broker {disk.broker} takes {format_bytes(size_bytes)}, another "
            f"{format_bytes(largest[tp])}: it lags or is still filling, so how much of it is old is unknown; "
            "run again once both have the same size, or give an inventory (kretain segments scan, --inventory)",
        )
        for n, disk in enumerate(disks)
        for tp, size_bytes in disk.replicas.items()
        if tp in largest and size_bytes + _SEGMENTS * segment_bytes.get(tp.topic, 0) < largest[tp]
    }


def longest_delay_ms(reader: ClusterReader, topics: Sequence[str]) -> int:
    """Return how long deleted files of these topics stay on disk (``file.delete.delay.ms``), 0 if unknown for all."""
    return max(_numbers(reader.topic_values(topics, [_DELAY]) if topics else {}, _DELAY).values(), default=0)


def _largest(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else max((one for one in known if one is not None), default=None)


def _numbers(answers: Mapping[Any, Mapping[str, str | None] | RequestFailedError], key: str) -> dict[Any, int]:
    found = {name: one.get(key) for name, one in answers.items() if not isinstance(one, RequestFailedError)}
    return {
        name: int(value) for name, value in found.items() if value is not None and re.fullmatch("[0-9]{1,19}", value)
    }
