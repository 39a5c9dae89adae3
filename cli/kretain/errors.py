"""Exit codes (docs/scripts.md), each error's code and hint (docs/errors.md), and how errors are printed."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

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


class Kind(NamedTuple):
    """A kind of error: what happened, what to do, the exit code, and the page that has more."""

    what: str
    hint: str
    exit: int = 1
    docs: str | None = None


CODES: Final[Mapping[str, Kind]] = {
    "usage": Kind("the arguments are wrong, or contradict each other", "see the command's --help", 2),
    "policy": Kind(
        "the policy file is invalid",
        "fix what each problem names; kretain policy check lists them again",
        docs="docs/policy.md",
    ),
    "fleet-file": Kind("the fleet file is invalid", "fix what each problem names", docs="docs/fleets.md"),
    "config": Kind(
        "the configuration file is invalid",
        "fix it; kretain context list shows its contexts",
        docs="docs/connecting.md",
    ),
    "settings": Kind("a connection setting is invalid", "fix the named setting", docs="docs/connecting.md"),
    "nothing-matches": Kind(
        "the policy, a TOPIC or --cluster matches nothing", "check the names, and DESCRIBE permission on the topics"
    ),
    "unreachable": Kind(
        "no broker answered", "check the address, the network and security.protocol", docs="docs/connecting.md"
    ),
    "unauthorized": Kind(
        "the cluster refused the user, or the operation",
        "grant the named permission; kretain doctor lists all",
        docs="docs/connecting.md#rights",
    ),
    "request": Kind("a request to the cluster failed", "run it again; kretain doctor shows what works"),
    "plan-file": Kind("the saved plan is invalid", "run kretain plan --out again", docs="docs/plan.md#saved-plans"),
    "inventory": Kind(
        "an inventory of segments is invalid, or could not be made",
        "run kretain segments scan again",
        docs="docs/segments.md",
    ),
    "archive": Kind("the archive is unusable", "check the archive's URL and permissions", docs="docs/archive.md"),
    "state": Kind(
        "the ledger, the audit log or the state directory is unusable", "check --state-dir", docs="docs/memory.md"
    ),
    "locked": Kind("another trim of this cluster is running", "run it later, or use --wait-lock", 6),
    "refused": Kind(
        "the plan is stale, for another cluster, over a limit, or was not confirmed", "run kretain plan again", 6
    ),
    "missing-part": Kind("an extra is not installed", "install the named extra"),
    "spark": Kind("Spark failed", "do what the text says; -vv shows where it happened", docs="docs/spark.md"),
    "output": Kind("the result could not be printed or saved", "check the disk or pipe that it goes to"),
    "interrupted": Kind("Ctrl-C, SIGTERM or --deadline", "kretain history shows what was done", 130),
    "failed": Kind("anything else", "do what the text says"),
    "internal": Kind("an error in kretain itself", "run again with -vv, and report what it shows"),
}
"""Each code. Codes are never renamed."""

_TEXT_SAYS_IT: Final = frozenset({"refused", "missing-part", "interrupted", "failed", "internal"})
"""Errors whose text already says what to do, so that people get no hint."""

_KINDS: Final[Mapping[str, str]] = {
    "UsageError": "usage",
    "NoClusterError": "usage",
    "PolicyError": "policy",
    "FleetFileError": "fleet-file",
    "ConfigError": "config",
    "SettingsError": "settings",
    "NothingMatchesError": "nothing-matches",
    "UnreachableError": "unreachable",
    "UnauthorizedError": "unauthorized",
    "BrokerError": "request",
    "SavedPlanError": "plan-file",
    "InventoryError": "inventory",
    "ScanError": "inventory",
    "FileError": "output",
    "LockedError": "locked",
    "Refusal": "refused",
    "ArchiveError": "archive",
    "StateError": "state",
    "EvidenceError": "state",
    "MissingPartError": "missing-part",
    "SparkError": "spark",
    "KeyboardInterrupt": "interrupted",
}
"""The code of each class of errors, by its name: to import all of them here would be slow."""


_chosen: Final = [""]
"""The form of errors."""
_LOG: Final = "log"


def choose(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Set how errors are printed, from a command line that may be wrong elsewhere: the last ``--errors`` counts."""
    chosen = environ.get("KRETAIN_ERRORS", "")
    for number, one in enumerate(arguments):
        if one == "--":
            break
        if one == "--errors":
            chosen = "".join(arguments[number + 1 : number + 2])
        elif one.startswith("--errors="):
            chosen = one.partition("=")[2]
    _chosen[:] = [chosen]


def for_scripts() -> bool:
    """Return whether errors are printed as JSON."""
    return _chosen in (["json"], [_LOG])


def log_as_json() -> None:
    """Print every line on stderr as JSON from now on: programs read the log (docs/watch.md, The log as JSON)."""
    _chosen[:] = [_LOG]


def is_json_log() -> bool:
    """Return whether stderr is a log of JSON lines."""
    return _chosen == [_LOG]


def log_line(event: str, **facts: object) -> str:
    """Return a line of a log of JSON lines: the time, what kind of line it is, and what it says."""
    return json.dumps(
        {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": event, **facts}, ensure_ascii=False
    )


def code_of(error: BaseException) -> str:
    """Return an error's code, a key of :data:`CODES`."""
    for kind in type(error).__mro__:
        if kind.__name__ in _KINDS and (is_ours(kind) or kind is KeyboardInterrupt):
            return _KINDS[kind.__name__]
    return "failed" if is_ours(type(error)) else "internal"


def is_ours(kind: type[BaseException]) -> bool:
    """Return whether errors of a class have a text written for users, unlike unexpected ones."""
    return kind.__module__.startswith(("retention_cli.", "kretain."))


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
    """Print an error to stderr in the form that ``--errors`` says; in a terminal, what to do follows.

    ``hint`` replaces the code's own; if it is empty, no such line follows.
    """
    lines, kind = [text] if isinstance(text, str) else text, CODES[code]
    if for_scripts():
        one_line = printable(complete("; ".join(lines)))
        error = {"exit": exit_code, "code": code, "text": one_line, "hint": hint or kind.hint, "docs": kind.docs}
        form = log_line("error", **error) if is_json_log() else json.dumps({"error": error}, ensure_ascii=False)
        print(form, file=sys.stderr, flush=True)
        return
    for line in lines:
        tell(f"kretain: {line}")
    advice = (hint or ("" if code in _TEXT_SAYS_IT else kind.hint), kind.docs)
    if sys.stderr.isatty() and hint != "" and any(advice):
        tell(f"  hint: {' · '.join(filter(None, advice))}")


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
