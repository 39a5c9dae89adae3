"""Determine how many of a disk's used bytes are leaving, or may be (R6). Pure.

Brokers' replica sizes don't include files that were swept (``.deleted``), folders of deleted topics (``-delete``), of
replicas that were moved away, and stray ones; the volume's usage does. So used bytes that no live replica explains may
be leaving, unless an inventory or the ledger shows that they stay. An inventory in turn lacks what was written after
the scan, so bytes of live replicas may be dead, or be freed by a trim, and be in none of its rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from retention_cli.core.model import TopicPartition, Unknown
from retention_cli.disks.disk import Disk, Leaving, above_ceiling, setting_for
from retention_cli.disks.inventory.format import InventoryFile, ScannedReplica
from retention_cli.memory.disk import DiskSample
from retention_cli.policy.settings import DiskRules

SAYS_FOR_MS: Final = 3_600_000
"""How long an inventory proves which bytes stay: later, other users of the disk may have freed theirs."""
_AHEAD_MS: Final = 300_000
_EXPLAINED: Final = ("log_bytes", "pending_bytes", "future_bytes", "stray_bytes")


class Scanned(NamedTuple):
    """How many bytes stay on a disk according to an inventory, and when it was scanned (Unix ms)."""

    stays_bytes: int
    at_ms: int


def leaving(disk: Disk, known_bytes: int, stays_bytes: int) -> Leaving:
    """Return which bytes are leaving a disk, or may be.

    Args:
        disk: the disk as reported by its broker.
        known_bytes: the bytes that its replicas' sizes lost recently.
        stays_bytes: how many of the bytes that no live replica explains are known to stay.
    """
    return Leaving(known_bytes, max(0, disk.unexplained_bytes - stays_bytes - known_bytes))


def stays(scanned: Scanned | None, ledger_bytes: int | None, now_ms: int, over_ms: int | None) -> int:
    """Return how many of the bytes that no live replica explains stay.

    The ledger's amount covers the last ``over_ms``; a scan within that time is more recent, and takes precedence.

    Args:
        scanned: the inventory's amount, None if it has none.
        ledger_bytes: the ledger's amount, None if it is not known yet.
        now_ms: this machine's time, Unix ms.
        over_ms: the time over which the ledger takes the smallest amount, None if brokers' sweep settings are unknown.
    """
    if scanned is None:
        return ledger_bytes or 0
    if ledger_bytes is None or over_ms is None or now_ms - scanned.at_ms < over_ms:
        return scanned.stays_bytes
    return max(scanned.stays_bytes, ledger_bytes)


def stays_by_scan(
    disk: Disk,
    files: Sequence[InventoryFile],
    reserved: Mapping[str, int],
    now_ms: int,
    samples: Sequence[DiskSample] = (),
) -> Scanned | None:
    """Return the bytes that stay on a disk by an inventory: used at the scan, and neither a log's nor leaving.

    None if no scan is usable: it is too old, lacks one of the disk's dirs, or is of a volume of another size; or it
    could not read a partition, or saw one disappear, so that bytes may have been leaving that it did not count.

    Args:
        disk: the disk as reported by its broker.
        files: the inventory's files.
        reserved: ``disks.reserved``.
        now_ms: this machine's time, Unix ms.
        samples: looks at the bytes that no live replica explains. A smaller amount since the scan lowers the result.
    """
    room = disk.room
    if isinstance(room, Unknown) or not disk.dirs:
        return None
    for file in files:
        if file.broker != disk.broker or not -_AHEAD_MS <= now_ms - file.scanned_at_ms <= SAYS_FOR_MS:
            continue
        rows = {one.path: one for one in file.dirs}
        found = [rows[path] for path in disk.dirs if path in rows]
        if len(found) < len(disk.dirs) or any(one.total_bytes != room.total_bytes or one.unread for one in found):
            continue
        used = min(one.total_bytes - one.usable_bytes for one in found)
        used -= setting_for(reserved, disk.broker, disk.dirs) or 0
        others = max(0, used - sum(getattr(one, key) for one in found for key in _EXPLAINED))
        since = [one for one in samples if one.wall_ms >= file.scanned_at_ms and one.total_bytes == room.total_bytes]
        return Scanned(min([others, *(one.used_bytes for one in since)]), file.scanned_at_ms)
    return None


def doubted_bytes(
    disks: Sequence[Disk],
    rules: DiskRules,
    scanned: Mapping[tuple[int, TopicPartition], ScannedReplica],
    log_starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    decided: Mapping[TopicPartition, int],
) -> list[int]:
    """Return, per disk, how many bytes of live replicas may be dead or be freed by trims without being counted.

    A walk counts scanned closed segments below S, or below the other rules' bounds. If such an offset reaches the end
    of what was scanned, newer segments may be below it that are in no row; if a replica was not scanned, or is not
    trusted, all of its segments are in no row. Then all of its size that is not counted may be freed.

    Args:
        disks: the disks as reported by the brokers.
        rules: the policy's disk rules; the result is 0 for disks that are not above their ceilings.
        scanned: the inventory's trusted replicas on them, by disk number and partition.
        log_starts: S of partitions, where it is known.
        ends: H of partitions, where it is known.
        decided: the bounds of trims.
    """
    return [
        sum(
            _doubted(size_bytes, scanned.get((n, tp)), log_starts.get(tp), ends.get(tp), decided.get(tp, 0))
            for tp, size_bytes in disk.replicas.items()
        )
        if above_ceiling(disk, rules)
        else 0
        for n, disk in enumerate(disks)
    ]


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
        if (disk := on.get((one.broker, one.dir))) is not None:
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
    if bound <= one.active_base or bound < one.end or (end == one.end and size_bytes <= one.log_bytes):
        return 0  # the segment that was active at the scan ends beyond the bound, or is still active
    dead_bytes = one.log_bytes - one.active_bytes - one.live_bytes
    counted = min(dead_bytes, max(0, size_bytes - one.live_bytes - one.active_bytes)) + one.live_bytes
    return max(0, size_bytes - counted)
