"""Scan a broker's log dirs, partition by partition, and report what was found."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from retention_cli import __version__
from retention_cli.core.progress import Progress, silent
from retention_cli.core.units import timestamp
from retention_cli.disks.inventory.format import FORMAT
from retention_cli.disks.inventory.log_dirs import (
    DELETED,
    Leaving,
    LogDirs,
    PartitionName,
    ScanError,
    find_log_dirs,
    folder_of,
    is_beside,
    usable_in,
)
from retention_cli.disks.inventory.partition import GoneError, PartitionRead, read_partition
from retention_cli.disks.inventory.segment import BLOCK
from retention_cli.disks.inventory.writer import InventoryWriter

_EVERY: Final = 64
"""The number of partitions between two progress calls."""


@dataclass(slots=True)
class DirTotals:
    """The contents of one log dir.

    ``bytes`` are the sizes of all of the segments' files, ``log_bytes`` those of the log files only. The following are
    allocated blocks: ``pending_bytes`` of files that the broker has renamed and is about to delete, ``future_bytes`` of
    replicas that are being moved into this dir, and ``stray_bytes`` of replicas that the cluster does not assign to the
    broker. ``usable_bytes`` is the larger of the values before and after the scan. ``ignored`` counts files and folders
    that are not Kafka's, ``unread`` partitions that vanished meanwhile, or could not be read completely: the bytes that
    were not read are in no sum.
    """

    path: str
    device: str
    directory_id: str | None
    total_bytes: int
    usable_bytes: int
    topics: int = 0
    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    log_bytes: int = 0
    pending_bytes: int = 0
    future_bytes: int = 0
    stray_bytes: int = 0
    ignored: int = 0
    unread: int = 0


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A partition of which something is unknown, and what (``topic`` None: of the whole dir)."""

    dir: str
    topic: str | None
    partition: int | None
    problem: str


@dataclass(slots=True)
class ScanReport:
    """The result of a scan. ``vanished`` counts partitions that disappeared while they were read: they have no rows.

    ``seconds`` is how long reading and writing took. ``notes`` counts partitions with a flaw that did not make anything
    unknown; ``noted`` has the first of them.
    """

    broker: int
    cluster_id: str | None
    scanned_at_ms: int
    dirs: list[DirTotals]
    incomplete: list[Incomplete] = field(default_factory=list)
    topics: int = 0
    vanished: int = 0
    notes: int = 0
    seconds: float = 0.0
    noted: list[Incomplete] = field(default_factory=list)

    def total(self, key: str) -> int:
        """Return the sum of a field of :class:`DirTotals` over all dirs."""
        return sum(getattr(one, key) for one in self.dirs)

    def as_json(self) -> dict[str, Any]:
        """Return the metadata of the inventory's file, as JSON's own types."""
        return {
            "format": FORMAT,
            "kretain": __version__,
            "broker": self.broker,
            "cluster": {"id": self.cluster_id},
            "scanned_at": timestamp(self.scanned_at_ms),
            "totals": {
                "topics": self.topics,
                **{key: self.total(key) for key in ("partitions", "segments", "bytes", "log_bytes", "pending_bytes")},
                "vanished": self.vanished,
                "notes": self.notes,
            },
            "dirs": [asdict(one) for one in self.dirs],
            "problems": len(self.incomplete),
            "incomplete": [asdict(one) for one in self.incomplete],
        }


_NOTED: Final = 20


def unknown_tiering(_topic: str) -> bool | None:
    """Return None (unknown) for every topic: a log dir does not show whether a topic is tiered."""
    return None


def scan(
    paths: Sequence[str],
    out: str | None,
    *,
    now_ms: int,
    broker: int | None = None,
    tiered: Callable[[str], bool | None] = unknown_tiering,
    progress: Progress = silent,
    clock_s: Callable[[], float] = time.monotonic,
) -> ScanReport:
    """Read the log dirs of one broker and write their inventory, sorted by dir, topic, partition and base offset.

    Nothing is written to the dirs. Memory does not grow with the number of segments, but with the number of partitions
    that have problems. ``out`` None: only the report is made, and no file is written.

    Raises:
        ScanError: the dirs can't be scanned, or the file can't be written; no file is left then.
        MissingPartError: pyarrow is not installed.
    """
    found, began = find_log_dirs(paths, broker), clock_s()
    if out is None:
        report = _scan(found, None, now_ms, progress)
        report.seconds = clock_s() - began
        return report
    target = os.path.realpath(out)
    for one in found.dirs:
        if os.path.commonpath([target, os.path.realpath(one.path)]) == os.path.realpath(one.path):
            raise ScanError(f"{out} lies within {one.path}, which is the broker's: write it elsewhere")
    with InventoryWriter(out, found.broker, tiered) as writer:
        report = _scan(found, writer, now_ms, progress)
        report.seconds = clock_s() - began
        writer.describe(report.as_json())
    return report


def _scan(found: LogDirs, writer: InventoryWriter | None, now_ms: int, progress: Progress) -> ScanReport:
    totals = [
        DirTotals(one.path, one.device, one.directory_id, one.total_bytes, one.usable_bytes) for one in found.dirs
    ]
    report = ScanReport(found.broker, found.cluster_id, now_ms, totals)
    listed: list[list[tuple[PartitionName, str]]] = []
    everywhere: dict[PartitionName, str] = {}
    for one in totals:
        mine = _list(one)
        listed.append(mine)
        for name, _ in mine:
            if (other := everywhere.setdefault(name, one.path)) != one.path:
                # in the middle of a move, or left by one: only the broker knows which of the two counts
                _incomplete(report, one.path, name, f"it is in {other} too: scan again")
                _incomplete(report, other, name, f"it is in {one.path} too: scan again")
    first = [
        [_folder_bytes(Path(one.path, folder), DELETED) for _, folder in mine]
        for one, mine in zip(totals, listed, strict=True)
    ]
    report.topics = len({name.topic for name in everywhere})
    done, count = 0, sum(len(mine) for mine in listed)
    for one, mine, before in zip(totals, listed, first, strict=True):
        log_dir = os.open(one.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            last_topic = None
            for (name, folder), pending in zip(mine, before, strict=True):
                if not done % _EVERY:
                    progress("reading partitions", done, count)
                done += 1
                try:
                    read = read_partition(log_dir, folder)
                except GoneError:
                    report.vanished += 1
                    one.unread += 1
                    continue
                # files that were pending at first and were deleted since may have made room for others' writes
                read.pending = max(pending, read.pending)
                _count(report, one, name, read)
                if name.topic != last_topic:
                    last_topic, one.topics = name.topic, one.topics + 1
                if writer is not None:
                    writer.add(one.path, name.topic, name.partition, read)
        finally:
            os.close(log_dir)
    progress("reading partitions", done, count)
    for one in totals:  # bytes that were deleted meanwhile are in no sum, and must not count as others'
        with contextlib.suppress(OSError):
            one.usable_bytes = max(one.usable_bytes, usable_in(one.path))
    return report


def _list(one: DirTotals) -> list[tuple[PartitionName, str]]:
    """Return a log dir's live partitions and their folders, sorted, and count everything else in it."""
    live: list[tuple[PartitionName, str]] = []
    try:
        with os.scandir(one.path) as entries:
            names = [(entry.name, entry.is_dir(follow_symlinks=False) or entry.is_symlink()) for entry in entries]
    except OSError as error:
        raise ScanError(f"{one.path} can't be read: {error.strerror or error}") from None
    for name, is_folder in names:
        match folder_of(name) if is_folder else None:
            case PartitionName() as partition:
                live.append((partition, name))
            case Leaving.delete:
                one.pending_bytes += _folder_bytes(Path(one.path, name))
            case Leaving.future:
                one.future_bytes += _folder_bytes(Path(one.path, name))
            case Leaving.stray:
                one.stray_bytes += _folder_bytes(Path(one.path, name))
            case None:
                one.ignored += 0 if is_beside(name) else 1
    live.sort(key=lambda pair: (pair[0].topic, pair[0].partition))
    return live


def _folder_bytes(path: Path, ending: str = "") -> int:
    total = 0
    try:
        with os.scandir(path) as files:
            for file in files:
                if not file.name.endswith(ending):
                    continue
                try:
                    total += file.stat(follow_symlinks=False).st_blocks * BLOCK
                except OSError:
                    continue  # it was deleted meanwhile
    except OSError:
        return total
    return total


def _count(report: ScanReport, one: DirTotals, name: PartitionName, read: PartitionRead) -> None:
    one.pending_bytes += read.pending
    one.ignored += read.ignored
    one.partitions += 1
    one.segments += len(read)
    one.bytes += sum(read.sizes)
    one.log_bytes += sum(read.log_sizes)
    if read.problems:
        one.unread += 1
        more = len(read.problems) - 1
        _incomplete(report, one.path, name, read.problems[0] + (f" (and {more} more)" if more else ""))
    if read.notes:
        report.notes += 1
        if len(report.noted) < _NOTED:
            report.noted.append(Incomplete(one.path, name.topic, name.partition, read.notes[0]))


def _incomplete(report: ScanReport, folder: str, name: PartitionName, problem: str) -> None:
    report.incomplete.append(Incomplete(folder, name.topic, name.partition, problem))
