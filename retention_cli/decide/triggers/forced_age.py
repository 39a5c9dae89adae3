"""R4: the forced level of KIP-68, exact to the record where a broker waits for a whole segment."""

from __future__ import annotations

from retention_cli.core.model import Code, PartitionFacts
from retention_cli.decide.triggers.interface import Ask, NotEnabled, Trigger, offset_at
from retention_cli.policy.settings import Settings


class ForcedAge(Trigger):
    """Asks for ``offset_at(now - A)``, regardless of the floor."""

    code = Code.R4

    def on(self, facts: PartitionFacts, settings: Settings) -> bool:
        """Return whether the policy turns it on."""
        del facts
        return settings.forced_age_ms is not None

    def cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return ``now - A`` if R4 is on."""
        del facts
        return () if settings.forced_age_ms is None else (now_ms - settings.forced_age_ms,)

    def ask(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> Ask:
        """Return R4's bound."""
        if settings.forced_age_ms is None:
            return NotEnabled()
        return offset_at(facts, now_ms - settings.forced_age_ms, settings, now_ms)
