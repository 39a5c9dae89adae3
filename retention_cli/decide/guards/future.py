"""G4: one bad clock must not erase a topic."""

from __future__ import annotations

from retention_cli.core.model import Code, PartitionFacts, Unknown
from retention_cli.core.units import format_duration, format_time
from retention_cli.decide.guards.interface import Guard
from retention_cli.policy.settings import Settings


class Future(Guard):
    """Stops R2 if maxEventTime is more than ``retention.timestamp.max.ahead.ms`` ahead of now."""

    code: Code = Code.G4

    def applies(self, trigger: str, settings: Settings) -> bool:
        """Return whether the trigger is R2."""
        del settings
        return trigger == Code.R2

    def limit(self, bound: int, facts: PartitionFacts, settings: Settings, now_ms: int) -> int | Unknown:
        """Return the bound; unknown, naming the record, if its time is too far ahead."""
        newest = facts.newest
        if isinstance(newest, Unknown):
            return newest
        if newest is None or newest.time_ms <= now_ms + settings.max_ahead_ms:
            return bound
        where = "a record that is gone" if newest.offset is None else f"the record at offset {newest.offset:,}"
        return Unknown.because(
            Code.G4,
            f"{where} is stamped {format_time(newest.time_ms)}, more than {format_duration(settings.max_ahead_ms)} "
            f"ahead of now: every other record would be too old; if that timestamp is wrong, set "
            f"retention.eventtime.ignore.future: true",
        )

    def holds_back(self, facts: PartitionFacts, settings: Settings) -> str:
        """Return the text for a limit by this guard."""
        del facts, settings
        return "the newest event time is in the future"
