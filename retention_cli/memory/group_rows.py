"""The positions in a group's memory, in the shapes of commits, of JSON and of bytes. Pure."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from retention_cli.memory.interface import Commits, Rows

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


def digest_of(commits: Commits, ids: Mapping[str, str]) -> bytes:
    """Return a short digest of a group's commits and their topics' ids: if it is the same, nothing has changed."""
    whole = [(topic, ids.get(topic), rows) for topic, rows in sorted(commits.items())]
    # Version 2 of the format has no references, which would make equal values differ.
    return hashlib.blake2b(marshal.dumps(whole, 2), digest_size=16).digest()
