"""R7: a disk that fills up shortens the retention times of the partitions on it (R7). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction

from retention_cli.core.codes import Code
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Maybe, TopicPartition, Unknown, Usage, Watermark
from retention_cli.disks.disk import Disk


def reached(watermarks: Sequence[Watermark], used_bytes: int, total_bytes: int) -> Watermark | None:
    """Return the highest watermark that a disk's usage has reached, None if it has reached none.

    Raises:
        ValueError: ``total_bytes`` is not positive.
    """
    if total_bytes <= 0:
        raise ValueError(f"a disk of {total_bytes} bytes")
    percent = Fraction(100 * used_bytes, total_bytes)
    above = [mark for mark in watermarks if percent >= Fraction(str(mark.percent))]
    return max(above, key=lambda mark: mark.percent, default=None)


def usage_for(
    watermarks: Sequence[Watermark], disks: Iterable[tuple[str, Maybe[tuple[int, int]]]]
) -> Maybe[Usage | None]:
    """Return the highest watermark reached on any disk with a replica of a partition, None for none.

    Args:
        watermarks: the policy's watermarks.
        disks: each disk's name and its (used, total) bytes. A disk with unknown usage makes the result unknown, unless
            another disk has reached a watermark: then at least that one is reached.
    """
    highest: Usage | None = None
    unknown: Unknown | None = None
    for name, state in disks:
        if isinstance(state, Unknown):
            unknown = unknown or state
            continue
        mark = reached(watermarks, *state)
        if mark is not None and (highest is None or mark.percent > highest.mark.percent):
            highest = Usage(name, 100 * state[0] / state[1], mark)
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
    return {tp: _usage(watermarks, on.get(tp, ()), replicas[tp]) for tp in tps}


def _usage(watermarks: Sequence[Watermark], disks: Sequence[Disk], brokers: Sequence[int]) -> Maybe[Usage | None]:
    states: list[tuple[str, Maybe[tuple[int, int]]]] = [
        (one.name, one.room if isinstance(one.room, Unknown) else (one.room.used_bytes, one.room.total_bytes))
        for one in disks
    ]
    for broker in {*brokers} - {one.broker for one in disks}:
        why = f"how full broker {broker}'s disks are could not be read, so the watermarks are unknown"
        states.append((f"broker {broker}", Unknown.because(Code.R7, why)))
    return usage_for(watermarks, states)
