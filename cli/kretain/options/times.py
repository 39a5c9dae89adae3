"""A range of times, for every command that looks at some part of the past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from kretain.errors import UsageError
from kretain.options.common import OptionGroup, duration_ms, option, time_ms

RANGE = "Time range (default: all)"


@dataclass(frozen=True, slots=True)
class TimeRange(OptionGroup):
    """From ``since`` on and before ``until`` (Unix ms), or the ``last`` milliseconds."""

    since: Annotated[
        int | None,
        option(
            "--since", metavar="TIME", panel=RANGE, parser=time_ms, help="Begin at this time (ISO 8601 or Unix ms)."
        ),
    ] = None
    until: Annotated[
        int | None,
        option("--until", metavar="TIME", panel=RANGE, parser=time_ms, help="End before this time."),
    ] = None
    last: Annotated[
        int | None,
        option("--last", metavar="DURATION", panel=RANGE, parser=duration_ms, help="Begin this long ago, such as 7d."),
    ] = None

    @property
    def given(self) -> bool:
        """Whether one of the options was given."""
        return (self.since, self.until, self.last) != (None, None, None)

    def bounds(self, now_ms: int) -> tuple[int | None, int | None]:
        """Return the first time (Unix ms) and the one before which it ends; None: no bound.

        Raises:
            UsageError: the options contradict each other.
        """
        if self.last is not None:
            if self.since is not None or self.until is not None:
                raise UsageError("--last goes without --since and --until")
            return max(0, now_ms - self.last), None
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise UsageError("--since is not before --until")
        return self.since, self.until
