"""What the loop tells its log, and the threads that serve metrics and health; the kinds of failures that it counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from retention_cli.audit.lock import LockedError
from retention_cli.brokers.errors import BrokerError, UnauthorizedError, UnreachableError
from retention_cli.core.errors import Refusal
from retention_cli.core.state_dir import StateError
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.selection import NothingMatchesError
from retention_cli.watch.measured import Measured

READY_INTERVALS: Final = 3
"""How many intervals old the last success may be."""
STUCK_S: Final = 900.0
"""How long a pass may make no progress before the loop counts as dead (s); at least three intervals."""


KINDS: Final = (
    *("broker", "unreachable", "unauthorized", "policy", "state", "locked", "refused", "partition", "election"),
    *("protect", "textfile", "shipping", "system", "other"),
)
"""Every value of the label ``kind`` (docs/metrics.md)."""

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


class Say(Protocol):
    """Prints a line of the log (docs/watch.md, The log as JSON).

    ``event`` is what kind of line it is, ``facts`` are the other keys that it has as JSON.
    """

    def __call__(self, text: str, event: str = "note", /, **facts: object) -> None:
        """Print it."""


@dataclass(slots=True)
class Board:
    """Everything that metrics show, and how alive the loop is. The loop alone writes; counters count since it began.

    Args:
        interval_s: the time between passes (s).
        leads: returns whether this instance leads now.
        policy_valid: returns whether the policy file was right when it was last read.
        cluster: the cluster's id, empty until it is known.
        measured: the last plan's values, None before the first.
        planned_s: when that was made (Unix time).
        protected: how many settings are raised now, None if that was not looked at.
    """

    interval_s: float
    leads: Callable[[], bool]
    policy_valid: Callable[[], bool]
    cluster: str = ""
    last_success_s: float | None = None
    pass_s: float | None = None
    measured: Measured | None = None
    planned_s: float | None = None
    trimmed_records: int = 0
    trimmed_bytes: int = 0
    protected: int | None = None
    protect_changes: int = 0
    failures: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    _ticked: float = field(init=False)
    _succeeded: float | None = None

    def __post_init__(self) -> None:
        self.tick()

    def fail(self, kind: str, times: int = 1) -> None:
        """Count failures of a kind."""
        self.failures = {**self.failures, kind: self.failures[kind] + times}  # others read it meanwhile

    def succeed(self, now_s: float) -> None:
        """Record a pass that did all it should. ``now_s`` is Unix time."""
        self._succeeded = time.monotonic()
        self.last_success_s = now_s

    def tick(self, phase: str = "", done: int = 0, total: int | None = None) -> None:
        """Record that the loop is alive; also a :class:`~retention_cli.core.progress.Progress`."""
        del phase, done, total
        self._ticked = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether the loop has moved lately."""
        return time.monotonic() - self._ticked < max(STUCK_S, READY_INTERVALS * self.interval_s)

    @property
    def unready(self) -> str | None:
        """Why it is not ready: no pass has succeeded yet, or none within three intervals; None if it is."""
        if self._succeeded is None:
            return "no pass has succeeded yet"
        age = time.monotonic() - self._succeeded
        if age < READY_INTERVALS * self.interval_s + max(60.0, self.pass_s or 0.0):
            return None
        return f"the last pass that succeeded was {age:.0f} s ago"
