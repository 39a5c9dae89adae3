"""Scan a broker's log dirs, partition by partition; write their inventory, and report what was found."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from retention_cli import __version__
from retention_cli.core.extras import arrow
from retention_cli.core.files import FileError, atomic_path
from retention_cli.core.model import TopicPartition
from retention_cli.core.progress import Progress, silent
from retention_cli.core.units import timestamp
from retention_cli.disks.inventory.format import FORMAT, METADATA_KEY, schema
from retention_cli.disks.inventory.log_dirs import (
    BESIDE,
    COMPANIONS,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    STEM_LENGTH,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    LayoutError,
    LogDir,
    ScanError,
    base_offset,
    find_log_dirs,
    folder_of,
    leader_epochs_in,
    topic_id_in,
)
from retention_cli.disks.inventory.segment import (
    BLOCK,
    FLAGS,
    Segment,
    examine,
    opened,
    sizes_of,
)

ROW_GROUP: Final = 65_536
"""The number of rows in a row group; about as many are held in memory."""
_EVERY: Final = 64
"""The number of partitions between two progress calls."""


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A partition of which something is unknown, and what."""

    dir: str
    topic: str
    partition: int
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
    dirs: list[LogDir]
    incomplete: list[Incomplete] = field(default_factory=list)
    topics: int = 0
    vanished: int = 0
    notes: int = 0
    seconds: float = 0.0
    noted: list[Incomplete] = field(default_factory=list)

    def total(self, key: str) -> int:
        """Return the sum of a field of :class:`LogDir` over all dirs."""
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


def scan(
    paths: Sequence[str],
    out: str | None,
    *,
    now_ms: int,
    broker: int | None = None,
    tiered: Callable[[str], bool] | None = None,
    progress: Progress = silent,
    clock_s: Callable[[], float] = time.monotonic,
) -> ScanReport:
    """Read the log dirs of one broker and write their inventory, sorted by dir, topic, partition and base offset.

    Nothing is written to the dirs. Memory does not grow with the number of segments, but with the number of partitions
    that have problems.

    Args:
        paths: the broker's log dirs.
        out: the file to write; None: only the report is made.
        now_ms: the time of the scan, Unix ms.
        broker: the broker's id, if no ``meta.properties`` has one.
        tiered: returns whether a topic has remote storage, which a log dir does not show; None if that is unknown.
        progress: called with what is being read.
        clock_s: the clock that measures how long it takes.

    Raises:
        ScanError: the dirs can't be scanned, or the file can't be written; no file is left then.
        MissingPartError: pyarrow is not installed.
    """
    (broker_id, cluster_id, dirs), began = find_log_dirs(paths, broker), clock_s()
    target = "" if out is None else os.path.realpath(out)
    for one in dirs:
        if target and os.path.commonpath([target, os.path.realpath(one.path)]) == os.path.realpath(one.path):
            raise ScanError(f"{out} is within {one.path}, a log dir of the broker: write it elsewhere")
    with nullcontext() if out is None else _written(out, broker_id, tiered) as writer:
        report = ScanReport(broker_id, cluster_id, now_ms, dirs)
        _scan(report, writer, progress)
        report.seconds = clock_s() - began
        if writer is not None:
            writer.describe(report.as_json())
    return report


class _Writer:
    """Writes the rows of one broker's inventory in row groups.

    Args:
        parquet: the Parquet file's writer.
        broker: the broker's id.
        tiered: returns whether a topic has remote storage; None if it is unknown of all topics.
    """

    def __init__(self, parquet: Any, broker: int, tiered: Callable[[str], bool] | None) -> None:
        self._parquet, self._broker, self._tiered = parquet, broker, tiered
        self._rows: list[tuple[Any, ...]] = []

    def add(self, folder: str, tp: TopicPartition, found: PartitionRead) -> None:
        """Add all segments of a partition."""
        same = (self._broker, folder, tp.topic, found.topic_id, tp.partition)
        tiered = None if self._tiered is None else self._tiered(tp.topic)
        for one in found.segments:
            *facts, problem, _note = one
            active = found.ends_active and one is found.segments[-1]
            self._rows.append((*same, *facts, active, tiered, problem, found.leader_epoch))
        if len(self._rows) >= ROW_GROUP:
            self._write()

    def describe(self, about: dict[str, Any]) -> None:
        """Write the remaining rows, and the file's metadata."""
        self._write()
        text = json.dumps(about, ensure_ascii=False, separators=(",", ":"))
        self._parquet.add_key_value_metadata({METADATA_KEY: text.encode()})

    def _write(self) -> None:
        if self._rows:
            columns = zip(zip(*self._rows, strict=True), schema(), strict=True)
            arrays = [arrow().array(column, type=field.type) for column, field in columns]
            self._parquet.write_batch(arrow().record_batch(arrays, schema=schema()))
            self._rows.clear()


@contextmanager
def _written(path: str, broker: int, tiered: Callable[[str], bool] | None) -> Iterator[_Writer]:
    """Write an inventory to a temporary file, which gets its name on a successful exit, and is deleted otherwise.

    Raises:
        ScanError: the file can't be written.
        MissingPartError: pyarrow is not installed.
    """
    parquet = arrow("pyarrow.parquet")
    more = {
        "compression": "zstd",
        "use_dictionary": ["dir", "topic", "topic_id", "problem"],
        "write_page_checksum": True,
    }
    try:
        with (
            atomic_path(Path(os.path.abspath(path))) as scratch,  # noqa: PTH100  (resolves no links)
            parquet.ParquetWriter(scratch, schema(), **more) as file,
        ):
            yield _Writer(file, broker, tiered)
    except FileError as error:
        raise ScanError(str(error)) from None


def _scan(report: ScanReport, writer: _Writer | None, progress: Progress) -> None:
    listed = [_list(one) for one in report.dirs]
    everywhere: dict[TopicPartition, str] = {}
    for one, live in zip(report.dirs, listed, strict=True):
        for tp, _, _ in live:
            if (other := everywhere.setdefault(tp, one.path)) != one.path:
                # in the middle of a move, or left by one: only the broker knows which of the two counts
                report.incomplete += (
                    Incomplete(one.path, *tp, f"it is in {other} too: scan again"),
                    Incomplete(other, *tp, f"it is in {one.path} too: scan again"),
                )
    report.topics = len({tp.topic for tp in everywhere})
    done, count = 0, sum(len(live) for live in listed)
    for one, live in zip(report.dirs, listed, strict=True):
        topics = set()
        for tp, folder, pending in live:
            if not done % _EVERY:
                progress("reading partitions", done, count)
            done += 1
            if (read := read_partition(one.path, folder)) is None:
                report.vanished += 1
                one.unread += 1
                continue
            # files that were pending at first and were deleted since may have made room for others' writes
            read.pending = max(pending, read.pending)
            _count(report, one, tp, read)
            topics.add(tp.topic)
            if writer is not None:
                writer.add(one.path, tp, read)
        one.topics = len(topics)
    progress("reading partitions", done, count)
    for one in report.dirs:  # bytes that were deleted meanwhile are in no sum, and must not count as others'
        with suppress(OSError):
            space = os.statvfs(one.path)
            one.usable_bytes = max(one.usable_bytes, space.f_bavail * space.f_frsize)


def _list(one: LogDir) -> list[tuple[TopicPartition, str, int]]:
    """Return a log dir's live partitions, sorted, with their folders and pending bytes; count everything else in it."""
    live: list[tuple[TopicPartition, str, int]] = []
    try:
        with os.scandir(one.path) as entries:
            names = [(entry.name, entry.is_dir(follow_symlinks=False) or entry.is_symlink()) for entry in entries]
    except OSError as error:
        raise ScanError(f"{one.path} can't be read: {error.strerror or error}") from None
    for name, is_folder in names:
        path = Path(one.path, name)
        match folder_of(name) if is_folder else None:
            case TopicPartition() as tp:
                live.append((tp, name, _folder_bytes(path, DELETED)))
            case "delete":
                one.pending_bytes += _folder_bytes(path)
            case "future":
                one.future_bytes += _folder_bytes(path)
            case "stray":
                one.stray_bytes += _folder_bytes(path)
            case None:
                one.ignored += 0 if BESIDE.fullmatch(name) else 1
    return sorted(live)


def _folder_bytes(path: Path, ending: str = "") -> int:
    """Return the allocated bytes of a folder's files whose names end so, but for those deleted meanwhile."""
    total = 0
    with suppress(OSError), os.scandir(path) as files:
        for file in files:
            if file.name.endswith(ending):
                with suppress(OSError):
                    total += file.stat(follow_symlinks=False).st_blocks * BLOCK
    return total


def _count(report: ScanReport, one: LogDir, tp: TopicPartition, read: PartitionRead) -> None:
    one.pending_bytes += read.pending
    one.ignored += read.ignored
    one.partitions += 1
    one.segments += len(read.segments)
    one.bytes += sum(row.size for row in read.segments)
    one.log_bytes += sum(row.log_size for row in read.segments)
    if read.problems:
        one.unread += 1
        more = len(read.problems) - 1
        report.incomplete.append(Incomplete(one.path, *tp, read.problems[0] + (f" (and {more} more)" if more else "")))
    if read.notes:
        report.notes += 1
        if len(report.noted) < _NOTED:
            report.noted.append(Incomplete(one.path, *tp, read.notes[0]))


METADATA_FILE: Final = "partition.metadata"
EPOCHS_FILE: Final = "leader-epoch-checkpoint"
_EPOCHS_MOST: Final = 1 << 20
"""In bytes: about 60,000 elections. A longer file is not read, and the log's leader epoch is then unknown."""
_BESIDE_LOG: Final = (INDEX, TIME_INDEX, SNAPSHOT, TXN_INDEX)
_ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.01
"""Long enough for the broker to finish renames that a listing fell between."""


@dataclass(slots=True)
class PartitionRead:
    """The segments in a partition's folder, in the order of base offsets.

    The last segment is the active one, unless ``ends_active`` is false because it could not be read. ``problems`` and
    ``notes`` are texts that name their files; a problem means that something is unknown. ``pending`` are the bytes of
    files that the broker has renamed and will delete. ``ignored`` counts files that are not Kafka's. ``leader_epoch``
    is the last record's, or an earlier one; None if unknown.
    """

    topic_id: str | None = None
    leader_epoch: int | None = None
    segments: list[Segment] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pending: int = 0
    ignored: int = 0
    ends_active: bool = True


def read_partition(log_dir: str, name: str) -> PartitionRead | None:
    """Return the segments in a partition's folder. If it changes meanwhile, it is read again, up to five times.

    None if the folder disappeared while it was read: deleted, or moved to another disk. Nothing is written, locked, or
    kept open for longer than a read. A file that can't be read is a problem in the result, not an error.
    """
    path = os.path.join(log_dir, name)  # noqa: PTH118  (many are read: a Path takes longer)
    try:
        with opened(path, flags=FLAGS | os.O_DIRECTORY) as folder:
            for attempt in range(_ATTEMPTS):
                if attempt:
                    time.sleep(_PAUSE_S)
                found, again = _read_once(folder)
                if again is None:
                    break
            else:
                found.problems.append(f"changed while it was read, {_ATTEMPTS} times over: {again}")
            if not _still_there(path, folder):
                return None
            found.topic_id = _topic_id(folder, found)
            return found
    except FileNotFoundError:
        return None
    except OSError as error:
        if os.path.islink(path):  # noqa: PTH114
            return PartitionRead(problems=["is a symbolic link: its target may be on another disk, so it is not read"])
        return PartitionRead(problems=[f"can't be opened: {error.strerror or error}"])


def _read_once(folder: int) -> tuple[PartitionRead, str | None]:
    """Read all segments once; return also what was changing meanwhile, None if nothing was."""
    found = PartitionRead()
    epochs = _leader_epochs(folder)  # before the segments: if the log is cut meanwhile, the epoch ends too early
    try:
        names = os.listdir(folder)
    except OSError as error:
        found.problems.append(f"can't be listed: {error.strerror or error}")
        return found, None
    stems: list[str] = []
    again: str | None = None
    for name in names:
        suffix = name[STEM_LENGTH:]
        if suffix == LOG:
            stems.append(name[:STEM_LENGTH])
        elif name.endswith(DELETED):
            found.pending += sizes_of(folder, name)[1]
        elif name.endswith(SWAP):
            again = f"{name} is waiting to replace it"
        elif suffix not in _BESIDE_LOG and COMPANIONS.fullmatch(name) is None:
            found.ignored += 1
    stems.sort()
    while stems and _is_no_file(folder, stems[-1] + LOG):  # a broker ignores it: the active segment comes before it
        stems.pop()
        found.ignored += 1
    segments = [(stem, base) for stem in stems if (base := base_offset(stem)) is not None]
    found.ignored += len(stems) - len(segments)
    if _read_all(found, folder, segments) and again is None:
        again = "segments vanish"
    if found.segments and (end := found.segments[-1].next_offset) is not None:
        begun = max((epoch for epoch, first in epochs if first <= end), default=None)  # if the log is empty by now
        found.leader_epoch = max((epoch for epoch, first in epochs if first < end), default=begun)
    return found, again


def _is_no_file(folder: int, name: str) -> bool:
    """Return whether a name is known not to be a regular file or a link: a pipe, a folder, a device."""
    try:
        mode = os.lstat(name, dir_fd=folder).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))


def _read_all(found: PartitionRead, folder: int, segments: list[tuple[str, int]]) -> bool:
    """Read segments and add them to the columns; return whether one of them has vanished meanwhile.

    Retention deletes from the front, but the cleaner may replace several segments by a new one anywhere.
    """
    vanished = False
    for (stem, base), next_base in zip(segments, [*(base for _, base in segments[1:]), None], strict=False):
        more = sum(sizes_of(folder, stem + suffix)[0] for suffix in (SNAPSHOT, TXN_INDEX))
        try:
            one = examine(folder, stem, base, next_base, more)
        except FileNotFoundError:
            vanished = True
            continue
        except OSError as error:
            found.problems.append(f"{stem}{LOG}: can't be read: {error.strerror or error}")
            continue
        found.segments.append(one)
        if one.problem is not None:
            found.problems.append(f"{stem}{LOG}: {one.problem}")
        if one.note is not None:
            found.notes.append(f"{stem}{LOG}: {one.note}")
    read_last = found.segments[-1].base_offset if found.segments else None
    found.ends_active = bool(segments) and read_last == segments[-1][1]
    return vanished


def _still_there(path: str, folder: int) -> bool:
    """Return whether the folder still has its name: a broker renames it before it deletes or moves it."""
    try:
        now = os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return os.path.samestat(now, os.fstat(folder))


def _leader_epochs(folder: int) -> list[tuple[int, int]]:
    try:
        with opened(EPOCHS_FILE, folder) as file:
            content = os.read(file, _EPOCHS_MOST)
        return leader_epochs_in(content) if len(content) < _EPOCHS_MOST else []
    except (OSError, LayoutError):
        return []


def _topic_id(folder: int, found: PartitionRead) -> str | None:
    """Return the topic id in ``partition.metadata``, None if there is no such file (brokers before 2.8)."""
    try:
        with opened(METADATA_FILE, folder) as file:
            return topic_id_in(os.read(file, 1024))
    except FileNotFoundError:
        return None
    except OSError as error:
        found.problems.append(f"{METADATA_FILE}: can't be read: {error.strerror or error}")
    except LayoutError as error:
        found.problems.append(f"{METADATA_FILE}: {error}")
    return None
