"""The files of an audit log: ``audit.jsonl``, which is written, the closed ones before it, and ``audit.head``.

A file that has grown past the policy's ``audit.max.bytes`` is closed when the next run begins: it is renamed to
``audit-N.jsonl``, N being the number of its last line. A run is never split. kretain deletes none of them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from retention_cli.audit.chain import Link, as_link, event_of, latest_of
from retention_cli.core.state_dir import StateError, open_file, opened, sync_folder

FILE_NAME: Final = "audit.jsonl"
HEAD_NAME: Final = "audit.head"
"""The number and hash of the last line, so that lines cut off at the end are noticed."""
_CLOSED: Final = re.compile(r"audit-\d{20}\.jsonl")
_AT: Final = re.compile(rb'"at":\s*"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"')
_CHUNK: Final = 65_536
_LONGEST: Final = 4_096


def read_head(folder: Path) -> tuple[Link | None, str | None]:
    """Return what the head says, None if there is none; and why it can't be read, if it can't."""
    try:
        event = read_event(folder / HEAD_NAME)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"{HEAD_NAME} can't be read ({error.strerror})"
    link = as_link(event.get("seq"), event.get("hash"))
    return link, f"{HEAD_NAME} is damaged" if link is None else None


def read_event(path: Path) -> dict[str, Any]:
    """Return the JSON object of a small file, an empty one if it holds none.

    Raises:
        OSError: it can't be read.
    """
    with os.fdopen(open_file(path, os.O_RDONLY), "rb") as handle:
        return event_of(handle.read(_LONGEST)) or {}


def write_head(folder: Path, link: Link) -> None:
    """Replace the head atomically: it is the old one or the new one, and on disk when this returns.

    Raises:
        OSError: it can't be written.
    """
    replace_file(folder, HEAD_NAME, json.dumps({"seq": link.seq, "hash": link.hash}).encode() + b"\n")


def write_all(handle: int, content: bytes) -> None:
    """Write bytes, and wait until they are on disk.

    Raises:
        OSError: they can't be written, or in part only.
    """
    if os.write(handle, content) != len(content):
        raise OSError(errno.ENOSPC, "it was only partly written")
    os.fsync(handle)


def replace_file(folder: Path, name: str, text: bytes) -> None:
    """Replace a small file atomically; it is on disk when this returns. There is one writer, the trim lock's holder.

    Raises:
        OSError: it can't be written.
    """
    scratch = folder / f".{name}.new"  # one fixed name: a crash leaves at most one
    with opened(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as handle:
        write_all(handle, text)
    scratch.replace(folder / name)
    sync_folder(folder)


def closed_name(seq: int) -> str:
    """Return the name of the closed file whose last line has this number; names sort as their lines do."""
    return f"audit-{seq:020d}.jsonl"


def closed_files(folder: Path) -> tuple[str, ...]:
    """Return the names of a log's closed files, the oldest first.

    Raises:
        StateError: the folder can't be listed.
    """
    try:
        return tuple(sorted(one.name for one in folder.iterdir() if _CLOSED.fullmatch(one.name)))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise StateError(f"the state directory {folder} can't be listed: {error.strerror}") from None


def folders_with_log(state_dir: Path) -> list[Path]:
    """Return the clusters' folders with an audit log, even if only its head or a closed file is left."""
    found = {one.parent for name in (FILE_NAME, HEAD_NAME, "audit-*.jsonl") for one in state_dir.glob(f"*/{name}")}
    return sorted(one for one in found if closed_files(one) or any((one / n).exists() for n in (FILE_NAME, HEAD_NAME)))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A log at one moment: its closed files, the head, and the open file, even if it is renamed later.

    ``handle`` is the descriptor of the open file, None if there is none, and ``size`` its bytes;
    ``problem`` is why the head can't be read.
    """

    folder: Path
    closed: tuple[str, ...]
    handle: int | None
    size: int
    head: Link | None
    problem: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the files, the oldest first."""
        return self.closed if self.handle is None else (*self.closed, FILE_NAME)

    def lines(self, name: str, *, blank: bool = False) -> Generator[tuple[int, bytes]]:
        """Yield a file's lines with their numbers, from 1, without newlines; blank lines only if ``blank``.

        Text behind the open file's last newline was torn by a crash, or is being written: it is left out. A closed
        file has none, so there it counts as a line. A file that was removed a moment ago has no lines: the chain shows
        it.

        Raises:
            StateError: the file can't be read.
        """
        read = 0
        with contextlib.suppress(FileNotFoundError), self._reading(name) as handle:
            handle.seek(0)
            for number, line in enumerate(handle, start=1):
                read += len(line)
                if name == FILE_NAME and (not line.endswith(b"\n") or read > self.size):
                    return
                if blank or line.strip():
                    yield number, line.removesuffix(b"\n")

    def backward(self, name: str) -> Generator[bytes]:
        """Yield a file's complete lines that are not blank, from the last to the first, as :meth:`lines` does.

        Raises:
            StateError: the file can't be read.
        """
        with contextlib.suppress(FileNotFoundError), self._reading(name) as handle:
            yield from lines_backward(handle.fileno())

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[BinaryIO]:
        ours = self.handle if name == FILE_NAME else None
        try:
            source = open_file(self.folder / name, os.O_RDONLY) if ours is None else os.dup(ours)
            with os.fdopen(source, "rb") as handle:
                yield handle
        except FileNotFoundError:
            raise
        except OSError as error:
            raise unreadable(self.folder / name, error) from None


def unreadable(path: Path, error: OSError) -> StateError:
    """Return the error for a file of the log that can't be read."""
    return StateError(f"the audit log {path} can't be read: {error.strerror}")


def open_log(path: Path) -> tuple[int | None, int]:
    """Open the file that is written, for reading; return its descriptor, None if there is none, and its size.

    Raises:
        StateError: it can't be opened.
    """
    try:
        handle = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return None, 0
    except OSError as error:
        raise unreadable(path, error) from None
    return handle, os.fstat(handle).st_size


def close_file(folder: Path, seq: int) -> None:
    """Rename ``audit.jsonl``, whose last line has this number, and wait until that is on disk.

    Raises:
        OSError: it can't be renamed, or the name is taken.
    """
    name = closed_name(seq)
    if os.path.lexists(folder / name):  # only the lock's holder makes such files, so no process makes one right now
        raise FileExistsError(0, f"it must be renamed to {name}, which exists: move that file aside")
    (folder / FILE_NAME).rename(folder / name)
    sync_folder(folder)


def latest_moment(path: Path) -> str | None:
    """Return the latest moment of a file's lines and of all before it, None if none has one.

    It is read as text: other text that looks like a moment can only make it later.

    Raises:
        OSError: it can't be read.
    """
    with os.fdopen(open_file(path, os.O_RDONLY), "rb") as handle:
        before = latest_of(event_of(handle.readline()) or {})
        handle.seek(0)
        moments = [max(found) for line in handle if (found := _AT.findall(line))]
    return max([*(one.decode() for one in moments), before or ""]) or None


def drop_torn_line(handle: int) -> None:
    """Cut off an unterminated last line: a crash tore it, so the request that it was to announce was never sent."""
    size = os.fstat(handle).st_size
    if (complete := _end_of_line(handle, size)) != size:
        os.ftruncate(handle, complete)


def lines_backward(handle: int) -> Generator[bytes]:
    """Yield complete lines that are not blank, without newlines, from the last to the first, reading no further."""
    end = _end_of_line(handle, os.fstat(handle).st_size)
    while end:
        start = _end_of_line(handle, end - 1)
        line = os.pread(handle, end - 1 - start, start)
        if line.strip():
            yield line
        end = start


def _end_of_line(handle: int, before: int) -> int:
    """Return the end of the last line that ends at or before this position, 0 if there is none."""
    while before:
        start = max(0, before - _CHUNK)
        if (found := os.pread(handle, before - start, start).rfind(b"\n")) >= 0:
            return start + found + 1
        before = start
    return 0
