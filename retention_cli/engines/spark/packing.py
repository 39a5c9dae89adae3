"""Pack work into tasks: a broker's share is cut into pieces, pieces are packed by size, tasks are numbered. Pure.

Spark's hash of a broker's name would put three leaders on fewer than three tasks three times out of four, and serve
five leaders of a large fleet by one task. Here tasks have numbers, and :func:`keys` makes Spark's hash follow them.
"""

from __future__ import annotations

import functools
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


@functools.lru_cache(4)
def keys(tasks: int) -> Sequence[int]:
    """Return, for each task's number, an integer that Spark's hash partitioning puts into the partition of that number.

    Should a Spark hash otherwise, tasks share partitions, which is slower and nothing else.
    """
    found: dict[int, int] = {}
    key = 0
    while len(found) < tasks:
        found.setdefault(_hash(key) % tasks, key)
        key += 1
    return tuple(found[number] for number in range(tasks))


def _hash(value: int) -> int:
    """Return Spark's hash of an ``int`` column: Murmur3 (x86, 32 bits) with seed 42, as a signed number."""
    one = _rotated(value * 0xCC9E2D51 & _BITS, 15) * 0x1B873593 & _BITS
    mixed = (_rotated(42 ^ one, 13) * 5 + 0xE6546B64) & _BITS ^ 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _BITS
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _BITS
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _BITS


_BITS: Final = 0xFFFFFFFF


def task_of(tasks: Sequence[Task]) -> dict[Piece, int]:
    """Return each piece's task."""
    return {piece: number for number, task in enumerate(tasks) for piece in task}
