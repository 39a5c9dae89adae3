"""Standard streams that always exist, and whose failures are reported only when the work is done.

A result that can't be printed must not stop the work half-way, nor change the exit code of what was done. So a failed
write is remembered, and later output is dropped; at the end the command checks whether everything was printed.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

T = TypeVar("T")

PLAIN: Final = {
    "€": "EUR",
    "£": "GBP",
    "¥": "JPY",
    "₹": "INR",
    **dict.fromkeys("–—−‑─━┄┈╌╴╶╸╺", "-"),  # noqa: RUF001
    **dict.fromkeys("│┃┆┊╎╵╷╹╻", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯┏┓┗┛┣┫┳┻╋", "+"),
    **dict.fromkeys("█▉▊▋▌▍▎▏▐▁▂▃▄▅▆▇▀■", "#"),
    **dict.fromkeys("▓▒", "="),
    **dict.fromkeys("·•░", "."),
    **dict.fromkeys("‘’", "'"),  # noqa: RUF001
    **dict.fromkeys("“”„", '"'),
    **dict.fromkeys("→▶►", ">"),
    **dict.fromkeys("←◀◄", "<"),
    **dict.fromkeys("↑▲", "^"),
    **dict.fromkeys("↓▼", "v"),
    **dict.fromkeys("×✗✘", "x"),
    **dict.fromkeys("●○◆◇✓✔", "*"),
    **dict.fromkeys("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "*"),
    "\N{NO-BREAK SPACE}": " ",
    "…": "...",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "≈": "~",
    "±": "+-",
    "§": "section ",
    "°": " degrees",
}
"""What stands for our own signs on a terminal whose encoding lacks them: one character for one where tables align."""

before_write: Callable[[int, bytes], None] | None = None
"""Called with the descriptor and the data before each write: progress makes room for it."""


class _Channel(io.FileIO):
    """A file descriptor for writing that raises nothing. ``failure`` is its first error; later output is dropped."""

    failure: OSError | None = None

    def write(self, some: Any, /) -> int:
        """Write some of the data, and return how much; if that fails, drop all of it."""
        if before_write is not None:
            before_write(self.fileno(), bytes(some))
        if self.failure is None:
            try:
                while (written := super().write(some)) is None:  # a pipe that was set to non-blocking
                    select.select([], [self.fileno()], [])
            except OSError as error:
                self.failure = error
            else:
                return written
        return memoryview(some).nbytes


def prepare() -> None:
    """Install these streams, once, before any other file is opened.

    If the parent process has closed a descriptor, its number is occupied: otherwise a ledger could get the number 2,
    and a library's output would overwrite it. A character that an encoding lacks is written as in :data:`PLAIN`, else
    as its escape.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:  # open takes this, the lowest free number; 1, opened for reading, fails like a closed stdout
            os.open(os.devnull, flags)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = stream_of(1, sys.stdout)
    sys.stderr = stream_of(2, sys.stderr)


def stream_of(number: int, was: Any) -> io.TextIOWrapper:
    """Return a text stream on a descriptor, which remembers its first failure."""
    return io.TextIOWrapper(
        io.BufferedWriter(_Channel(number, "w", closefd=False)),
        encoding="utf-8" if was is None else was.encoding,
        errors="kretain",
        line_buffering=number == 2 or (was is not None and was.line_buffering),
        write_through=was is not None and was.write_through,
    )


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace what an encoding lacks (:func:`codecs.register_error`)."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(one) or escaped(one) for one in error.object[error.start : error.end]), error.end


codecs.register_error("kretain", _plain)


def escaped(text: str, encoding: str = "ascii") -> str:
    """Return a text with the escape of each character that an encoding lacks."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _failure() -> OSError | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.failure if isinstance(raw, _Channel) else None


def unprinted() -> str | None:
    """Return why stdout did not accept all of the result, None if it did, or if its reader stopped reading early."""
    sys.stdout.flush()
    failure = _failure()
    if failure is None or failure.errno == errno.EPIPE:
        return None
    return "stdout is closed" if failure.errno == errno.EBADF else failure.strerror or str(failure)


def while_heard(parts: Iterable[T]) -> Iterator[T]:
    """Yield parts of a long result as long as stdout accepts them, so that no rows are made for a closed pipe."""
    for part in parts:
        yield part
        if _failure() is not None:
            return


def is_utf8() -> bool:
    """Return whether stdout can show any character."""
    return codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name == "utf-8"
