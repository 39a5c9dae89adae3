"""What the loop tells the threads that serve metrics and health: one value, replaced as a whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from retention_cli.watch.failures import KINDS
from retention_cli.watch.measured import Measured

READY_INTERVALS: Final = 3
"""How many intervals old the last success may be."""
STUCK_S: Final = 900.0
"""How long a pass may make no progress before the loop counts as dead (s); at least three intervals."""


@dataclass(frozen=True, slots=True)
class Status:
    """Everything that metrics show. ``last_success_s`` is Unix time; counters count since the process began.

    ``cluster`` is the cluster's id, empty until it is known. ``measured`` is the last plan's, None before the first;
    ``planned_s`` is when that was made (Unix time).
    """

    cluster: str = ""
    last_success_s: float | None = None
    pass_s: float | None = None
    measured: Measured | None = None
    planned_s: float | None = None
    trimmed_records: int = 0
    trimmed_bytes: int = 0
    failures: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))


class Board:
    """The current status, and how alive the loop is. The loop alone writes.

    Args:
        interval_s: the time between passes (s).
        leads: returns whether this instance leads now.
        policy_valid: returns whether the policy file was right when it was last read.
    """

    def __init__(self, interval_s: float, leads: Callable[[], bool], policy_valid: Callable[[], bool]) -> None:
        self.status = Status()
        self.leads = leads
        self.policy_valid = policy_valid
        self._interval_s = interval_s
        self._ticked = time.monotonic()
        self._succeeded: float | None = None

    def put(self, **changes: object) -> None:
        """Replace fields of the status."""
        self.status = replace(self.status, **changes)  # type: ignore[arg-type]

    def fail(self, kind: str, times: int = 1) -> None:
        """Count failures of a kind."""
        self.put(failures={**self.status.failures, kind: self.status.failures[kind] + times})

    def succeed(self, now_s: float) -> None:
        """Record a pass that did all it should. ``now_s`` is Unix time."""
        self._succeeded = time.monotonic()
        self.put(last_success_s=now_s)

    def tick(self, phase: str = "", done: int = 0, total: int | None = None) -> None:
        """Record that the loop is alive; also a :class:`~retention_cli.core.progress.Progress`."""
        del phase, done, total
        self._ticked = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether the loop has moved lately."""
        return time.monotonic() - self._ticked < max(STUCK_S, READY_INTERVALS * self._interval_s)

    @property
    def unready(self) -> str | None:
        """Why it is not ready: no pass has succeeded yet, or none within three intervals; None if it is."""
        if self._succeeded is None:
            return "no pass has succeeded yet"
        age = time.monotonic() - self._succeeded
        if age < READY_INTERVALS * self._interval_s + max(60.0, self.status.pass_s or 0.0):
            return None
        return f"the last pass that succeeded was {age:.0f} s ago"
