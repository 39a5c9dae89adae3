"""R3: the application's own minimum timestamp (KIP-47)."""

from __future__ import annotations

from retention_cli.core.model import Code, PartitionFacts, Unknown
from retention_cli.core.units import format_time
from retention_cli.decide.triggers.interface import Ask, NotEnabled, Trigger, offset_at
from retention_cli.policy.settings import Settings


class MinTimestamp(Trigger):
    """Asks for ``offset_at(M)``: records older than the application's minimum are trimmed."""

    code = Code.R3

    def on(self, facts: PartitionFacts, settings: Settings) -> bool:
        """Return whether the policy turns it on."""
        del facts
        return settings.min_timestamp_ms is not None

    def data_cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return M if it is set and may be used."""
        del facts
        minimum = settings.min_timestamp_ms
        if minimum is None or _in_future(minimum, settings, now_ms):
            return ()
        return (minimum,)

    def ask(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> Ask:
        """Return R3's bound; unknown if M is in the future and ``allow.empty`` is not set."""
        minimum = settings.min_timestamp_ms
        if minimum is None:
            return NotEnabled()
        if _in_future(minimum, settings, now_ms):
            return Unknown.because(
                Code.R3,
                f"log.retention.min.timestamp is {format_time(minimum)}, in the future: everything would be trimmed; "
                f"correct it, or set allow.empty: true",
            )
        return offset_at(facts, minimum, settings, now_ms, data=True)


def _in_future(minimum: int, settings: Settings, now_ms: int) -> bool:
    return minimum > now_ms and not settings.allow_empty
