"""Time as an argument: code that waits, times out or stamps uses a :class:`Clock`, which tests can control."""

from __future__ import annotations

import time
from typing import Final, Protocol


class Clock(Protocol):
    """A clock that can also wait."""

    def monotonic(self) -> float:
        """Return monotonic seconds since an arbitrary start, for deadlines."""
        ...

    def wall_ms(self) -> int:
        """Return this machine's time in Unix ms, for cutoffs and for the ledger."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """This machine's clock."""

    def monotonic(self) -> float:
        """Return ``time.monotonic()``."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Return this machine's time in Unix ms."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


SYSTEM: Final = SystemClock()
