"""What a source of floors gives: its consumers' positions, or why they can't be told (F3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Position = tuple[int, int]
"""Partition, and the offset of the first record that the consumer has yet to read."""
Positions = Mapping[str, Sequence[Position]]
"""One consumer's positions, by topic."""
Consumers = Mapping[str, Positions]
"""A source's consumers by name: one for a file or a command, each group for ZooKeeper."""


class SourceError(Exception):
    """A source can't be read, or what it holds can't be trusted: the text says what to do, and quotes no secret."""
