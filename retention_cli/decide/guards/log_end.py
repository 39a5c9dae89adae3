"""G1: never past the high watermark, nor past the last stable offset."""

from __future__ import annotations

from typing import Final

from retention_cli.core.model import Code, PartitionFacts, Unknown
from retention_cli.decide.guards.interface import Guard
from retention_cli.policy.settings import Settings

OPEN: Final = "an open transaction begins at"


class LogEnd(Guard):
    """Limits every trigger to min(H, L): a broker does not protect an open transaction's records."""

    code: Code = Code.G1

    def applies(self, trigger: str, settings: Settings) -> bool:
        """Return True: all triggers are guarded."""
        del trigger, settings
        return True

    def limit(self, bound: int, facts: PartitionFacts, settings: Settings, now_ms: int) -> int | Unknown:
        """Return min(bound, H, L)."""
        del settings, now_ms
        high, stable = facts.high_watermark, facts.last_stable_offset
        if isinstance(high, Unknown):
            return high
        return stable if isinstance(stable, Unknown) else min(bound, high, stable)

    def holds_back(self, facts: PartitionFacts, settings: Settings) -> str:
        """Return the text for a limit by this guard: the end that limits."""
        del settings
        high, stable = facts.high_watermark, facts.last_stable_offset
        if not isinstance(high, Unknown) and not isinstance(stable, Unknown) and stable < high:
            return f"{OPEN} {stable:,}"
        return "the high watermark"
