"""Find replicas that lag behind others: how their bytes spread over the partition's offsets is unknown (R6). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from retention_cli.core.model import TopicPartition, Unknown
from retention_cli.core.units import format_bytes
from retention_cli.disks.solve.room import Disk

_SEGMENTS: Final = 2
"""Replicas of one log may differ by this many segments: each broker rolls and sweeps them at its own time."""


def smaller_replicas(
    disks: Sequence[Disk], tps: Collection[TopicPartition], segment_bytes: Mapping[str, int]
) -> dict[tuple[int, TopicPartition], Unknown]:
    """Return, by disk number and partition, why nothing is estimated for a replica that lags, or is being filled.

    An estimate spreads a replica's bytes over its partition's offsets. A replica that ends early has only older
    records, and would be trimmed much too far. Brokers don't report a follower's log end, but its size shows that it
    lags.

    Args:
        disks: the disks as reported by the brokers.
        tps: the partitions to check.
        segment_bytes: the topics' ``segment.bytes``, where they could be read.
    """
    largest: dict[TopicPartition, int] = {}
    for disk in disks:
        for tp, size_bytes in disk.replicas.items():
            if tp in tps:
                largest[tp] = max(size_bytes, largest.get(tp, 0))
    found = {}
    for n, disk in enumerate(disks):
        for tp, size_bytes in disk.replicas.items():
            room = _SEGMENTS * segment_bytes.get(tp.topic, 0)
            if tp in largest and size_bytes + room < largest[tp]:
                found[n, tp] = Unknown.because(
                    "R6",
                    f"its replica on broker {disk.broker} takes {format_bytes(size_bytes)}, another "
                    f"{format_bytes(largest[tp])}: it lags, or is being filled, and what of it is old is unknown; "
                    "run again once they are as large as each other, or give an inventory (kretain segments scan, "
                    "--inventory)",
                )
    return found
