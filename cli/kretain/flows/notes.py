"""Print a note about a cluster once a day, not with every plan."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kretain.system.files import write_whole
from retention_cli.core.files import FileError
from retention_cli.core.state_dir import StateError, cluster_folder, opened

FILE_NAME: Final = "notes.json"
_DAY_MS: Final = 86_400_000
_LONGEST: Final = 1 << 20
"""A longer file is ignored. It has 30 bytes per note."""
IsNew = Callable[[str], bool]


def always(_text: str) -> bool:
    """Return True: print every note."""
    return True


@contextlib.contextmanager
def once_a_day(state_dir: Path, cluster_id: str, now_ms: int) -> Iterator[IsNew]:
    """Yield a function that returns whether a note was not printed about this cluster in the last 24 hours.

    Each note that it is asked about counts as printed. If the state directory cannot be read or written, notes are
    printed again, and nothing else changes.
    """
    shown: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError, RecursionError, StateError):
        shown = _read(cluster_folder(state_dir, cluster_id) / FILE_NAME, now_ms)
    before = dict(shown)

    def is_new(text: str) -> bool:
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return shown.setdefault(key, now_ms) == now_ms

    yield is_new
    if shown != before:
        with contextlib.suppress(FileError, StateError):
            write_whole(cluster_folder(state_dir, cluster_id) / FILE_NAME, [json.dumps(shown)], 0o600)


def _read(path: Path, now_ms: int) -> dict[str, int]:
    """Return the notes of the last 24 hours, and when each was printed (Unix ms)."""
    with opened(path, os.O_RDONLY) as handle:
        content = os.read(handle, _LONGEST + 1)
    found = json.loads(content) if len(content) <= _LONGEST else {}
    if not isinstance(found, dict):
        return {}
    return {key: at for key, at in found.items() if isinstance(at, int) and 0 <= now_ms - at < _DAY_MS}
