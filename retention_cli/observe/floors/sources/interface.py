"""What a source of floors gives: its consumers' positions, or why they can't be told (F3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

MAX_OFFSET: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1
Position = tuple[int, int]
"""Partition, and the offset of the first record that the consumer has yet to read."""
Positions = Mapping[str, Sequence[Position]]
"""One consumer's positions, by topic."""


class Consumer(NamedTuple):
    """One consumer: its positions, and the topics where it can't be read, with why.

    ``reads`` are the topics that its live members read, None where that can't be told.
    """

    positions: Positions
    reads: frozenset[str] | None = frozenset()
    unreadable: Mapping[str, str] = MappingProxyType({})


Consumers = Mapping[str, Consumer]
"""A source's consumers by name: one for a file or a command, each group for ZooKeeper."""


class SourceError(Exception):
    """A source can't be read, or what it holds can't be trusted: the text says what to do, and quotes no secret."""
