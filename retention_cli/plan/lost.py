"""How many records would be trimmed before each consumer has read them (G2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from retention_cli.core.model import Reason
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


class GoneCommits:
    """Keeps the positions of consumers whose commits are gone and still count (F6), and nothing else.

    It is a :class:`~retention_cli.observe.floors.fold.FloorSink`.
    """

    def __init__(self) -> None:
        self.found: list[tuple[str, Mapping[str, Sequence[Commit]]]] = []

    def anew(self) -> Self:
        """Forget what was kept, as groups are read again."""
        self.found.clear()
        return self

    def add(self, group: str, commits: Mapping[str, Sequence[Commit]], reads: Iterable[str] = ()) -> None:
        """Do nothing: commits that exist are read again when they are needed."""

    def recall(self, group: str, gone: Mapping[str, Sequence[Commit]], seen: str) -> None:
        """Keep positions of a group whose commits are gone."""
        del seen
        self.found.append((group, gone))

    add_gone = recall

    def refuse(self, group: str, refused: Mapping[tuple[str, int], tuple[int, int | None]]) -> None:
        """Do nothing: these commits exist."""

    def no_position(self, group: str, stored: Mapping[str, Mapping[int, int]]) -> None:
        """Do nothing: these commits exist."""

    def fail(self, group: str, text: str, topics: Iterable[str] | None) -> None:
        """Do nothing: the plan reports what could not be read."""

    def fail_all(self, reason: Reason, topics: Iterable[str] | None = None) -> None:
        """Do nothing: the plan reports what could not be read."""

    def lost(self, losing: LosingRows) -> dict[str, int]:
        """Return, per consumer by key, how many records would be trimmed that it had not read."""
        found: dict[str, int] = {}
        for group, gone in self.found:
            if lost := lost_of(losing, gone):
                found[group] = found.get(group, 0) + lost
        return found
