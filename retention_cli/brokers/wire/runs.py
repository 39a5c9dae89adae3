"""Batches that follow each other in a log, put together to runs. Pure."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Final

from retention_cli.brokers.wire.batch_headers import Batch

_UNDATED: Final = -1


@dataclass(slots=True)
class Runs:
    """Batches of one log that follow each other, put together to runs, in the order of offsets.

    ``base_offset`` of run n is that of its first batch, ``next_offset`` that of the first batch behind it (of the last
    run: where reading ended), ``size_bytes`` what its batches take in the log, ``largest_timestamp`` the largest of
    their records' (Unix ms, −1 where none is told). ``moved``: the log began later than where reading did.
    """

    base_offset: array[int] = field(default_factory=lambda: array("q"))
    next_offset: array[int] = field(default_factory=lambda: array("q"))
    size_bytes: array[int] = field(default_factory=lambda: array("q"))
    largest_timestamp: array[int] = field(default_factory=lambda: array("q"))
    moved: bool = False

    def add(self, batch: Batch, run_bytes: int) -> None:
        """Take the next batch: into the last run, where that has less than ``run_bytes``, or into one of its own."""
        newest = _UNDATED if batch.max_timestamp is None else batch.max_timestamp
        if self.size_bytes and self.size_bytes[-1] < run_bytes:
            self.size_bytes[-1] += batch.size
            self.largest_timestamp[-1] = max(self.largest_timestamp[-1], newest)
        else:
            self.end_at(batch.base_offset)
            self.base_offset.append(batch.base_offset)
            self.size_bytes.append(batch.size)
            self.largest_timestamp.append(newest)
            self.next_offset.append(batch.last_offset + 1)
        self.next_offset[-1] = batch.last_offset + 1

    def follow(self, other: Runs) -> None:
        """Take the runs of the piece that follows on this one. Where the log began later there, these are gone."""
        if other.moved:
            self.base_offset, self.next_offset, self.size_bytes, self.largest_timestamp = (array("q") for _ in range(4))
        self.moved = self.moved or other.moved
        if other.base_offset:
            self.end_at(other.base_offset[0])
        self.base_offset.extend(other.base_offset)
        self.next_offset.extend(other.next_offset)
        self.size_bytes.extend(other.size_bytes)
        self.largest_timestamp.extend(other.largest_timestamp)

    def end_at(self, offset: int) -> None:
        """Note that nothing lies between the last run and this offset."""
        if self.next_offset:
            self.next_offset[-1] = max(self.next_offset[-1], offset)
