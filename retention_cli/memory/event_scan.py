"""Event times read from records: what is remembered of them, and the prefix that is old enough (R2). Pure.

Reading every record in each run would be too slow, and remembering every time would be too much. So a partition's
records are divided into blocks of a thousand or more, and only each block's newest event time is kept. Blocks that
are old enough are skipped; only the block in which the prefix ends is read again.

The partition's memory knows which log a scan is of (:mod:`retention_cli.memory.partition`), and cuts it with the log.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from pydantic import TypeAdapter

from retention_cli.core.model import ANCIENT_MS, EventMax

BLOCKS_AT_MOST: Final = 256
FIRST_BLOCK_RECORDS: Final = 1_000


@dataclass(slots=True)
class Block:
    """Data records from ``start`` to ``end`` (exclusive): their number, largest time, and first unreadable offset.

    ``newest_ms`` is None if no record has a readable event time. ``ancient`` is the offset of the first record whose
    event time is before 2000 (G9).
    """

    start: int
    end: int
    records: int = 0
    newest_ms: int | None = None
    unreadable: int | None = None
    ancient: int | None = None


@dataclass(slots=True)
class EventScan:
    """How far a partition's event times were read, from one source (and under one ceiling of G4, if there is one).

    ``start`` is the first offset covered: S when the scan began or was last continued. ``end`` is the next offset to
    read. ``newest`` is the newest event time ever read, even if its record was deleted since. ``restarts`` counts how
    often the scan started over because records were lost, or came back.
    """

    source: str
    start: int
    end: int
    newest: EventMax | None = None
    blocks: list[Block] = field(default_factory=list)
    block_records: int = FIRST_BLOCK_RECORDS
    restarts: int = 0

    def add(self, offset: int, time_ms: int | None, ceiling_ms: int | None = None) -> None:
        """Add the next record, in the order of offsets. ``time_ms`` is None if it could not be read.

        A time beyond ``ceiling_ms`` ends a prefix like any other young one, but never becomes maxEventTime (G4).
        """
        block = self.blocks[-1] if self.blocks else None
        if block is None or block.records >= self.block_records:
            if len(self.blocks) >= BLOCKS_AT_MOST:
                self.blocks = list(_in_pairs(self.blocks))
                self.block_records *= 2
            block = Block(offset, offset)
            self.blocks.append(block)
        block.records += 1
        block.end = self.end = offset + 1
        if time_ms is None:
            if block.unreadable is None:
                block.unreadable = offset
            return
        if block.newest_ms is None or time_ms > block.newest_ms:
            block.newest_ms = time_ms
        if time_ms < ANCIENT_MS and block.ancient is None:
            block.ancient = offset
        if (self.newest is None or time_ms > self.newest.time_ms) and (ceiling_ms is None or time_ms <= ceiling_ms):
            self.newest = EventMax(time_ms, offset)

    def cut(self, end: int) -> EventScan:
        """Return the scan of a log that was cut at ``end`` (M2). It starts over if its newest record was cut off.

        A block that reaches beyond the cut is read again.
        """
        stands = self.newest is None or (self.newest.offset or 0) < end
        if stands and self.end <= end:
            return self
        if self.newest is None or not stands or self.start >= end:
            return EventScan(self.source, self.start, self.start, restarts=self.restarts + 1)
        left = [block for block in self.blocks if block.end <= end]
        reached = left[-1].end if left else self.start
        return EventScan(
            self.source, self.start, min(reached, end), self.newest, left, self.block_records, self.restarts + 1
        )

    def ancient_before(self, offset: int) -> int | None:
        """Return the first offset from ``start`` on, before ``offset``, with an event time before 2000, else None."""
        found = (block.ancient for block in self.blocks if block.end <= offset and block.ancient is not None)
        return next((one for one in found if one >= self.start), None)

    def prefix(self, log_start: int, cutoff_ms: int, *, skip: bool, ancient: bool = False) -> Block | int:
        """Return the offset where the prefix of records older than the cutoff ends, or a block to read to find it.

        A record without a readable event time ends the prefix, unless ``skip``. With ``ancient``, a block whose first
        time before 2000 is now below S must be read, too: it may hold others.
        """
        for block in self.blocks:
            if block.end <= log_start:
                continue
            young = block.newest_ms is not None and block.newest_ms >= cutoff_ms
            hidden = ancient and block.ancient is not None and block.ancient < log_start
            if young or hidden or (block.unreadable is not None and not skip):
                return Block(max(block.start, log_start), block.end)
        return max(self.end, log_start)

    def as_bytes(self) -> bytes:
        """Return the scan as compressed JSON."""
        return zlib.compress(_adapter().dump_json(self, exclude_defaults=True), 1)

    @classmethod
    def from_bytes(cls, raw: bytes | None, source: str, log_start: int) -> EventScan:
        """Return the scan that :meth:`as_bytes` wrote, starting at S.

        A scan of another source, or a broken one, starts over. So does one whose start lies beyond S, which has moved
        back: what lies before was never read, or was replaced (M3). It keeps the largest time.
        """
        if (scan := read_scan(raw)) is None or scan.source != source:
            return cls(source, log_start, log_start)
        if log_start < scan.start:
            return cls(source, log_start, log_start, scan.newest, restarts=scan.restarts + 1)
        scan.blocks = [block for block in scan.blocks if block.end > log_start]
        scan.start, scan.end = max(scan.start, log_start), max(scan.end, log_start)
        return scan


@cache
def _adapter() -> TypeAdapter[EventScan]:
    """Return the adapter for scans, built on first use: most plans have no scan."""
    return TypeAdapter(EventScan)


def read_scan(raw: bytes | None) -> EventScan | None:
    """Return the scan that :meth:`EventScan.as_bytes` wrote, None if it is not valid: it may come from elsewhere."""
    if not raw:
        return None
    try:
        return _adapter().validate_json(zlib.decompress(raw), strict=True)
    except (zlib.error, ValueError):
        return None


def further(mine: bytes | None, theirs: bytes | None) -> bytes | None:
    """Return the further one of two scans, with the largest time that either has ever read.

    One that started over more often is further: it knows of lost records. If the sources differ, ``mine`` is returned.
    """
    if mine == theirs or theirs is None:
        return mine
    one, other = read_scan(mine), read_scan(theirs)
    if one is None:
        return theirs
    if other is None or one.source != other.source:
        return mine
    ahead = (one.restarts, one.end, mine or b"") >= (other.restarts, other.end, theirs)
    first, raw = (one, mine) if ahead else (other, theirs)
    seen = [scan.newest for scan in (one, other) if scan.newest is not None]
    newest = max(seen, key=lambda time: time.rank, default=None)
    if newest == first.newest:
        return raw
    first.newest = newest
    return first.as_bytes()


def _in_pairs(blocks: Sequence[Block]) -> Iterator[Block]:
    for i in range(0, len(blocks), 2):
        pair = blocks[i : i + 2]
        yield Block(
            pair[0].start,
            pair[-1].end,
            sum(one.records for one in pair),
            max((one.newest_ms for one in pair if one.newest_ms is not None), default=None),
            min((one.unreadable for one in pair if one.unreadable is not None), default=None),
            min((one.ancient for one in pair if one.ancient is not None), default=None),
        )
