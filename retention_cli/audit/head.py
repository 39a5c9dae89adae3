"""``audit.head``: the number and hash of the audit log's last line, so that lines cut off at the end are noticed."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Final

from retention_cli.audit.chain import Link, as_link, event_of
from retention_cli.core.state_dir import open_file, sync_folder

HEAD_NAME: Final = "audit.head"
_LONGEST: Final = 4_096


class HeadError(Exception):
    """The head exists but can't be read; the text says why."""


def read_head(folder: Path) -> Link | None:
    """Return what the head says, None if there is none.

    Raises:
        HeadError: it can't be read, or is not valid.
    """
    try:
        with os.fdopen(open_file(folder / HEAD_NAME, os.O_RDONLY), "rb") as handle:
            event = event_of(handle.read(_LONGEST)) or {}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HeadError(f"{HEAD_NAME} can't be read ({error.strerror})") from None
    try:
        return as_link(event.get("seq"), event.get("hash"))
    except ValueError:
        raise HeadError(f"{HEAD_NAME} is damaged") from None


def write_head(folder: Path, link: Link) -> None:
    """Replace the head atomically: it is the old one or the new one, and on disk when this returns.

    Raises:
        OSError: it can't be written.
    """
    replace_file(folder, HEAD_NAME, json.dumps({"seq": link.seq, "hash": link.hash}).encode() + b"\n")


def replace_file(folder: Path, name: str, text: bytes) -> None:
    """Replace a small file atomically; it is on disk when this returns. There is one writer, the trim lock's holder.

    Raises:
        OSError: it can't be written.
    """
    scratch = folder / f".{name}.new"  # one fixed name: a crash leaves at most one
    handle = open_file(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        written = os.write(handle, text)
        os.fsync(handle)
    finally:
        os.close(handle)
    if written != len(text):
        raise OSError(errno.ENOSPC, "it was written in part")
    scratch.replace(folder / name)
    sync_folder(folder)
