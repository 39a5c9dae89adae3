"""What a look at a log adds to a partition's row, where there is nothing odd about either. Pure.

Nearly all partitions of nearly all clusters are as they were, have grown, or are new: no election, no cut, nothing but
samples remembered. What becomes of their rows is decided here, from the row's values to the next ones, without an
object each. Of anything else nothing is returned, and :class:`~retention_cli.memory.partition.PartitionMemory` does
it. tests/unit/memory/test_plain_look.py checks that both come to the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from retention_cli.memory.samples import SAMPLE, SAMPLE_BYTES, SAMPLES_AT_MOST, last, pack, thinned, unpack

_MOST_BYTES: Final = SAMPLES_AT_MOST * SAMPLE_BYTES


class PlainLook(NamedTuple):
    """A partition's log as it was read, no leader epoch was asked about: S, H, and the current leader epoch."""

    partition: int
    leader_epoch: int
    log_start: int
    high_watermark: int


def looked(
    before: Sequence[Any] | None, look: PlainLook, wall_ms: int, *, created: bool | None
) -> tuple[Any, ...] | None:
    """Return the values of a row after a look; None if ``PartitionMemory`` must be asked.

    Args:
        before: the values of the row (:func:`.partition_rows.values_of`), None if nothing is remembered.
        look: what was read.
        wall_ms: our wall clock, not before H was read (Unix ms).
        created: whether the topic is CreateTime now, None if that is unknown.
    """
    _, epoch, start, end = look
    if before is None:
        return (epoch, epoch, None, start, SAMPLE.pack(wall_ms, end), *_NOTHING, int(bool(created)), *_NO_STAMPS)
    was_epoch, last_epoch, earlier, was_start, samples, *more = before
    if was_epoch != epoch or earlier or not samples or more[:3] != _NO_TIMES or more[4:] != _NO_MORE:
        return None
    was_ms, was_end = last(samples)
    if end < was_end or start < was_start or created not in (None, bool(more[3])):
        return None
    if end > was_end:
        last_epoch = epoch  # no other epoch is known to reach so far
        samples += SAMPLE.pack(max(wall_ms, was_ms), end)  # where our clock was set back, a later time is true, too
        if len(samples) > _MOST_BYTES:
            samples = pack(thinned(unpack(samples)))
    elif last_epoch is None:
        last_epoch = epoch
    return (epoch, last_epoch, None, start, samples, *more)


_NO_TIMES: Final = [None, None, ""]
"""In columns newest_ms, newest_offset and data_at."""
_NO_MORE: Final = [0, None, None, None, None, None]
"""In columns created_below, front, front_append, scan, replicas and newest_under."""
_NOTHING: Final = tuple(_NO_TIMES)
_NO_STAMPS: Final = tuple(_NO_MORE)
