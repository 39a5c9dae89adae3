"""The guard interface: a guard limits the bounds of some or all triggers (docs/rules.md, Words)."""

from __future__ import annotations

from typing import Protocol

from retention_cli.core.model import Code, PartitionFacts, Unknown
from retention_cli.policy.settings import Settings


class Guard(Protocol):
    """A pure limit, called only with bounds beyond the log start offset."""

    code: Code

    def applies(self, trigger: str, settings: Settings) -> bool:
        """Return whether the trigger with this code (``R1`` …) is guarded under these settings."""
        ...

    def cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return the times (Unix ms) whose ``offset_at`` the guard needs; most guards need none."""
        del facts, settings, now_ms
        return ()

    def limit(self, bound: int, facts: PartitionFacts, settings: Settings, now_ms: int) -> int | Unknown:
        """Return the limit for a bound: ``bound`` itself, a smaller offset, or unknown, which stops the trigger."""
        ...

    def holds_back(self, facts: PartitionFacts, settings: Settings) -> str:
        """Return the limit as a text for display: ``group:billing has read up to 700``."""
        ...
