"""The positions in a group's memory, in the shapes of commits and of JSON. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from retention_cli.memory.interface import Rows

Place = tuple[str, int]  # a topic's name, and a partition


def rows(live: Mapping[Place, tuple[int, int | None]]) -> Rows:
    """Return commits by place as rows by topic."""
    found: Rows = {}
    for (topic, partition), (offset, epoch) in live.items():
        found.setdefault(topic, []).append((partition, offset, epoch))
    return found


def by_topic(places: Mapping[Place, Any], row: Callable[[Any], list[Any]]) -> dict[str, list[list[Any]]]:
    """Return values by place as lists by topic: the partition, then what ``row`` returns."""
    found: dict[str, list[list[Any]]] = {}
    for (topic, partition), value in places.items():
        found.setdefault(topic, []).append([partition, *row(value)])
    return found


def flat(by_topic: Mapping[str, list[list[Any]]]) -> Iterator[tuple[Place, list[Any]]]:
    """Yield what :func:`by_topic` returned, by place."""
    for topic, rows in by_topic.items():
        for row in rows:
            yield (topic, row[0]), row[1:]
