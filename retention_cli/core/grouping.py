"""Group what belongs together: values by key, items in batches, partitions by their reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from retention_cli.core.model import Reason, TopicPartition

K = TypeVar("K")
V = TypeVar("V")


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key. Keys and values keep their order."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def in_batches(items: Iterable[V], most: int) -> Iterator[list[V]]:
    """Yield the items in order, at most this many at a time, as they arrive."""
    waiting = iter(items)
    while some := list(islice(waiting, most)):
        yield some


@dataclass(frozen=True, slots=True)
class SameReasons:
    """Partitions with the same reasons: their number, and that of their topics.

    ``partitions`` are at least the partitions of the first topics, in order.
    """

    reasons: tuple[Reason, ...]
    count: int
    topics: int
    partitions: Sequence[TopicPartition]


def grouped(rows: Iterable[tuple[TopicPartition, tuple[Reason, ...]]]) -> list[SameReasons]:
    """Return partitions grouped by reasons, the most frequent first; ties are ordered by their first partition.

    ``rows`` must be in the order of their partitions.
    """
    found = [
        SameReasons(reasons, len(tps), len({tp.topic for tp in tps}), tps)
        for reasons, tps in by_key((reasons, tp) for tp, reasons in rows).items()
    ]
    return sorted(found, key=lambda one: (-one.count, one.partitions[0]))
