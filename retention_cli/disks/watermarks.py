"""R7: a disk that fills up shortens the retention times of the partitions on it (R7). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction

from retention_cli.core.grouping import by_key
from retention_cli.core.model import Code, Maybe, TopicPartition, Unknown, Usage, Watermark
from retention_cli.disks.disk import Disk, Room


def reached(watermarks: Sequence[Watermark], room: Room) -> Watermark | None:
    """Return the highest watermark that a disk's usage has reached, None if it has reached none."""
    percent = Fraction(100 * room.used_bytes, room.total_bytes)
    above = [mark for mark in watermarks if percent >= Fraction(str(mark.percent))]
    return max(above, key=lambda mark: mark.percent, default=None)


def usage_for(watermarks: Sequence[Watermark], rooms: Iterable[tuple[str, Maybe[Room]]]) -> Maybe[Usage | None]:
    """Return the highest watermark reached on any disk with a replica of a partition, None for none.

    Args:
        watermarks: the policy's watermarks.
        rooms: each disk's name and usage. A disk with unknown usage makes the result unknown, unless another disk has
            reached a watermark: then at least that one is reached.
    """
    highest: Usage | None = None
    unknown: Unknown | None = None
    for name, room in rooms:
        if isinstance(room, Unknown):
            unknown = unknown or room
            continue
        mark = reached(watermarks, room)
        if mark is not None and (highest is None or mark.percent > highest.mark.percent):
            highest = Usage(name, room.percent, mark)
    return unknown if highest is None and unknown is not None and watermarks else highest


def usages(
    watermarks: Sequence[Watermark],
    disks: Sequence[Disk],
    tps: Collection[TopicPartition],
    replicas: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Maybe[Usage | None]]:
    """Return R7's usage of each partition; empty if the policy has no watermarks.

    Args:
        watermarks: the policy's watermarks.
        disks: all known disks.
        tps: the partitions.
        replicas: the broker ids of each partition's replicas, from the cluster's metadata.
    """
    if not watermarks:
        return {}
    on = by_key((tp, disk) for disk in disks for tp in disk.replicas)
    found = {}
    for tp in tps:
        there = on.get(tp, ())
        absent = {*replicas[tp]} - {one.broker for one in there}
        found[tp] = usage_for(watermarks, [*((one.name, one.room) for one in there), *map(_unread, absent)])
    return found


def _unread(broker: int) -> tuple[str, Unknown]:
    why = f"how full broker {broker}'s disks are could not be read, so the watermarks are unknown"
    return f"broker {broker}", Unknown.because(Code.R7, why)
