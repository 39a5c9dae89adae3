"""Cutting work into slices that one broker answers: groups by their coordinator, partitions by their leader. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

Row = dict[str, Any]
T = TypeVar("T")

GROUPS_A_SLICE: Final = 50
PARTITIONS_A_SLICE: Final = 1_000
NO_BROKER: Final = -1
"""Stands for a coordinator or a leader that there is not, where work is cut: never a broker's id."""


def sliced(items: Iterable[T], broker_of: Callable[[T], int], size: int) -> Iterator[tuple[int, T]]:
    """Yield each item with its slice's number: of one broker alone, ``size`` items at the most, numbered from 1."""
    numbers = itertools.count(1)
    current: dict[int, tuple[int, int]] = {}
    for item in items:
        broker = broker_of(item)
        number, count = current.get(broker, (0, size))
        if count == size:
            number, count = next(numbers), 0
        current[broker] = number, count + 1
        yield number, item


def by_slice(batches: Iterator[Any]) -> Iterator[tuple[tuple[str, int], Iterator[Row]]]:
    """Put Arrow batches' rows of one cluster's slice together: they come one after the other."""
    rows = (row for batch in batches for row in batch.to_pylist())
    return itertools.groupby(rows, key=lambda row: (row["cluster"], row["slice"]))
