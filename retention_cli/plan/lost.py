"""How many records would be trimmed before each consumer has read them (G2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from retention_cli.observe.floors.fold import Commit

LosingRows = Mapping[str, Mapping[int, tuple[int, int]]]
"""What would be trimmed unread: log start and target by topic and partition."""


def lost_of(losing: LosingRows, commits: Mapping[str, Sequence[Commit]]) -> int:
    """Return how many records a consumer with these positions would lose."""
    total = 0
    for topic, rows in losing.items():
        for partition, offset, _epoch in commits.get(topic, ()):
            if (row := rows.get(partition)) is not None:
                total += max(0, row[1] - max(offset, row[0]))
    return total


GoneCommits = Sequence[tuple[str, Mapping[str, Sequence[Commit]]]]
"""The positions of consumers, by key, whose commits are gone and still count (F6)."""


def lost_of_gone(losing: LosingRows, gone: GoneCommits) -> dict[str, int]:
    """Return, per consumer by key, how many records would be trimmed that it had not read."""
    found: dict[str, int] = {}
    for group, commits in gone:
        if lost := lost_of(losing, commits):
            found[group] = found.get(group, 0) + lost
    return found
