"""A group's commits as a task has read them, as bytes: what a ledger elsewhere remembers of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from retention_cli.memory.group_columns import Columns, are_numbers, nothing, packed, unpacked
from retention_cli.memory.interface import Commits


class ReadCommits(NamedTuple):
    """A group's commits, when they were read (Unix ms), and their digest.

    They are columns, or rows where they are none (:func:`~retention_cli.memory.group_columns.columns_of`).
    """

    read_ms: int
    digest: bytes
    commits: Columns | Commits

    @property
    def columns(self) -> Columns | None:
        """The commits as columns, None if they are none."""
        return self.commits if isinstance(self.commits, Columns) else None

    def rows(self) -> Commits:
        """Return the commits as rows."""
        return self.commits.rows() if isinstance(self.commits, Columns) else self.commits

    def as_bytes(self) -> bytes:
        """Return all of it as bytes."""
        columns = self.columns
        rows = self.rows() if columns is None else None
        return packed([self.read_ms, self.digest.hex(), rows], [nothing() if columns is None else columns])

    @classmethod
    def from_bytes(cls, raw: bytes) -> ReadCommits:
        """Return what :meth:`as_bytes` wrote.

        Raises:
            ValueError: it is not valid.
        """
        head, [columns], more = unpacked(raw, 1, proven=False)
        try:
            read_ms, digest, rows = head
            found = cls(read_ms, bytes.fromhex(digest), columns if rows is None else _rows(rows))
        except (ValueError, TypeError, AttributeError):
            found = None
        if found is None or type(found.read_ms) is not int or more or not columns.are_in_order:
            raise ValueError("a task's commits can't be read")
        return found


def _rows(by_topic: Mapping[str, list[list[Any]]]) -> Commits:
    if not are_numbers(by_topic, 3):
        raise ValueError("a commit is no number")
    return {
        topic: [(partition, offset, epoch) for partition, offset, epoch in rows] for topic, rows in by_topic.items()
    }
