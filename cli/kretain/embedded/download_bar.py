"""A progress bar for a download by another process, in a terminal: how much is in its folder, looked at regularly."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_EVERY_SECONDS: Final = 0.25


@contextlib.contextmanager
def download_bar(folder: Path, expected_bytes: int | None) -> Iterator[None]:
    """Show how many bytes came into a folder since this began; nothing if stderr is not a terminal.

    Args:
        folder: where the files come; it need not be there yet.
        expected_bytes: about how many will come, None if that is not known: then the bar only moves.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeElapsedColumn

    columns = (BarColumn(), DownloadColumn(binary_units=True), TimeElapsedColumn())
    before = bytes_in(folder)
    ended = threading.Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=expected_bytes)
        watcher = threading.Thread(target=_watch, args=(folder, before, expected_bytes, bar, task, ended), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _watch(folder: Path, before: int, expected: int | None, bar: Any, task: Any, ended: threading.Event) -> None:
    while not ended.wait(_EVERY_SECONDS):
        came = bytes_in(folder) - before
        bar.update(task, completed=came if expected is None else min(came, expected))


def bytes_in(folder: Path) -> int:
    """Return the size of all files below a folder, in bytes; files that go meanwhile count as none."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total
