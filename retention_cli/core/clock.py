"""Time as an argument: code that waits, times out or stamps uses a :class:`Clock`, which tests can control."""

from __future__ import annotations

import time
from typing import Final

_AWAKE_AND_ASLEEP: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has a clock of its own for that; elsewhere CLOCK_MONOTONIC goes on in sleep."""


class Clock:
    """This machine's clock, which can also wait. Tests have others."""

    def monotonic(self) -> float:
        """Return monotonic seconds since an arbitrary start, for deadlines."""
        return time.monotonic()

    def since_boot(self) -> float:
        """Return seconds since an arbitrary start, including those that the machine slept, for the age of facts.

        :meth:`monotonic` may stop while a machine sleeps: facts read before would look fresh after.
        """
        return time.clock_gettime(_AWAKE_AND_ASLEEP)

    def wall_ms(self) -> int:
        """Return this machine's time in Unix ms, for cutoffs and for the ledger."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


SYSTEM: Final = Clock()
