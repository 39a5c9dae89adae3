"""Exit codes (docs/scripts.md), and the code of each error. Defined only here."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from kretain.error_codes import (
    CODES,
    code_of,
    error_line,
    for_scripts,
    hint_for,
    is_json_log,
    is_ours,
    log_line,
)
from kretain.reach import complete
from retention_cli.core.errors import Refusal
from retention_cli.core.printable import printable


class Exit(IntEnum):
    """Exit codes."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    HAS_CHANGES = 3
    ON_HOLD = 4
    PARTIAL = 5
    REFUSED = 6
    INTERRUPTED = 130


def worst(*codes: Exit) -> Exit:
    """Return the code that takes precedence, DONE if none applies."""
    most = (Exit.INTERRUPTED, Exit.FAILED, Exit.REFUSED, Exit.PARTIAL, Exit.ON_HOLD, Exit.HAS_CHANGES)
    return next((code for code in most if code in codes), Exit.DONE)


def of_many(codes: Sequence[Exit]) -> Exit:
    """Return the exit code of a run over several clusters, from each one's own.

    If one cluster failed or was refused while others were planned or trimmed, the code is partial: 1 and 6 mean that
    nothing was trimmed, so they must be true of all clusters.
    """
    if Exit.INTERRUPTED in codes:
        return Exit.INTERRUPTED
    lost = sum(code in (Exit.FAILED, Exit.REFUSED) for code in codes)
    return Exit.PARTIAL if 0 < lost < len(codes) else worst(*codes)


class UsageError(Exception):
    """The arguments don't go together; exit 2."""


class RefusedError(Refusal):
    """The trim must not proceed; exit 6. Nothing was trimmed."""


@dataclass(slots=True)
class Deletions:
    """What a command has deleted. After the first delete no failure may exit with 1, which means that nothing was.

    ``failed``: a failure after that was reported.
    """

    failed: bool = False
    _lines: list[str] = field(default_factory=list)

    def note(self, line: str) -> None:
        """Record what was deleted, in a self-contained line: the run's name and its totals."""
        self._lines.append(line)

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __str__(self) -> str:
        return "; ".join(self._lines)

    def fail(self, error: Exception, verbosity: int) -> None:
        """Report a failure after a delete, and continue: the report has yet to be printed."""
        self.failed = True
        report(as_engine_error(error), verbosity, exit_code=Exit.PARTIAL)

    @contextlib.contextmanager
    def behind(self, verbosity: int) -> Iterator[None]:
        """Report and swallow any error in this block if something was deleted before; otherwise raise it as usual."""
        try:
            yield
        except Exception as error:
            if not self:
                raise
            self.fail(error, verbosity)

    def leave_with(self, code: Exit) -> Exit:
        """Return the exit code of a command that would otherwise exit with ``code``."""
        if self and code in (Exit.FAILED, Exit.REFUSED):
            return Exit.PARTIAL
        return worst(code, Exit.PARTIAL) if self.failed else code


def exit_code_for(error: BaseException) -> Exit:
    """Return the exit code for an error."""
    return Exit(CODES[code_of(error)].exit)


def as_engine_error(error: BaseException) -> BaseException:
    """Return the error to report: errors of Spark's libraries become a SparkError.

    Where a Ctrl-C comes while a class is made, as in an import, Python 3.11 raises a RuntimeError: it is its cause.
    """
    if isinstance(error.__cause__, KeyboardInterrupt):
        return error.__cause__
    if "pyspark" not in sys.modules:
        return error
    from retention_cli.engines.spark.session import as_spark_error

    known = as_spark_error(error)
    if known is None:
        return error
    known.__cause__ = error
    return known


def report(error: BaseException, verbosity: int, *, exit_code: Exit | None = None, deletions: str = "") -> None:
    """Report an error on stderr, in one line (one per problem of a policy); with ``-vv`` also the traceback.

    ``exit_code`` is the one that the command will have, if not the error's own; ``deletions`` what was deleted before.
    """
    if verbosity >= 2:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, KeyboardInterrupt):  # at a question it has a text: what was not done
        lines = ["; ".join(["interrupted", *map(str, error.args)])]
    else:
        lines = [*map(str, lines_of(error))]
    if deletions:
        lines.append(f"before that: {deletions}")
    hint = None if for_scripts() else getattr(error, "hint", None)  # for scripts, the code's own
    tell_error(exit_code_for(error) if exit_code is None else exit_code, code_of(error), lines, hint)


def tell_error(exit_code: int, code: str, text: str | Sequence[str], hint: str | None = None) -> None:
    """Print an error to stderr in the form that ``--errors`` says; in a terminal a hint follows."""
    lines = [text] if isinstance(text, str) else text
    if for_scripts():
        print(error_line(exit_code, code, printable(complete("; ".join(lines))), hint), file=sys.stderr, flush=True)
        return
    for line in lines:
        tell(f"kretain: {line}")
    if sys.stderr.isatty() and (advice := hint_for(code, hint)) is not None:
        tell(f"  hint: {advice}")


def warn(*notes: Any) -> None:
    """Print warnings to stderr: texts or reasons."""
    for note in notes:
        tell(f"kretain: {getattr(note, 'text', note)}")


def tell(line: str, *, end: str = "\n") -> None:
    """Print a line to stderr, wrapped at words in a terminal, unbroken in a pipe."""
    line = printable(complete(line))
    if is_json_log():
        line = log_line("note", text=line)
    elif sys.stderr.isatty():
        import shutil
        import textwrap

        width = shutil.get_terminal_size((100, 24)).columns - (0 if end == "\n" else len("[y/N] no"))
        line = textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    print(line, end=end, file=sys.stderr, flush=True)


def lines_of(error: BaseException) -> Sequence[str]:
    """Return the lines that report an error: one, or one per problem of a policy, of which there are some 20."""
    return getattr(error, "lines", None) or getattr(error, "problems", None) or (line_of(error),)


def line_of(error: BaseException) -> str:
    """Return an error's text in one line."""
    text = " ".join(str(error).split())
    if is_ours(type(error)):
        return text
    return f"internal error: {type(error).__name__}: {text} (run again with -vv and report what it shows)"
