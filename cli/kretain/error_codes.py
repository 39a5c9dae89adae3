"""Errors for scripts (``--errors json``): a stable code, and a hint, for each kind of error (docs/errors.md)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple


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
        "the policy, a TOPIC or --cluster matches nothing", "check the names, and DESCRIBE on the topics"
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
        "a plan that is stale, of another cluster, past a limit, or not confirmed", "run kretain plan again", 6
    ),
    "missing-part": Kind("an extra is not installed", "install the named extra"),
    "spark": Kind("Spark failed", "follow the text; -vv shows where it happened", docs="docs/spark.md"),
    "output": Kind("the result could not be printed or saved", "check the disk or pipe that it goes to"),
    "interrupted": Kind("Ctrl-C, SIGTERM or --deadline", "kretain history shows what was done", 130),
    "failed": Kind("anything else", "follow the text"),
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


def hint_for(code: str, hint: str | None = None) -> str | None:
    """Return the line that follows an error in a terminal: what to do, and where to read more; None if neither.

    ``hint`` replaces the code's own; if it is empty, there is no line.
    """
    if hint == "":
        return None
    kind = CODES[code]
    advice = hint or ("" if code in _TEXT_SAYS_IT else kind.hint)
    return " · ".join(part for part in (advice, kind.docs) if part) or None


def error_line(exit_code: int, code: str, text: str, hint: str | None = None) -> str:
    """Return an error as JSON in one line."""
    kind = CODES[code]
    error = {"exit": exit_code, "code": code, "text": text, "hint": hint or kind.hint, "docs": kind.docs}
    if is_json_log():
        return log_line("error", **error)
    return json.dumps({"error": error}, ensure_ascii=False)
