"""Account for replicas' bytes that are not in an inventory: written after the scan, and dead or trimmed (R6). Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from retention_cli.core.model import TopicPartition
from retention_cli.disks.solve.borne_out import ScannedReplica
from retention_cli.disks.solve.leaving import Leaving
from retention_cli.disks.solve.room import Disk

Scanned = Mapping[tuple[int, TopicPartition], ScannedReplica]
"""The trusted replicas of an inventory, by disk number and partition."""


def doubted_bytes(
    disks: Sequence[Disk],
    scanned: Scanned,
    log_starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    above: Callable[[Disk], bool],
    decided: Mapping[TopicPartition, int],
) -> list[int]:
    """Return, per disk, how many bytes of live replicas may be dead or be freed by trims without being counted.

    A walk counts scanned closed segments below S, or below the other rules' bounds. If such an offset reaches the end
    of what was scanned, newer segments may be below it that are in no row; if a replica was not scanned, or is not
    trusted, all of its segments are in no row. Then all of its size that is not counted may be freed.

    Args:
        disks: the disks as reported by the brokers.
        scanned: the inventory's trusted replicas on them.
        log_starts: S of partitions, where it is known.
        ends: H of partitions, where it is known.
        above: returns whether a disk is above its ceiling; the result is 0 for others.
        decided: the bounds of trims.
    """
    return [
        sum(
            _doubted(size_bytes, scanned.get((n, tp)), log_starts.get(tp), ends.get(tp), decided.get(tp, 0))
            for tp, size_bytes in disk.replicas.items()
        )
        if above(disk)
        else 0
        for n, disk in enumerate(disks)
    ]


class Walked(Protocol):
    """The result of a walk: its bounds."""

    @property
    def bounds(self) -> Mapping[TopicPartition, int]: ...  # noqa: D102


WalkedT = TypeVar("WalkedT", bound=Walked)


def until_counted(
    leaving: Sequence[Leaving],
    doubted: Callable[[Mapping[TopicPartition, int]], Sequence[int]],
    decided: Mapping[TopicPartition, int],
    walk: Callable[[Sequence[Leaving]], WalkedT],
) -> WalkedT:
    """Return a walk's result, repeated until it accounts for the uncounted bytes that its own bounds free.

    A bound may reach beyond what was scanned of a replica. The bytes that it frees there can't be counted, so the walk
    is repeated with them as doubted, and trims nothing to make up for them.

    Args:
        leaving: the bytes that leave each disk, without doubted ones.
        doubted: returns the doubted bytes of each disk for trims to these offsets (:func:`doubted_bytes`).
        decided: the other rules' bounds.
        walk: runs the walk, given what is leaving each disk.
    """
    most = list(doubted(decided))
    while True:
        found = walk([one._replace(doubted_bytes=size) for one, size in zip(leaving, most, strict=True)])
        more = list(map(max, most, doubted({**decided, **found.bounds})))
        if more == most:
            return found
        most = more


def indexes_gone(
    scanned: Iterable[ScannedReplica], disks: Sequence[Disk], doubts: Collection[tuple[int, str, int]]
) -> dict[str, int]:
    """Return, by disk name, the bytes of scanned indexes that are, or will be, deleted with their segments.

    Brokers' sizes include no indexes: at the scan they counted as bytes that stay. The indexes of segments below S are
    deleted with these; so are all indexes of a replica that no longer exists, or is not trusted.

    Args:
        scanned: the inventory's summary of each replica.
        disks: the disks as reported by the brokers.
        doubts: replicas (broker, topic, partition) whose inventory rows are not trusted.
    """
    on = {(disk.broker, path): disk for disk in disks for path in disk.dirs}
    found: dict[str, int] = {}
    for one in scanned:
        disk = on.get((one.broker, one.dir))
        if disk is not None:
            there = one.tp in disk.replicas and (one.broker, *one.tp) not in doubts
            size_bytes = one.dead_index_bytes if there else one.index_bytes
            found[disk.name] = found.get(disk.name, 0) + size_bytes
    return found


def _doubted(size_bytes: int, one: ScannedReplica | None, log_start: int | None, end: int | None, decided: int) -> int:
    if log_start is None:
        return size_bytes
    bound = max(log_start, decided)
    if bound == 0:
        return 0
    if one is None:
        return size_bytes
    unchanged = end == one.end and size_bytes <= one.log_bytes
    if bound <= one.active_base or bound < one.end or unchanged:
        return 0  # the segment that was active at the scan ends beyond the bound, or is still active
    closed_bytes = one.log_bytes - one.active_bytes
    dead_bytes = closed_bytes - one.live_bytes
    counted = min(dead_bytes, max(0, size_bytes - one.live_bytes - one.active_bytes)) + one.live_bytes
    return max(0, size_bytes - counted)
