"""Pack work into tasks: a broker's share is cut into pieces, pieces are packed by size, tasks are numbered. Pure.

Spark's hash of a broker's name would put three leaders on fewer than three tasks three times out of four, and serve
five leaders of a large fleet by one task. Here tasks have numbers, and Spark's hash
follows them (:mod:`.shuffle_keys`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

CONNECTIONS: Final = 2
"""How many tasks ask a broker at a time, at most."""
PARTITIONS_A_TASK: Final = 2_000
GROUPS_A_TASK: Final = 200
NO_BROKER: Final = -1
"""The broker of what has no coordinator or leader; no broker has this id."""
_TASKS_AT_MOST: Final = 4_000


class Piece(NamedTuple):
    """One of ``parts`` equal parts of what one broker of a cluster is asked: ``size`` partitions or groups."""

    cluster: str
    broker: int
    part: int
    parts: int
    size: int


Task = tuple[Piece, ...]
"""The pieces that a task reads, one after the other."""


def pack(sizes: Mapping[tuple[str, int], int], at_least: int, connections: int = CONNECTIONS) -> list[Task]:
    """Return the tasks that read from brokers; a task's number is its index.

    Args:
        sizes: how much each broker of each cluster is asked for.
        at_least: so much is worth a task.
        connections: into so many pieces a broker's share is cut at most, so that no more tasks ask it at a time.
    """
    room = max(at_least, -(-sum(sizes.values()) // _TASKS_AT_MOST))
    pieces = [
        piece for (cluster, broker), size in sizes.items() for piece in _cut(cluster, broker, size, room, connections)
    ]
    tasks: list[list[Piece]] = []
    left: list[int] = []
    first = 0  # tasks before it are full
    for one in sorted(pieces, key=lambda piece: (-piece.size, piece)):
        at = next((n for n in range(first, len(tasks)) if left[n] >= one.size), len(tasks))
        if at == len(tasks):
            tasks.append([])
            left.append(room)
        tasks[at].append(one)
        left[at] -= one.size
        while first < len(tasks) and left[first] <= 0:
            first += 1
    return [tuple(sorted(one)) for one in tasks]


def _cut(cluster: str, broker: int, size: int, room: int, connections: int) -> list[Piece]:
    parts = max(1, min(connections, -(-size // room)))
    return [Piece(cluster, broker, part, parts, len(share(size, part, parts))) for part in range(parts)]


def share(size: int, part: int, parts: int) -> range:
    """Return which of ``size`` items a part has: a run of them."""
    return range(size * part // parts, size * (part + 1) // parts)


def task_of(tasks: Sequence[Task]) -> dict[Piece, int]:
    """Return each piece's task."""
    return {piece: number for number, task in enumerate(tasks) for piece in task}
