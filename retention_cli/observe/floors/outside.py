"""The floors that consumers outside Kafka's groups set (F7): each source is read, checked and folded like a group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Final

from retention_cli.brokers.commits import GroupCommits
from retention_cli.brokers.metadata import ClusterMetadata, TopicMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.consumers import key_of, plain_name
from retention_cli.core.printable import plain
from retention_cli.memory.group import NOTHING_RECALLED
from retention_cli.observe.floors.fold import FloorFold
from retention_cli.observe.floors.sources.interface import Consumer, Consumers, Reach, SourceError
from retention_cli.observe.recall import Recall
from retention_cli.policy.model import matches
from retention_cli.policy.settings import FloorSource

_GRACE_S: Final = 1.0
_OF_LIBRARIES: Final = (ArithmeticError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)

Read = Consumers | SourceError


def read_sources(sources: Sequence[FloorSource], reach: Reach) -> list[Read]:
    """Read the sources at the same time; one that is not done within its time-out costs no more than that."""
    results: list[Read] = [SourceError(f"not read within {one.timeout_ms / 1000:g} s (timeout)") for one in sources]

    def read(index: int, source: FloorSource) -> None:
        try:
            results[index] = import_module(f"{__package__}.sources.{source.kind}").read(source, reach)
        except SourceError as error:
            results[index] = error
        except _OF_LIBRARIES as error:  # this source is unknown, and no other
            results[index] = SourceError(f"it could not be read ({type(error).__name__})")

    threads = [
        threading.Thread(target=read, args=(index, one), name="kretain-floor", daemon=True)
        for index, one in enumerate(sources)
    ]
    began = time.monotonic()
    for one in threads:
        one.start()
    for one, source in zip(threads, sources, strict=True):
        one.join(max(0.0, began + source.timeout_ms / 1000 + _GRACE_S - time.monotonic()))
    return list(results)


def checked(
    sources: Sequence[FloorSource], found: Sequence[Read], topics: Mapping[str, TopicMetadata]
) -> tuple[Consumers, Mapping[FloorSource, str]]:
    """Return the consumers of sound sources, by key, and the sources that failed, with the reason.

    A position on a partition that this cluster does not have makes a source unsound. But ZooKeeper has nodes of topics
    that are long gone, and a query may read other clusters' topics, too.
    """
    consumers: dict[str, Consumer] = {}
    failed: dict[FloorSource, str] = {}
    for source, read in zip(sources, found, strict=True):
        if isinstance(read, SourceError):
            failed[source] = str(read)
        elif (problem := _foreign(source, read, topics)) is not None:
            failed[source] = problem
        else:
            consumers |= {key_of(source.kind, name): one for name, one in read.items()}
    return consumers, failed


def _foreign(source: FloorSource, consumers: Consumers, topics: Mapping[str, TopicMetadata]) -> str | None:
    if source.kind in ("replica", "zookeeper"):
        return None
    for one in consumers.values():
        elsewhere = sorted(topic for topic in one.positions if topic not in topics)
        if elsewhere and (source.kind != "checkpoint" or len(elsewhere) == len(one.positions)):
            return f"it names {plain(elsewhere[0])}, which this cluster does not have (or this user may not describe)"
        for topic, rows in one.positions.items():
            for partition, _offset in rows:
                if topic in topics and partition not in topics[topic].partitions:
                    return f"it names partition {partition} of {plain(topic)}, which has no such partition"
    return None


def fold_outside(
    fold: FloorFold,
    metadata: ClusterMetadata,
    recall: Recall,
    reader: ClusterReader,
    listener: Callable[[GroupCommits], None] | None = None,
    given: Sequence[Read] | None = None,
) -> None:
    """Read the sources and hand over what they say; call it before any log end is read (F5).

    Args:
        fold: takes the consumers; its topics are the managed ones.
        metadata: the cluster's, read just now.
        recall: the policy's sources, and what is remembered (F5, F6).
        reader: the cluster.
        listener: sees each consumer's positions, as of groups.
        given: what the sources gave, if they were read elsewhere.
    """
    if not (sources := recall.rules.sources):
        return
    found = read_sources(sources, Reach(reader, metadata, fold.topics)) if given is None else given
    consumers, failed = checked(sources, found, metadata.topics)
    for key, one in consumers.items():
        rows = one.rows
        recalled = NOTHING_RECALLED
        if not key.startswith(key_of("replica", "")):  # its positions are proven again each time (F6)
            recalled = recall.saw(key, rows, {*one.unreadable, *one.unread})
        for topic, text in one.unreadable.items():
            fold.fail(key, text, [topic])
        if one.reads is None:
            fold.fail(key, "it has live members that read unknown topics", None)
        fold.add(key, rows, one.reads or (), recalled)
        if listener is not None:
            listener(GroupCommits(key, rows))
    gone = list(recall.memory.gone_groups(consumers, recall.since_ms, outside=True))
    for key, seen_ms, rows in gone:
        if any(owns(source, key) for source in sources if source not in failed):
            recall.fold_gone(fold, key, seen_ms, rows)
    for source, text in failed.items():
        ours = [key for key, _seen, _rows in gone if owns(source, key)]
        fold.fail(key_of(source.kind, source.name), text, _topics_of(source, ours, fold, recall))


def _topics_of(source: FloorSource, ours: Iterable[str], fold: FloorFold, recall: Recall) -> set[str] | None:
    """Return the topics that a source's consumers may read, None for any: ``ours`` are those remembered, by key."""
    if source.topics is None:
        return None
    remembered = (recall.memory.group(key).topics() for key in ours)
    return {name for name in fold.topics if matches(source.topics, name)}.union(*remembered)


def owns(source: FloorSource, key: str) -> bool:
    """Return whether a consumer is of a source: of ZooKeeper's groups those that it reads, else the one of its name."""
    kind, _, name = plain_name(key).partition(":")
    if kind != source.kind:
        return False
    if kind != "zookeeper":
        return name == source.name
    return matches(source.groups, name) and not matches(source.ignored, name)


def describe(source: FloorSource) -> str:
    """Return a source's name as floors show it, such as ``file:flink``."""
    return plain_name(key_of(source.kind, source.name))
