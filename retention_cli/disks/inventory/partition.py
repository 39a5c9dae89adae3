"""Read all segments in a partition's folder while a broker may be rolling, cleaning or deleting them."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field
from typing import Final

from retention_cli.disks.inventory.log_dirs import (
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
    base_offset,
    leader_epochs_in,
    topic_id_in,
)
from retention_cli.disks.inventory.segment import FLAGS, Segment, allocated, examine, from_indexes, opened, size_of

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


class GoneError(Exception):
    """The partition's folder disappeared while it was read: deleted, or moved to another disk."""


def read_partition(log_dir: str, name: str) -> PartitionRead:
    """Return the segments in a partition's folder. If it changes meanwhile, it is read again, up to five times.

    Nothing is written, locked, or kept open for longer than a read. A file that can't be read is a problem in the
    result, not an error.

    Raises:
        GoneError: the folder no longer exists.
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
                raise GoneError
            found.topic_id = _topic_id(folder, found)
            return found
    except FileNotFoundError:
        raise GoneError from None
    except OSError as error:
        return _no_folder(path, error)


def _no_folder(path: str, error: OSError) -> PartitionRead:
    """Return a result whose problem is why the partition's folder can't be opened."""
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
            found.pending += allocated(folder, name)
        elif name.endswith(SWAP):
            again = f"{name} is waiting to replace it"
        elif suffix not in _BESIDE_LOG and COMPANIONS.fullmatch(name) is None:
            found.ignored += 1
    stems.sort()
    while stems and _is_no_file(folder, stems[-1] + LOG):  # a broker ignores it: the active segment comes before it
        stems.pop()
        found.ignored += 1
    bases = [base_offset(stem) for stem in stems]
    segments = [(stem, base) for stem, base in zip(stems, bases, strict=True) if base is not None]
    found.ignored += len(stems) - len(segments)
    if _read_all(found, folder, segments) and again is None:
        again = "segments vanish"
    end = found.segments[-1].next_offset if found.segments else None
    if end is not None:
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
    next_bases = [*(base for _, base in segments[1:]), None]
    for (stem, base), next_base in zip(segments, next_bases, strict=False):
        more = size_of(folder, stem + SNAPSHOT) + size_of(folder, stem + TXN_INDEX)
        try:
            one = None if next_base is None else from_indexes(folder, stem, base, next_base, more)
            if one is None:
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
    """Return the leader epochs of a log, each with its first offset; empty if they can't be read."""
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
