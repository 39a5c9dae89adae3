"""What of a disk's used bytes is leaving, or may be (R6). Pure.

Files that a broker has swept (``.deleted``), folders of deleted topics (``-delete``), of replicas that were moved away
and stray ones: brokers count none of them, and the volume all. So what is used and not explained by live replicas may
be leaving, until an inventory or the ledger says that it stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from retention_cli.core.model import Unknown
from retention_cli.disks.solve.room import Disk, reserved_bytes
from retention_cli.memory.disk import Look

SAYS_FOR_MS: Final = 3_600_000
"""For so long an inventory says what stays: later others may have given back what it counts as theirs."""
_AHEAD_MS: Final = 300_000
_EXPLAINED: Final = ("log_bytes", "pending_bytes", "future_bytes", "stray_bytes")


class Leaving(NamedTuple):
    """What goes of a disk without R6.

    ``known_bytes`` are seen to leave: they left replicas' sizes lately. ``possible_bytes`` more may be leaving.
    ``doubted_bytes`` of live replicas may be dead, or go by other rules' trims, and no inventory tells of them.
    """

    known_bytes: int = 0
    possible_bytes: int = 0
    doubted_bytes: int = 0

    @property
    def uncertain_bytes(self) -> int:
        """All that may go, or not: nothing is trimmed in its stead."""
        return self.possible_bytes + self.doubted_bytes


class Scanned(NamedTuple):
    """What stays on a disk by an inventory: how many bytes, and when (Unix ms) it was scanned."""

    stays_bytes: int
    at_ms: int


class FileLike(Protocol):
    """An inventory's file, as far as it speaks of its log dirs (``disks/inventory/inventory.py``)."""

    @property
    def broker(self) -> int: ...  # noqa: D102
    @property
    def scanned_at_ms(self) -> int: ...  # noqa: D102
    @property
    def dirs(self) -> Sequence[Mapping[str, Any]]: ...  # noqa: D102


class FilesLike(Protocol):
    """An inventory, as far as it speaks of its files."""

    @property
    def files(self) -> Sequence[FileLike]: ...  # noqa: D102


def leaving(disk: Disk, known_bytes: int, stays_bytes: int) -> Leaving:
    """Return what is leaving a disk.

    Args:
        disk: as its broker describes it now.
        known_bytes: what left its replicas' sizes lately.
        stays_bytes: what is known to stay of what no live replica explains.
    """
    return Leaving(known_bytes, max(0, disk.unexplained_bytes - stays_bytes - known_bytes))


def stays(scanned: Scanned | None, ledger_bytes: int | None, now_ms: int, over_ms: int | None) -> int:
    """Return what stays of what no live replica explains.

    The ledger looks back over so long: of a disk that was scanned within that time the scan is the newer word.

    Args:
        scanned: what an inventory says; None where it does not.
        ledger_bytes: what the ledger does; None where that is not known yet.
        now_ms: our wall clock.
        over_ms: over how long the ledger's smallest amount was there; None where brokers don't say how they sweep.
    """
    if scanned is None:
        return ledger_bytes or 0
    if ledger_bytes is None or over_ms is None or now_ms - scanned.at_ms < over_ms:
        return scanned.stays_bytes
    return max(scanned.stays_bytes, ledger_bytes)


def stays_by_scan(
    disk: Disk, files: Sequence[FileLike], reserved: Mapping[str, int], now_ms: int, looks: Sequence[Look] = ()
) -> Scanned | None:
    """Return what stays on a disk by an inventory: what was in use at the scan, and neither a log's nor leaving.

    None where it does not say: a scan that is too old, that lacks one of its dirs, or of a volume of another size; or
    partitions that it could not read, or saw go away, whose bytes may be leaving by now.

    Args:
        disk: as its broker describes it now.
        files: the inventory's.
        reserved: ``disks.reserved``.
        now_ms: our wall clock.
        looks: at what no live replica explains there. What was gone at one of them since the scan does not stay.
    """
    room = disk.room
    if isinstance(room, Unknown) or not disk.dirs:
        return None
    for file in files:
        if file.broker != disk.broker or not -_AHEAD_MS <= now_ms - file.scanned_at_ms <= SAYS_FOR_MS:
            continue
        rows = {str(one.get("path")): one for one in file.dirs}
        found = [rows[path] for path in disk.dirs if path in rows]
        keys = ("total_bytes", "usable_bytes", "unread", *_EXPLAINED)
        if len(found) < len(disk.dirs) or not all(type(one.get(key)) is int for one in found for key in keys):
            continue
        if any(one["total_bytes"] != room.total_bytes or one["unread"] for one in found):
            continue
        used = min(one["total_bytes"] - one["usable_bytes"] for one in found) - reserved_bytes(disk, reserved)
        others = int(max(0, used - sum(one[key] for one in found for key in _EXPLAINED)))
        since = [one for one in looks if one.wall_ms >= file.scanned_at_ms and one.total_bytes == room.total_bytes]
        return Scanned(min([others, *(one.used_bytes for one in since)]), file.scanned_at_ms)
    return None
