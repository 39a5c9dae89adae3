"""What producers and consumers did, by their own account: the judge's side of the story."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.support.world import now_ms

Log = tuple[str, int]
"""A topic's id and a partition's index: a recreated topic is another log."""

LATE_MS: Final = 30_000
"""How long a request that nobody answered may still be on its way: a cut lasts for less."""


@dataclass(slots=True)
class Record:
    """One record that a broker has taken. Times are Unix ms of this machine.

    ``ended`` is when the end of its transaction was asked for, None while that is open; without a transaction: ``sent``.
    """

    value: bytes
    stamp: int
    sent: int
    ended: int | None


@dataclass(slots=True)
class Commit:
    """``acknowledged`` is None where no answer came (yet): it may be in force at once, late or never."""

    sent: int
    offsets: Mapping[Log, int]
    acknowledged: int | None = None

    @property
    def settled(self) -> int:
        """From when on it can't take effect any more."""
        return self.sent + LATE_MS if self.acknowledged is None else self.acknowledged


class Commits:
    """One group's commits in the order in which they were made."""

    def __init__(self) -> None:
        self._done: list[Commit] = []

    def sending(self, offsets: Mapping[Log, int]) -> Commit:
        """Write down a commit before it is sent; the caller enters when it was acknowledged."""
        self._done.append(Commit(now_ms(), dict(offsets)))
        return self._done[-1]

    def __len__(self) -> int:
        return sum(one.acknowledged is not None for one in self._done)

    def last(self) -> dict[Log, int]:
        """The last acknowledged position on each log."""
        found: dict[Log, int] = {}
        for one in self._done.copy():
            if one.acknowledged is not None:
                found.update(one.offsets)
        return found

    def most(self, log: Log, began: int, ended: int) -> int | None:
        """The largest position that a reading between two moments may have found; None: no commit was there."""
        ours = [one for one in self._done.copy() if log in one.offsets]
        found = []
        for number, one in enumerate(ours):
            later = (two.acknowledged for two in ours[number + 1 :] if two.sent >= one.settled)
            over = next((at for at in later if at is not None), None)
            if one.sent <= ended and (over is None or over >= began):
                found.append(one.offsets[log])
        return max(found, default=None)

    def forget_before(self, at: int) -> None:
        """Drop what was long over before a moment, but for where it left the group."""
        over = [one for one in self._done if one.sent < at - 2 * LATE_MS]
        left: dict[Log, int] = {}
        for one in over:
            if one.acknowledged is not None:
                left.update(one.offsets)
        if left:
            self._done[: len(over)] = [Commit(0, left, 0)]


@dataclass
class Truth:
    """All that is known. Threads add to it; the judge looks at copies.

    Args:
        partitions: how many partitions each topic that is written to has by now.
        ids: the id of each topic.
        commits: by group.
    """

    partitions: dict[str, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    commits: dict[str, Commits] = field(default_factory=dict)
    _records: dict[Log, dict[int, Record]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    written: int = 0

    def log(self, topic: str, partition: int) -> Log:
        return self.ids[topic], partition

    def took(self, log: Log, offset: int, record: Record) -> None:
        """A broker has acknowledged it."""
        with self._lock:
            self._records.setdefault(log, {})[offset] = record
            self.written += 1

    def end(self, log: Log) -> int:
        """Behind the last record that is known."""
        with self._lock:
            return max(self._records.get(log, ()), default=-1) + 1

    def records(self, log: Log) -> dict[int, Record]:
        with self._lock:
            return dict(self._records.get(log, {}))

    def forget(self, starts: Mapping[Log, int]) -> None:
        """Drop the records that are gone, and judged."""
        with self._lock:
            for log, start in starts.items():
                ours = self._records.get(log, {})
                for offset in [one for one in ours if one < start]:
                    if len(ours) > 1:  # the last one says where the log ends
                        del ours[offset]


def lowest(offsets: Iterable[int | None]) -> int | None:
    """The smallest of them; None if one is unknown, or none is there."""
    found = list(offsets)
    return None if not found or None in found else min(one for one in found if one is not None)
