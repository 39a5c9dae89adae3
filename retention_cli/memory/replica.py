"""What is remembered of a replica's size, so that dead bytes are never counted as live ones (R5, R6). Pure.

A replica's size includes dead bytes: those below S that its broker has not swept yet. No client can query them. But a
sweep deletes all dead segments of a log at once, and then the size falls. So each pass remembers S, the size, and up to
where the broker has certainly swept:

- a log that begins at 0 has nothing below that;
- if the size fell between two passes, what was below S at the first of them is swept. So is what S moved past in
  between, if the fall accounts for that as well, except for a segment: only complete ones are deleted. On a compacted
  topic the cleaner makes sizes fall, too: there the fall must also account for all that was dead at the first pass;
- if S has not moved since the replica was first seen, for two of the broker's checks and the delete delay, all below S
  is swept. Once S has moved, only a fall counts: if a broker's sweeping is stuck, each pass would otherwise trim again.

No sweep deletes the active segment, though all of it may be dead if S is at the end of the log. Once another segment is
active, it is one dead segment in a trusted size, until the next check: code that counts bytes leaves room for one.

Swept files leave the size at once, but the disk a little later (``file.delete.delay.ms``): so recent falls are
remembered, too. A fall shows only what growth did not make up for. So what a broker *may* have swept since the last
look is estimated as well, from the offsets below S.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple

UNKNOWN_START: Final = -1
"""Up to where a replica was swept is unknown; or S has moved since it was first seen."""
REPLICAS_AT_MOST: Final = 16
_ROW: Final = struct.Struct("<12q")
ROW_BYTES: Final = _ROW.size
ANY_BYTES: Final = 1 << 60
"""More than any disk has: how much a broker may have swept is unknown."""
_UNTOLD_DELAY_MS: Final = 3_600_000
"""Assumed if a topic's ``file.delete.delay.ms`` can't be read: long, so that less is trimmed."""


class Sweeping(NamedTuple):
    """How a broker sweeps a topic's logs. None if it can't be read.

    ``check_ms`` is how often it checks, ``delay_ms`` how long a deleted file stays on disk. ``segment_bytes`` is the
    topic's ``segment.bytes``, 0 if unknown. ``compacted``: the topic is, or may be, compacted.
    """

    check_ms: int | None
    delay_ms: int | None
    segment_bytes: int = 0
    compacted: bool = False

    @property
    def wait_ms(self) -> int | None:
        """How long until what is dead is certainly deleted (ms): it spans a full check. None if unknown."""
        return None if self.check_ms is None or self.delay_ms is None else 2 * self.check_ms + self.delay_ms

    @property
    def removal_ms(self) -> int:
        """How long a swept file may stay on the disk (ms)."""
        return _UNTOLD_DELAY_MS if self.delay_ms is None else self.delay_ms


class ReplicaSeen(NamedTuple):
    """A replica as last seen.

    ``place`` is its broker and log dir (:func:`place_of`), ``seen_ms`` our wall clock (Unix ms). ``since_ms`` is when
    it was first seen, :data:`UNKNOWN_START` if S has moved since. ``swept`` is the offset up to which its broker has
    certainly swept, :data:`UNKNOWN_START` if unknown. ``fallen_bytes`` left its size recently, between
    ``fell_after_ms`` and ``fell_by_ms``; all three are 0 if none did. ``swept_bytes`` is how much its broker may have
    swept by ``swept_by_ms`` of what may still be on the disk (an upper bound, :data:`ANY_BYTES` if unknown).
    """

    place: int
    seen_ms: int
    log_start: int
    high_watermark: int
    size_bytes: int
    since_ms: int
    swept: int
    fallen_bytes: int = 0
    fell_after_ms: int = 0
    fell_by_ms: int = 0
    swept_bytes: int = 0
    swept_by_ms: int = 0

    @property
    def clean(self) -> bool:
        """Whether its size certainly includes no dead segments."""
        return self.log_start <= max(0, self.swept)

    @property
    def dead_bytes(self) -> int:
        """How many of its bytes may be dead: the share of the offsets between the last sweep and S."""
        if self.clean:
            return 0
        from_offset = max(0, self.swept)
        return self.size_bytes * (self.log_start - from_offset) // max(1, self.high_watermark - from_offset)

    def leaving_bytes(self, now_ms: int, sweeping: Sweeping) -> int:
        """Return how many bytes have left its size, but may still be on the disk."""
        swept = sweeping.wait_ms is not None and now_ms >= self.fell_after_ms + sweeping.wait_ms
        return 0 if swept or now_ms >= self.fell_by_ms + sweeping.removal_ms else self.fallen_bytes

    def may_leave_bytes(self, now_ms: int, sweeping: Sweeping) -> int:
        """Return how many bytes its broker may have swept that may still be on the disk, at most."""
        return 0 if now_ms >= self.swept_by_ms + sweeping.removal_ms else self.swept_bytes

    def swept_until(self, log_start: int) -> int:
        """Return how many bytes its broker has swept at most since its last certain sweep, with S at an offset."""
        from_offset = max(0, self.swept)
        if log_start <= from_offset:
            return 0
        if self.size_bytes == 0 or self.high_watermark <= from_offset:
            return ANY_BYTES
        return self.size_bytes * (log_start - from_offset) // (self.high_watermark - from_offset)


def place_of(broker: int, path: str) -> int:
    """Return a number for a broker's log dir."""
    return broker << 32 | zlib.crc32(path.encode())


def seen_again(
    before: ReplicaSeen | None,
    place: int,
    now_ms: int,
    log_start: int,
    high_watermark: int,
    size_bytes: int,
    sweeping: Sweeping,
) -> ReplicaSeen:
    """Return what to remember of a replica after one more pass. S must have been read before its size.

    Args:
        before: what was remembered, None if it was never seen.
        place: its broker and log dir (:func:`place_of`).
        now_ms: our wall clock (Unix ms).
        log_start: S, as reported by its leader.
        high_watermark: H.
        size_bytes: its size, as reported by its broker.
        sweeping: how that broker sweeps it.
    """
    if before is None:
        swept = 0 if log_start == 0 else UNKNOWN_START
        return ReplicaSeen(place, now_ms, log_start, high_watermark, size_bytes, now_ms, swept)
    now_ms = max(now_ms, before.seen_ms)  # our clock may have been set back
    since_ms = before.since_ms if log_start == before.log_start else UNKNOWN_START
    swept = min(before.swept, log_start)  # S moves back if a trim is undone
    fallen, after_ms, by_ms = before.leaving_bytes(now_ms, sweeping), before.fell_after_ms, before.fell_by_ms
    gone, gone_ms = before.may_leave_bytes(now_ms, sweeping), before.swept_by_ms
    fell = before.size_bytes - size_bytes
    if more := max(fell, before.swept_until(log_start)):
        gone, gone_ms = min(ANY_BYTES, gone + more), now_ms
    if fell > 0:
        live_bytes = before.size_bytes - before.dead_bytes
        share = live_bytes * (log_start - before.log_start) // max(1, before.high_watermark - before.log_start)
        if not sweeping.compacted or fell + sweeping.segment_bytes >= before.dead_bytes:
            swept = max(swept, min(before.log_start, log_start))
        if fell - before.dead_bytes + sweeping.segment_bytes >= share:
            swept = log_start
        fallen, after_ms, by_ms = fallen + fell, before.seen_ms, now_ms
    if since_ms != UNKNOWN_START and sweeping.wait_ms is not None and now_ms - since_ms >= sweeping.wait_ms:
        swept = log_start
    if not fallen:
        after_ms = by_ms = 0
    return ReplicaSeen(
        place,
        now_ms,
        log_start,
        high_watermark,
        size_bytes,
        since_ms,
        swept,
        fallen,
        after_ms,
        by_ms,
        gone,
        gone_ms if gone else 0,
    )


def started_over(packed: bytes, now_ms: int) -> bytes:
    """Return replicas as if they had just been seen for the first time: after an election their sizes prove nothing.

    A former leader may have lost a tail that no other replica had, and a restored log has dead bytes again: then a size
    that falls is no sweep (M1, M3). Bytes that fell before are still leaving the disk.
    """
    return pack(
        row._replace(size_bytes=0, since_ms=max(now_ms, row.seen_ms), swept=0 if row.log_start == 0 else UNKNOWN_START)
        for row in unpack(packed)
    )


def merged(packed: bytes, other: bytes) -> bytes:
    """Return what both remember of a partition's replicas: each as last seen."""
    rows = sorted((*unpack(packed), *unpack(other)))  # of two of one place the later one is last
    return pack({row.place: row for row in rows}.values())


def pack(rows: Iterable[ReplicaSeen]) -> bytes:
    """Return replicas as bytes, sorted by place; of too many, those seen last."""
    latest = sorted(rows, key=lambda row: (-row.seen_ms, row.place))[:REPLICAS_AT_MOST]
    return b"".join(_ROW.pack(*row) for row in sorted(latest))


def unpack(packed: bytes) -> tuple[ReplicaSeen, ...]:
    """Return the replicas that :func:`pack` packed.

    Raises:
        ValueError: they are cut short.
    """
    if len(packed) % ROW_BYTES:
        raise ValueError("replicas are cut short")
    return tuple(ReplicaSeen(*row) for row in _ROW.iter_unpack(packed))
