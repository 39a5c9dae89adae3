"""Time as an argument: what waits, gives up or stamps asks a :class:`Clock`, so that a test can be its hands."""

from __future__ import annotations

import time
from typing import Final, Protocol


class Clock(Protocol):
    """A clock that can also wait."""

    def monotonic(self) -> float:
        """Return seconds that only go on, from an unknown start: for deadlines."""
        ...

    def wall_ms(self) -> int:
        """Return our wall clock, Unix ms: for cutoffs and for what is remembered."""
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
        """Return the wall clock, Unix ms."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


SYSTEM: Final = SystemClock()
