"""G2: records that a counting consumer has not read are kept, unless the policy allows trimming them."""

from __future__ import annotations

from typing import Final

from retention_cli.core.consumers import NO_GROUP
from retention_cli.core.model import Code, PartitionFacts, Reason, Unknown
from retention_cli.decide.guards.interface import Guard
from retention_cli.policy.settings import Settings

_NO_GROUP: Final = Reason(
    NO_GROUP.code, f"{NO_GROUP.text}; if no group reads it, set unconsumed: trim, or --unconsumed trim for one run"
)
_GUARDED = frozenset({Code.R2, Code.R3, Code.R5, Code.R6, Code.R7})


class Unconsumed(Guard):
    """Limits bounds to the floor; an unknown floor stops the trigger.

    R1 uses the floor itself, and R4 is forced by definition. R7 is guarded: the trim that a watermark adds is not
    forced by the policy file's own number. R4 as a one-off flag is guarded, too: only a file can force it (R4).
    """

    code: Code = Code.G2

    def applies(self, trigger: str, settings: Settings) -> bool:
        """Return whether ``unconsumed`` is ``hold`` and the trigger is guarded."""
        guarded = trigger in _GUARDED or (trigger == Code.R4 and settings.forced_age_guarded)
        return guarded and settings.unconsumed == "hold"

    def limit(self, bound: int, facts: PartitionFacts, settings: Settings, now_ms: int) -> int | Unknown:
        """Return min(bound, floor)."""
        del settings, now_ms
        if isinstance(facts.floor, Unknown):
            return Unknown((_NO_GROUP,)) if facts.floor.reasons == (NO_GROUP,) else facts.floor
        return min(bound, facts.floor.offset)

    def holds_back(self, facts: PartitionFacts, settings: Settings) -> str:
        """Return the text for a limit by this guard: the consumer that is furthest behind."""
        del settings
        if isinstance(facts.floor, Unknown):
            return "the floor is unknown"
        return f"{facts.floor.by} has read up to {facts.floor.offset:,}"
