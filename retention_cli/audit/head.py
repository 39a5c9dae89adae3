"""``audit.head``: the number and hash of the audit log's last line, so that a cut at its end shows."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Final

from retention_cli.audit.chain import Link, as_link, event_of

HEAD_NAME: Final = "audit.head"
_LONGEST: Final = 4_096


class HeadError(Exception):
    """There is a head, and it can't be read; the text says why."""


def read_head(folder: Path) -> Link | None:
    """Return what the head says, None where there is none.

    Raises:
        HeadError: it can't be read, or says nothing of use.
    """
    try:
        with (folder / HEAD_NAME).open("rb") as handle:
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
    """Replace the head: it is the old one or the new one, never half of it, and on the disk when this returns.

    Raises:
        OSError: it can't be written.
    """
    scratch = folder / f".{HEAD_NAME}.new"  # one name, so that a crash leaves one at the most: there is one writer
    text = json.dumps({"seq": link.seq, "hash": link.hash}).encode() + b"\n"
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        written = os.write(handle, text)
        os.fsync(handle)
    finally:
        os.close(handle)
    if written != len(text):
        raise OSError(errno.ENOSPC, "it was written in part")
    scratch.replace(folder / HEAD_NAME)
    above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(above)
    finally:
        os.close(above)
