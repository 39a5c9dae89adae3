"""Merge consecutive batches of a log into runs. Pure."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Final

from retention_cli.brokers.wire.batch_headers import Batch

_UNDATED: Final = -1


@dataclass(slots=True)
class Runs:
    """Runs of consecutive batches of one log, in offset order.

    A run's ``base_offset`` is that of its first batch, ``next_offset`` that of the first batch after it (for the last
    run: where reading ended), ``size_bytes`` the size of its batches in the log, ``largest_timestamp`` the largest of
    its records (Unix ms, −1 if unknown). ``moved``: the log start had moved beyond where reading began.
    """

    base_offset: array[int] = field(default_factory=lambda: array("q"))
    next_offset: array[int] = field(default_factory=lambda: array("q"))
    size_bytes: array[int] = field(default_factory=lambda: array("q"))
    largest_timestamp: array[int] = field(default_factory=lambda: array("q"))
    moved: bool = False

    def add(self, batch: Batch, run_bytes: int) -> None:
        """Add the next batch: to the last run if that has less than ``run_bytes``, otherwise to a new one."""
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
        """Add the runs of the next piece. If the log start had moved into it, drop the runs before it."""
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
        """Extend the last run to this offset: there is no batch in between."""
        if self.next_offset:
            self.next_offset[-1] = max(self.next_offset[-1], offset)
