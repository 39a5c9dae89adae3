"""The kinds of failures that metrics count, and which error is of which kind."""

from __future__ import annotations

from typing import Final

from retention_cli.audit.lock import LockedError
from retention_cli.brokers.errors import BrokerError, UnauthorizedError, UnreachableError
from retention_cli.core.errors import Refusal
from retention_cli.core.state_dir import StateError
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.selection import NothingMatchesError

KINDS: Final = (
    *("broker", "unreachable", "unauthorized", "policy", "state", "locked", "refused", "partition", "election"),
    *("textfile", "shipping", "system", "other"),
)
"""Every value of the label ``kind`` (docs/watch.md)."""

_OF_CLASS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (UnreachableError, "unreachable"),
    (UnauthorizedError, "unauthorized"),
    (BrokerError, "broker"),
    (PolicyError, "policy"),
    (NothingMatchesError, "policy"),
    (LockedError, "locked"),
    (Refusal, "refused"),
    (StateError, "state"),
    (OSError, "system"),
)


def kind_of(error: Exception) -> str | None:
    """Return an error's kind; None if it is none that a later pass could do without, but a defect of kretain."""
    for kind, name in _OF_CLASS:
        if isinstance(error, kind):
            return name
    return "other" if type(error).__module__.startswith(("retention_cli.", "kretain.")) else None
