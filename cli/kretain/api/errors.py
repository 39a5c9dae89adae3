"""The errors of the Python API, by kind: each has the code and exit code of the command (docs/errors.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, Literal

from kretain.errors import CODES, code_of, is_ours

ErrorCode = Literal[
    "usage",
    "policy",
    "fleet-file",
    "config",
    "settings",
    "nothing-matches",
    "unreachable",
    "unauthorized",
    "request",
    "plan-file",
    "inventory",
    "archive",
    "state",
    "locked",
    "refused",
    "missing-part",
    "spark",
    "output",
    "interrupted",
    "failed",
    "internal",
]
"""What ``KretainError.code`` may be: the codes of ``--errors json``."""


class KretainError(Exception):
    """What was asked for was not done: nothing was trimmed. The cause is ``__cause__``.

    ``code`` is the kind (docs/errors.md), ``exit_code`` the command's: 1 failed, 2 wrong arguments, 6 refused.
    ``problems`` are the lines to show: one, or one per problem of a policy.
    """

    def __init__(self, text: str, code: ErrorCode, problems: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.code: ErrorCode = code
        self.exit_code = CODES[code].exit
        self.problems = problems or (text,)


class UsageError(KretainError):
    """The arguments are wrong, or contradict each other (exit code 2)."""


class PolicyError(KretainError):
    """The policy file is invalid, or matches no topic."""


class SettingsError(KretainError):
    """A connection setting or the configuration file is invalid."""


class UnreachableError(KretainError):
    """No broker answered."""


class UnauthorizedError(KretainError):
    """The cluster refused the user, or the operation."""


class RequestError(KretainError):
    """A request to the cluster failed."""


class StateError(KretainError):
    """The ledger, the audit log or the state directory is unusable."""


class RefusedError(KretainError):
    """A trim must not proceed: not confirmed, another cluster, too old a plan, or a limit (exit code 6)."""


class LockedError(RefusedError):
    """Another trim of this cluster is running."""


_KINDS: Final[dict[str, type[KretainError]]] = {
    "usage": UsageError,
    "policy": PolicyError,
    "nothing-matches": PolicyError,
    "settings": SettingsError,
    "config": SettingsError,
    "unreachable": UnreachableError,
    "unauthorized": UnauthorizedError,
    "request": RequestError,
    "state": StateError,
    "refused": RefusedError,
    "locked": LockedError,
}
"""The class of each code; others are a plain KretainError."""


def usage(text: str) -> KretainError:
    """Return the error for arguments that don't go together."""
    return UsageError(text, "usage")


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise errors with a text for users as the API's own. Others are bugs, and stay what they are.

    Raises:
        KretainError: one was raised in this block.
    """
    try:
        yield
    except KretainError:
        raise
    except Exception as error:
        if not is_ours(type(error)):
            raise
        text, code = " ".join(str(error).split()), code_of(error)
        kind, problems = _KINDS.get(code, KretainError), tuple(map(str, getattr(error, "problems", ())))
        raise kind(text, code, problems) from error  # type: ignore[arg-type]  # (a key of CODES)
