"""What an inventory can't tell of replicas by now: what was written since, and trimmed, is in no row (R6). Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from retention_cli.core.model import TopicPartition
from retention_cli.disks.solve.borne_out import ScannedReplica
from retention_cli.disks.solve.leaving import Leaving
from retention_cli.disks.solve.room import Disk

Scanned = Mapping[tuple[int, TopicPartition], ScannedReplica]
"""What is believed of an inventory, by disk number and partition."""


def doubted_bytes(
    disks: Sequence[Disk],
    scanned: Scanned,
    log_starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    above: Callable[[Disk], bool],
    decided: Mapping[TopicPartition, int],
) -> list[int]:
    """Return, per disk, how many bytes of live replicas may be dead, or go by the other rules, and nobody counts them.

    A walk counts closed segments that were scanned and lie below S, or below what the other rules trim to. Where that
    reaches the end of what was scanned, segments may lie there by now of which nobody knows; where a replica was
    not scanned, or is not believed, any do. Then all of its size that is not counted may go.

    Args:
        disks: as brokers describe them now.
        scanned: the inventory's replicas on them.
        log_starts: S, where it is known.
        ends: H, where it is known.
        above: says of a disk whether it is above its ceiling: of others nothing is asked.
        decided: where trims go.
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
    """What a walk comes to: where it trims to."""

    @property
    def bounds(self) -> Mapping[TopicPartition, int]: ...  # noqa: D102


WalkedT = TypeVar("WalkedT", bound=Walked)


def until_counted(
    leaving: Sequence[Leaving],
    doubted: Callable[[Mapping[TopicPartition, int]], Sequence[int]],
    decided: Mapping[TopicPartition, int],
    walk: Callable[[Sequence[Leaving]], WalkedT],
) -> WalkedT:
    """Return what a walk comes to.

    Its own bounds may reach behind what was scanned of a replica: what they free there nobody can count, so it is
    walked once more, and nothing goes in its stead.

    Args:
        leaving: what is leaving each disk, without what is doubted.
        doubted: gives that, by disk, with trims to these offsets (:func:`doubted_bytes`).
        decided: where the other rules trim to.
        walk: walks, by what is leaving.
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
    """Return, by disk name, what scanned indexes took that go, or have gone, with their segments.

    No broker counts indexes: at the scan they were among what stays. Those of segments below S leave with these, and
    all of a replica's where it is not there any more, or not believed.

    Args:
        scanned: what the inventory says of each replica.
        disks: as brokers describe them now.
        doubts: replicas (broker, topic, partition) of which the inventory is not believed.
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
        return 0  # what was active at the scan reaches beyond, or still is
    closed_bytes = one.log_bytes - one.active_bytes
    dead_bytes = closed_bytes - one.live_bytes
    counted = min(dead_bytes, max(0, size_bytes - one.live_bytes - one.active_bytes)) + one.live_bytes
    return max(0, size_bytes - counted)
