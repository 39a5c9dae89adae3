"""The errors of the Python API: one class, with the exit code that the command would leave with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kretain.errors import Exit, exit_code_for


class KretainError(Exception):
    """What was asked for was not done: nothing was trimmed. The cause is ``__cause__``.

    ``exit_code`` is the command's: 1 failed, 2 wrong arguments, 6 refused. ``problems`` are the lines to show: one, or
    one per problem of a policy.
    """

    def __init__(self, text: str, exit_code: int = Exit.FAILED, problems: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.exit_code = int(exit_code)
        self.problems = problems or (text,)


class RefusedError(KretainError):
    """A trim must not proceed: not confirmed, another cluster, too old a plan, or a limit (exit code 6)."""

    def __init__(self, text: str) -> None:
        super().__init__(text, Exit.REFUSED)


def usage(text: str) -> KretainError:
    """Return the error for arguments that don't go together."""
    return KretainError(text, Exit.USAGE)


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
        if not type(error).__module__.startswith(("retention_cli.", "kretain.")):
            raise
        text, code = " ".join(str(error).split()), exit_code_for(error)
        if code == Exit.REFUSED:
            raise RefusedError(text) from error
        raise KretainError(text, code, tuple(map(str, getattr(error, "problems", ())))) from error
