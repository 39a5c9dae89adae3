"""After a trim: the log dirs are watched until the brokers have given back what the trim lets go (``trim --wait``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Maybe, Reason, Unknown
from retention_cli.core.progress import Progress, silent
from retention_cli.core.units import format_bytes
from retention_cli.disks.solve.outcome import DiskOutcome
from retention_cli.disks.solve.room import Room, disks_of, sized_by_policy
from retention_cli.policy.settings import DiskRules

_ENOUGH_PERCENT: Final = 90
"""Brokers count records alone, an inventory their indexes too, and writers go on: so much of it is all of it."""
_ENOUGH_ESTIMATED_PERCENT: Final = 70
"""Without an inventory nobody knows where segments end: what is left of the one in which S stands stays too."""
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
    """Wait until each disk's replicas have shrunk by what was to go, or the deadline (``time.monotonic``).

    Then until its volume has that much more room, or files that are counted no more must be gone, by ``delay_s``.

    Args:
        reader: asks the brokers.
        outcomes: of the trim's last recheck, whose sizes are the ones to compare with.
        rules: the policy's, for which dirs are one disk.
        deadline: when to give up.
        progress: is told how many MiB of all are back.
        pause: waits so many seconds between two looks.
        delay_s: how long files stay that brokers count no more (``file.delete.delay.ms``).

    Returns:
        What is not back, disk by disk; nothing where all is.
    """
    waiting = {one.disk.name: one for one in outcomes if one.unknown is None and one.going_bytes > 0}
    total = sum(one.going_bytes for one in waiting.values())
    shrunk: dict[str, float] = {}
    while waiting:
        disks, notes = disks_of(dict(reader.log_dirs(reader.brokers())), rules)
        now = {disk.name: disk.replicas for disk in disks if not isinstance(disk.room, Unknown)}
        back = {
            name: sum(max(0, before - now[name].get(tp, 0)) for tp, before in one.disk.replicas.items())
            for name, one in waiting.items()
            if name in now
        }
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
            if time.monotonic() - since < delay_s and not _has_room(waiting[name], rooms.get(name))
        ]
        missing = sum(max(0, one.going_bytes - back.get(name, 0)) for name, one in left.items())
        progress("space (MiB)", (total - missing) >> 20, max(1, total >> 20))
        if not left and not files:
            return []
        if time.monotonic() >= deadline:
            return [*notes, *(_late(name, one, back.get(name)) for name, one in left.items())]
        pause(_PAUSE_S)
    return []


def _has_room(one: DiskOutcome, now: Maybe[Room] | None) -> bool:
    """Return whether a disk has as much more room as was to go; where that can't be told it is not waited for."""
    before = one.disk.room
    if now is None or isinstance(now, Unknown) or isinstance(before, Unknown):
        return True
    return 100 * (before.used_bytes - now.used_bytes) >= _enough(one) * one.going_bytes


def _enough(one: DiskOutcome) -> int:
    return _ENOUGH_ESTIMATED_PERCENT if one.estimated else _ENOUGH_PERCENT


def _late(name: str, one: DiskOutcome, back: int | None) -> Reason:
    said = "cannot be told" if back is None else f"are {format_bytes(back)}"
    text = f"{name}: of {format_bytes(one.going_bytes)} that are to go, back {said}"
    return Reason("disk", f"{text}; brokers delete at log.retention.check.interval.ms, and file.delete.delay.ms later")
