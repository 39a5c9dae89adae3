"""The floors that consumers outside Kafka's groups set (F7): each source is read, checked and folded like a group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final, Protocol

from retention_cli.brokers.commits import GroupCommits
from retention_cli.memory.interface import Memory, Rows
from retention_cli.observe.floors.consumers import is_outside, key_of, plain_name
from retention_cli.observe.floors.fold import FloorSink
from retention_cli.observe.floors.sources import command, file
from retention_cli.observe.floors.sources.interface import Consumers, Positions, SourceError
from retention_cli.policy.model import matches
from retention_cli.policy.settings import FloorSource
from retention_cli.policy.shown import plain

KINDS: Final[Mapping[str, ModuleType]] = {"command": command, "file": file}
"""A source is a module with ``read(source, now_ms)``: its consumers, or a :class:`SourceError`."""
_GRACE_S: Final = 1.0
_OF_LIBRARIES: Final = (LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)

Read = Consumers | SourceError


class Topic(Protocol):
    """What is asked of a topic's metadata."""

    @property
    def partitions(self) -> Collection[int]:
        """Its partitions' numbers."""
        ...


class Completing(Protocol):
    """Lays what is remembered of a consumer beside what was read of it (:class:`~.kafka_groups.Recall`)."""

    @property
    def memory(self) -> Memory:
        """What is remembered of the cluster."""
        ...

    @property
    def since_ms(self) -> int:
        """From when on what is gone still counts."""
        ...

    def complete(self, fold: FloorSink, name: str, commits: Rows) -> None:
        """Return nothing; the fold has what is known besides."""
        ...


@dataclass(frozen=True, slots=True)
class OutsideReading:
    """What the sources gave: consumers by key, and the sources that failed with the reason."""

    consumers: Mapping[str, Rows]
    failed: Mapping[FloorSource, str]


def read_sources(sources: Sequence[FloorSource], now_ms: Callable[[], int]) -> list[Read]:
    """Read the sources at the same time; one that is not done within its time-out costs no more than that."""
    results: list[Read] = [SourceError(f"not read within {one.timeout_ms / 1000:g} s (timeout)") for one in sources]

    def read(index: int, source: FloorSource) -> None:
        try:
            results[index] = KINDS[source.kind].read(source, now_ms())
        except SourceError as error:
            results[index] = error
        except _OF_LIBRARIES as error:  # this source is unknown, and no other
            results[index] = SourceError(f"it could not be read ({type(error).__name__})")

    threads = [
        threading.Thread(target=read, args=(index, one), name="kretain-floor", daemon=True)
        for index, one in enumerate(sources)
    ]
    for one in threads:
        one.start()
    for one, source in zip(threads, sources, strict=True):
        one.join(source.timeout_ms / 1000 + _GRACE_S)
    return list(results)


def checked(sources: Sequence[FloorSource], found: Sequence[Read], topics: Mapping[str, Topic]) -> OutsideReading:
    """Return the consumers of sound sources. A position on a partition that this cluster does not have is a failure."""
    consumers: dict[str, Rows] = {}
    failed: dict[FloorSource, str] = {}
    for source, read in zip(sources, found, strict=True):
        problem = str(read) if isinstance(read, SourceError) else _foreign(read, topics)
        if problem is not None or isinstance(read, SourceError):
            failed[source] = problem or ""
            continue
        for name, positions in read.items():
            consumers[key_of(source.kind, name)] = {
                topic: [(partition, offset, None) for partition, offset in rows] for topic, rows in positions.items()
            }
    return OutsideReading(consumers, failed)


def _foreign(consumers: Consumers, topics: Mapping[str, Topic]) -> str | None:
    for positions in consumers.values():
        for topic, rows in positions.items():
            if topic not in topics:
                return f"it names {plain(topic)}, which this cluster does not have (or this user may not describe)"
            for partition, _offset in rows:
                if partition not in topics[topic].partitions:
                    return f"it names partition {partition} of {plain(topic)}, which has no such partition"
    return None


def fold_outside(
    sink: FloorSink,
    sources: Sequence[FloorSource],
    managed: Iterable[str],
    topics: Mapping[str, Topic],
    recall: Completing,
    now_ms: Callable[[], int],
    listener: Callable[[GroupCommits], None] | None = None,
) -> None:
    """Read the sources and hand over what they say; call it before any log end is read (F5).

    Args:
        sink: takes the consumers.
        sources: as the policy names them.
        managed: the names of the managed topics.
        topics: the cluster's metadata by topic.
        recall: what is remembered (F5, F6).
        now_ms: gives our wall clock.
        listener: sees each consumer's positions, as of groups.
    """
    if not sources:
        return
    reading = checked(sources, read_sources(sources, now_ms), topics)
    for key, rows in reading.consumers.items():
        recall.complete(sink, key, rows)
        sink.add(key, rows)
        if listener is not None:
            listener(GroupCommits(key, rows))
    if reading.failed:
        _fail(sink, reading.failed, list(managed), recall)


def _fail(sink: FloorSink, failed: Mapping[FloorSource, str], managed: Sequence[str], recall: Completing) -> None:
    """Make unknown what failed sources may have read: what the policy says, and where they stood before (F3)."""
    stood = {
        name: rows.keys() for name, _seen, rows in recall.memory.gone_groups((), recall.since_ms) if is_outside(name)
    }
    for source, text in failed.items():
        key = key_of(source.kind, source.name)
        topics = None
        if source.topics is not None:
            topics = {name for name in managed if matches(source.topics, name)} | set(stood.get(key, ()))
        sink.fail(key, text, topics)


def describe(source: FloorSource) -> str:
    """Return a source's name as floors show it, such as ``file:flink``."""
    return plain_name(key_of(source.kind, source.name))


def positions_count(positions: Positions) -> int:
    """Return how many partitions a consumer has a position on."""
    return sum(len(rows) for rows in positions.values())
