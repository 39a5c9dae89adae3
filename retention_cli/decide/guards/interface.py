"""What a guard is: a rule that limits the bounds of some triggers, or of all (docs/rules.md, Words)."""

from __future__ import annotations

from typing import Protocol

from retention_cli.core.model import GuardCode, PartitionFacts, Unknown
from retention_cli.policy.settings import Settings


class Guard(Protocol):
    """A pure limit. It is asked only about bounds beyond the log start offset."""

    code: GuardCode

    def applies(self, trigger: str, settings: Settings) -> bool:
        """Return whether the trigger with this code (``R1`` …) is guarded under these settings."""
        ...

    def cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return the times (Unix ms) whose ``offset_at`` the guard wants to know: none, for most."""
        del facts, settings, now_ms
        return ()

    def limit(self, bound: int, facts: PartitionFacts, settings: Settings, now_ms: int) -> int | Unknown:
        """Return how far a bound may go: ``bound`` itself, less, or unknown, which stops the trigger."""
        ...

    def holds_back(self, facts: PartitionFacts, settings: Settings) -> str:
        """Return, for people, what the limit is: ``group:billing has read up to 700``."""
        ...
