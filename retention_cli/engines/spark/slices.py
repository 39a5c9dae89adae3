"""Cut work into slices for one broker each: groups by their coordinator, partitions by their leader. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.core.model import TopicPartition

T = TypeVar("T")

NO_BROKER: Final = -1
"""The broker of what has no coordinator or leader; no broker has this id."""
GROUPS_A_SLICE: Final = 50
PARTITIONS_A_SLICE: Final = 1_000


def sliced(items: Iterable[T], broker_of: Callable[[T], int], size: int) -> Iterator[tuple[int, T]]:
    """Yield each item with its slice's number, from 1. A slice has at most ``size`` items, all of one broker."""
    numbers = itertools.count(1)
    current: dict[int, tuple[int, int]] = {}
    for item in items:
        broker = broker_of(item)
        number, count = current.get(broker, (0, size))
        if count == size:
            number, count = next(numbers), 0
        current[broker] = number, count + 1
        yield number, item


def partition_slices(
    places: Mapping[TopicPartition, PartitionMetadata],
) -> Iterator[tuple[int, TopicPartition, PartitionMetadata]]:
    """Yield each partition with the number of the slice that reads it. A slice has one leader."""
    for number, (tp, one) in sliced(places.items(), lambda place: leader_of(place[1]), PARTITIONS_A_SLICE):
        yield number, tp, one


def leader_of(partition: PartitionMetadata) -> int:
    """Return the broker to ask about a partition, :data:`NO_BROKER` if there is none."""
    return NO_BROKER if partition.leader is None else partition.leader
