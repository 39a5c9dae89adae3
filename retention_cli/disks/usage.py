"""How full disks are, and how fast they grow: each look is remembered in the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Maybe, Reason, TopicPartition, Unknown
from retention_cli.disks.devices import all_disks
from retention_cli.disks.disk import Disk, DiskOutcome
from retention_cli.disks.inventory.format import InventoryFile
from retention_cli.disks.pending_deletes import stays, stays_by_scan
from retention_cli.memory.disk import Growth, Look, growth, lowest, unchanged
from retention_cli.memory.ledger import Ledger
from retention_cli.policy.settings import DiskRules

_UNEXPLAINED: Final = ":unexplained"
"""Suffix of a disk's key in memory: looks at the bytes that no live replica explains, not at all used bytes."""
_REPLICAS: Final = f"{_UNEXPLAINED}:replicas"
"""Suffix of looks at how many replicas a disk has: inverted (``~``) if one of them was seen for the first time."""


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


def last_look_ms(disk: Disk, memory: Ledger) -> int | None:
    """Return when a disk's replicas were looked at for R6 (Unix ms), None if they never were."""
    looks = memory.disk(f"{disk.key}{_REPLICAS}").looks
    return looks[-1].wall_ms if looks else None


def stays_bytes(
    disk: Disk,
    memory: Ledger,
    files: Sequence[InventoryFile],
    reserved: Mapping[str, int],
    now_ms: int,
    over_ms: int | None,
    may_leave_bytes: int | None,
) -> int:
    """Remember the bytes that no live replica explains; return how many of them are known to stay (R6).

    The smallest amount seen over more than ``over_ms`` (None if unknown) stays, without what brokers may have swept
    since the last look. If a replica came or went within that time, its old files may be leaving, and nothing is known.
    An inventory shows what stays, too (:func:`~retention_cli.disks.pending_deletes.stays`).
    """
    if isinstance(disk.room, Unknown):
        return 0
    replicas = memory.disk(f"{disk.key}{_REPLICAS}")
    count = Look(now_ms, ~len(disk.replicas) if may_leave_bytes is None else len(disk.replicas), disk.room.total_bytes)
    known = memory.disk(f"{disk.key}{_UNEXPLAINED}")
    now = Look(now_ms, disk.unexplained_bytes, disk.room.total_bytes)
    scanned = stays_by_scan(disk, files, reserved, now_ms, known.looks)
    ledger_bytes = None
    if over_ms is not None and may_leave_bytes is not None and unchanged(replicas.looks, count, over_ms):
        ledger_bytes = lowest(known.looks, now, over_ms)
        if ledger_bytes is not None:
            ledger_bytes = max(0, min(ledger_bytes, disk.unexplained_bytes - may_leave_bytes))
    known.add(now, lowest=True)
    replicas.add(count, lowest=True)
    return stays(scanned, ledger_bytes, now_ms, over_ms)
