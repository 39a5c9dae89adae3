"""Determine how many of a disk's used bytes are leaving, or may be (R6). Pure.

Brokers' replica sizes don't include files that were swept (``.deleted``), folders of deleted topics (``-delete``), of
replicas that were moved away, and stray ones; the volume's usage does. So used bytes that no live replica explains may
be leaving, unless an inventory or the ledger shows that they stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from retention_cli.core.model import Unknown
from retention_cli.disks.solve.room import Disk, reserved_bytes
from retention_cli.memory.disk import Look

SAYS_FOR_MS: Final = 3_600_000
"""How long an inventory proves which bytes stay: later, other users of the disk may have freed theirs."""
_AHEAD_MS: Final = 300_000
_EXPLAINED: Final = ("log_bytes", "pending_bytes", "future_bytes", "stray_bytes")


class Leaving(NamedTuple):
    """The bytes that leave a disk without R6.

    ``known_bytes`` are leaving: replicas' sizes lost them recently. ``possible_bytes`` more may be leaving.
    ``doubted_bytes`` of live replicas may be dead, or be freed by other rules' trims, and are in no inventory.
    """

    known_bytes: int = 0
    possible_bytes: int = 0
    doubted_bytes: int = 0

    @property
    def uncertain_bytes(self) -> int:
        """All bytes that may leave or stay: R6 trims nothing to make up for them."""
        return self.possible_bytes + self.doubted_bytes


class Scanned(NamedTuple):
    """How many bytes stay on a disk according to an inventory, and when it was scanned (Unix ms)."""

    stays_bytes: int
    at_ms: int


class FileLike(Protocol):
    """The part of an inventory's file that describes its log dirs (``disks/inventory/inventory.py``)."""

    @property
    def broker(self) -> int: ...  # noqa: D102
    @property
    def scanned_at_ms(self) -> int: ...  # noqa: D102
    @property
    def dirs(self) -> Sequence[Mapping[str, Any]]: ...  # noqa: D102


class FilesLike(Protocol):
    """The part of an inventory that has its files."""

    @property
    def files(self) -> Sequence[FileLike]: ...  # noqa: D102


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
    disk: Disk, files: Sequence[FileLike], reserved: Mapping[str, int], now_ms: int, looks: Sequence[Look] = ()
) -> Scanned | None:
    """Return the bytes that stay on a disk by an inventory: used at the scan, and neither a log's nor leaving.

    None if no scan is usable: it is too old, lacks one of the disk's dirs, or is of a volume of another size; or it
    could not read a partition, or saw one disappear, so that bytes may have been leaving that it did not count.

    Args:
        disk: the disk as reported by its broker.
        files: the inventory's files.
        reserved: ``disks.reserved``.
        now_ms: this machine's time, Unix ms.
        looks: looks at the bytes that no live replica explains. A smaller amount since the scan lowers the result.
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
