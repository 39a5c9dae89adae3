"""How full disks are and how fast they grow: each look at them is remembered."""

from __future__ import annotations

from collections.abc import Sequence

from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Maybe, Reason, Unknown
from retention_cli.disks.solve.outcome import DiskOutcome
from retention_cli.disks.solve.room import Disk, disks_of
from retention_cli.memory.disk import Growth, Look, growth
from retention_cli.memory.interface import Memory
from retention_cli.policy.settings import DiskRules


def look(
    reader: ClusterReader, rules: DiskRules, memory: Memory, now_ms: int
) -> tuple[list[DiskOutcome], list[Reason]]:
    """Return how full each disk is and how fast it grows, without any plan, and what can't be told."""
    disks, notes = disks_of(dict(reader.log_dirs(reader.brokers())), rules)
    growths = remember(disks, memory, now_ms)
    return [DiskOutcome(disk, rules.percent, growth=growths.get(disk.name)) for disk in disks], notes


def remember(disks: Sequence[Disk], memory: Memory, now_ms: int) -> dict[str, Maybe[Growth]]:
    """Remember how full disks are, and return how fast they grow, by their names."""
    found: dict[str, Maybe[Growth]] = {}
    for disk in disks:
        if not isinstance(disk.room, Unknown):
            known, now = memory.disk(disk.key), Look(now_ms, disk.room.used_bytes, disk.room.total_bytes)
            found[disk.name] = growth(known.looks, now)
            known.add(now)
    return found
