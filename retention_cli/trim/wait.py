"""Wait after a trim until the brokers' log dirs have shrunk by what was trimmed (``trim --wait``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Maybe, Reason, Unknown
from retention_cli.core.progress import Progress, silent
from retention_cli.core.units import format_bytes
from retention_cli.disks.devices import disks_of
from retention_cli.disks.disk import Disk, DiskOutcome, Room, excess_bytes, sized_by_policy
from retention_cli.policy.settings import DiskRules

_ENOUGH_PERCENT: Final = 90
"""This share of the expected bytes suffices: brokers don't count indexes, as an inventory does, and writes go on."""
_ENOUGH_ESTIMATED_PERCENT: Final = 70
"""The same without an inventory: segment ends are unknown, and the segment that contains S stays on disk."""
_PAUSE_S: Final = 1.0


def wait_for_space(
    reader: ClusterReader,
    outcomes: Sequence[DiskOutcome],
    rules: DiskRules,
    deadline: float,
    progress: Progress = silent,
    pause: Callable[[float], None] = time.sleep,
    delay_s: float = 0.0,
) -> list[Reason]:
    """Wait until each disk's replicas have shrunk by what was trimmed, or until the deadline (``time.monotonic``).

    Then wait until the volume has that much more free space, or until ``delay_s`` has passed, when the files must
    have been deleted.

    Args:
        reader: the cluster, read-only.
        outcomes: R6's results at the trim's last recheck; their sizes are the baseline.
        rules: the policy's disk rules, which name the dirs that are on one disk.
        deadline: when to give up.
        progress: called with how many MiB of the total have been freed.
        pause: sleeps this many seconds between two requests for sizes.
        delay_s: how long deleted files stay on disk, though brokers no longer count them (``file.delete.delay.ms``).

    Returns:
        A reason for each disk that freed too little or is still above its ceiling; empty if there is none.
    """
    waiting = {one.disk.name: one for one in outcomes if one.unknown is None and one.going_bytes > 0}
    total = sum(one.going_bytes for one in waiting.values())
    devices = {(one.disk.broker, path): one.disk.name for one in outcomes for path in one.disk.dirs}
    shrunk: dict[str, float] = {}
    freed = {name: _Freed(one.disk) for name, one in waiting.items()}
    while waiting:
        disks, notes = disks_of(dict(reader.log_dirs(reader.brokers())), rules, devices)
        now = {disk.name: disk for disk in disks if not isinstance(disk.room, Unknown)}
        for name in waiting.keys() & now.keys():
            freed[name].add(now[name])
        back = {name: freed[name].back_bytes for name in waiting if name in now}
        left = {
            name: one
            for name, one in waiting.items()
            if name not in back or 100 * back[name] < _enough(one) * one.going_bytes
        }
        for name in waiting.keys() - left.keys():
            shrunk.setdefault(name, time.monotonic())
        rooms = {disk.name: disk.room for disk in disks if not sized_by_policy(disk, rules)}
        files = [
            name
            for name, since in shrunk.items()
            if time.monotonic() - since < delay_s and not _has_room(waiting[name], freed[name], rooms.get(name))
        ]
        missing = sum(max(0, one.going_bytes - back.get(name, 0)) for name, one in left.items())
        progress("space (MiB)", (total - missing) >> 20, max(1, total >> 20))
        if not left and not files:
            return _above(waiting.values(), now)
        if time.monotonic() >= deadline:
            return [
                *notes,
                *(_late(name, one, back.get(name)) for name, one in left.items()),
                *_above([one for name, one in waiting.items() if name not in left], now, files),
            ]
        pause(_PAUSE_S)
    return []


@dataclass(slots=True)
class _Freed:
    """The bytes that a disk has freed, summed over each replica's decreases, so that new writes do not offset them."""

    last: Disk
    back_bytes: int = 0
    room_bytes: int = 0

    def add(self, now: Disk) -> None:
        before, after = self.last.replicas, now.replicas
        self.back_bytes += sum(max(0, size_bytes - after.get(tp, 0)) for tp, size_bytes in before.items())
        if not isinstance(self.last.room, Unknown) and not isinstance(now.room, Unknown):
            self.room_bytes += max(0, self.last.room.used_bytes - now.room.used_bytes)
        self.last = now


def _has_room(one: DiskOutcome, freed: _Freed, now: Maybe[Room] | None) -> bool:
    """Return whether a disk's free space grew by what was trimmed; True if unknown, as then waiting is pointless."""
    unknown = now is None or isinstance(now, Unknown) or isinstance(one.disk.room, Unknown)
    return unknown or 100 * freed.room_bytes >= _enough(one) * one.going_bytes


def _above(outcomes: Iterable[DiskOutcome], now: Mapping[str, Disk], files: Collection[str] = ()) -> list[Reason]:
    """Return a reason for each disk that freed what was trimmed but is still above its ceiling.

    ``files`` are the names of disks that still hold their deleted segments.
    """
    found = []
    for one in outcomes:
        room = now[one.disk.name].room
        if one.percent is None or one.short_bytes or isinstance(room, Unknown):
            continue
        if (above := excess_bytes(room, one.percent)) > 0:
            why = "files that are still to be removed" if one.disk.name in files else "what was written meanwhile"
            if one.doubtful_bytes:
                why += f", {format_bytes(one.doubtful_bytes)} that may be leaving"
            if one.estimated:
                why += ", or an estimate without an inventory"
            found.append(
                Reason(
                    "disk",
                    f"{one.disk.name} is at {room.percent:.1f} %, {format_bytes(above)} above its ceiling of "
                    f"{one.percent:g} %, although brokers freed what was trimmed (possible cause: {why}): run again",
                )
            )
    return found


def _enough(one: DiskOutcome) -> int:
    return _ENOUGH_ESTIMATED_PERCENT if one.estimated else _ENOUGH_PERCENT


def _late(name: str, one: DiskOutcome, back: int | None) -> Reason:
    regained = "an unknown part" if back is None else format_bytes(back)
    return Reason(
        "disk",
        f"{name}: brokers have freed {regained} of {format_bytes(one.going_bytes)}; they delete files "
        f"file.delete.delay.ms after their next check (log.retention.check.interval.ms)",
    )
