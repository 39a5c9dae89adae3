"""How full disks are, and how fast they grow: each look is remembered in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Maybe, Reason, TopicPartition, Unknown
from retention_cli.disks.devices import all_disks
from retention_cli.disks.disk import Disk, DiskOutcome
from retention_cli.memory.disk import Growth, Look, growth, lowest
from retention_cli.memory.ledger import Ledger
from retention_cli.policy.settings import DiskRules

_UNEXPLAINED: Final = ":unexplained"
"""Suffix of a disk's key in memory: looks at the bytes that no live replica explains, not at all used bytes."""


def look(
    reader: ClusterReader, rules: DiskRules, memory: Ledger, now_ms: int
) -> tuple[list[DiskOutcome], list[Reason]]:
    """Return how full each disk is and how fast it grows, without a plan, and the reasons for what is unknown."""
    replicas = {
        TopicPartition(name, number): one.replicas
        for name, topic in reader.metadata().topics.items()
        for number, one in topic.partitions.items()
    }
    disks, notes = all_disks(dict(reader.log_dirs(reader.brokers())), replicas, rules)
    growths = remember(disks, memory, now_ms)
    return [DiskOutcome(disk, rules.percent, growth=growths.get(disk.name)) for disk in disks], notes


def remember(disks: Sequence[Disk], memory: Ledger, now_ms: int) -> dict[str, Maybe[Growth]]:
    """Remember how full disks are, and return how fast they grow, by disk name."""
    found: dict[str, Maybe[Growth]] = {}
    for disk in disks:
        if not isinstance(disk.room, Unknown):
            known, now = memory.disk(disk.key), Look(now_ms, disk.room.used_bytes, disk.room.total_bytes)
            found[disk.name] = growth(known.looks, now)
            known.add(now)
    return found


def stays_by_ledger(disks: Sequence[Disk], memory: Ledger, now_ms: int, over_ms: int | None) -> dict[str, int]:
    """Remember the bytes that no live replica explains; return how many of them stay, by disk name (R6).

    The smallest amount seen over more than ``over_ms`` belongs to other users of the disk, and stays. A disk for which
    that is not yet known is left out; so are all disks if ``over_ms`` is None.
    """
    found: dict[str, int] = {}
    for disk in disks:
        if isinstance(disk.room, Unknown):
            continue
        known = memory.disk(f"{disk.key}{_UNEXPLAINED}")
        now = Look(now_ms, disk.unexplained_bytes, disk.room.total_bytes)
        stays = None if over_ms is None else lowest(known.looks, now, over_ms)
        if stays is not None:
            found[disk.name] = stays
        known.add_lowest(now)
    return found


def looks_at(disk: Disk, memory: Ledger) -> tuple[Look, ...]:
    """Return the remembered looks at the bytes on a disk that no live replica explains."""
    return memory.disk(f"{disk.key}{_UNEXPLAINED}").looks
