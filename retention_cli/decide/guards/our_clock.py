"""G8: if this machine's clock and the brokers' differ, no time-based rule may ask for a bound."""

from __future__ import annotations

from retention_cli.core.model import Code, PartitionFacts, Unknown
from retention_cli.decide.guards.interface import Guard
from retention_cli.policy.settings import Settings

MAX_SKEW_MS = 60_000
_GUARDED = frozenset({Code.R1, Code.R2, Code.R3, Code.R4, Code.R7})  # R7 is R1 and R4 with shorter times


class OurClock(Guard):
    """Stops rules that use the current time. Without the brokers' time it does not apply, and the plan notes that."""

    code: Code = Code.G8

    def applies(self, trigger: str, settings: Settings) -> bool:
        """Return whether the trigger uses the current time: itself, or in G4 and ``allow.empty``; R5 does in G3."""
        return trigger in _GUARDED or (trigger == Code.R5 and settings.min_wallclock_ms is not None)

    def limit(self, bound: int, facts: PartitionFacts, settings: Settings, now_ms: int) -> int | Unknown:
        """Return the bound; unknown if the clocks differ."""
        del settings, now_ms
        return bound if facts.clock is None else facts.clock

    def holds_back(self, facts: PartitionFacts, settings: Settings) -> str:
        """Return the text for a limit by this guard."""
        del facts, settings
        return "this machine's clock and the brokers' differ"


def compare_clocks(ours_before_ms: int, theirs_ms: int, ours_after_ms: int) -> Unknown | None:
    """Return why the clocks can't be trusted, None if they differ by at most 60 s (G8).

    A broker stamped ``theirs_ms`` between the two readings of this machine's clock (all in Unix ms).
    """
    lag = lag_ms(ours_before_ms, theirs_ms, ours_after_ms)
    if abs(lag) <= MAX_SKEW_MS:
        return None
    return Unknown.because(Code.G8, f"this machine's clock is {apart(lag)}: correct it (NTP) before trimming")


def lag_ms(ours_before_ms: int, theirs_ms: int, ours_after_ms: int) -> int:
    """Return the least lag of this machine's clock behind the brokers' (ms); negative if it is ahead."""
    return max(theirs_ms - ours_after_ms, 0) or min(theirs_ms - ours_before_ms, 0)


def apart(lag: int) -> str:
    """Return a lag (ms) as text: ``90 s behind the brokers'``."""
    return f"{abs(lag) // 1000:,} s {'behind' if lag > 0 else 'ahead of'} the brokers'"
