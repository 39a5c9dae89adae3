"""G9: a record at the front stamped before 2000-01-01 suggests a producer that writes seconds.

If event times are read from records, R2 checks these itself (triggers/event_time.py).
"""

from __future__ import annotations

from typing import Final

from retention_cli.core.model import ANCIENT_MS, Code, PartitionFacts, Unknown
from retention_cli.core.units import format_time
from retention_cli.decide.guards.interface import Guard
from retention_cli.policy.settings import Settings

_GUARDED = frozenset({Code.R1, Code.R2, Code.R3, Code.R4, Code.R7})  # R7 is R1 and R4 with shorter times


_SECONDS: Final = "a producer may write seconds, not milliseconds. If the times are right, set allow.ancient: true"


class OldStamps(Guard):
    """Stops time-based rules if the first record's timestamp is implausibly old."""

    code: Code = Code.G9

    def applies(self, trigger: str, settings: Settings) -> bool:
        """Return whether the trigger is time-based and the policy does not allow old timestamps."""
        return trigger in _GUARDED and not settings.allow_ancient

    def cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return 2000-01-01, or nothing if the policy allows old timestamps."""
        del facts, now_ms
        return () if settings.allow_ancient else (ANCIENT_MS,)

    def limit(self, bound: int, facts: PartitionFacts, settings: Settings, now_ms: int) -> int | Unknown:
        """Return the bound; unknown if ``offset_at(2000-01-01)`` is beyond the log start.

        That is only so if the first record at or after S was read and is that old: a gap is not a record.
        """
        del settings, now_ms
        answer = facts.lookups.get(ANCIENT_MS)
        if answer is None:
            return Unknown.because(Code.G9, "whether the first record is stamped before 2000-01-01 was not looked up")
        if isinstance(answer, Unknown):
            return answer
        if isinstance(facts.log_start, Unknown):
            return facts.log_start
        if answer.offset > facts.log_start:
            first = facts.log_start if answer.record is None else answer.record
            stamped = "has no timestamp" if answer.timestamp is None else f"is stamped {format_time(answer.timestamp)}"
            return Unknown.because(Code.G9, f"the record at offset {first:,} {stamped}, before 2000-01-01: {_SECONDS}")
        return bound

    def holds_back(self, facts: PartitionFacts, settings: Settings) -> str:
        """Return the text for a limit by this guard."""
        del facts, settings
        return "records stamped before 2000-01-01"
