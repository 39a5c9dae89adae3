"""R5: trim a partition, or a topic, that is larger than its limit."""

from __future__ import annotations

from retention_cli.core.model import Code, PartitionFacts, Reason, Unknown
from retention_cli.core.units import format_bytes
from retention_cli.decide.triggers.interface import Ask, Bound, NotEnabled, Trigger
from retention_cli.policy.settings import Settings


class Size(Trigger):
    """Asks for the smallest offset whose tail fits, calculated beforehand (``disks/estimate.py``)."""

    code = Code.R5

    def on(self, facts: PartitionFacts, settings: Settings) -> bool:
        """Return whether the policy turns it on; sizes that were not read make it unknown."""
        del facts
        return settings.max_bytes is not None or settings.max_topic_bytes is not None

    def ask(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> Ask:
        """Return the larger of the partition's bound and the topic's; unknown if neither is known."""
        del now_ms
        wanted = (
            ("retention.bytes", settings.max_bytes, "the partition's size"),
            ("retention.topic.bytes", settings.max_topic_bytes, "its partitions' sizes"),
        )
        enabled = [(key, most, source, facts.tails.get(key)) for key, most, source in wanted if most is not None]
        if not enabled:
            return NotEnabled()
        unknown: list[Reason] = []
        best: Bound | None = None
        for key, most, source, tail in enabled:
            if tail is None:
                unknown.append(Reason(Code.R5, f"{key}: sizes were not read"))
            elif isinstance(tail, Unknown):
                unknown += tail.reasons
            elif best is None or tail.offset > best.offset:
                how = "by the inventory" if tail.exact else f"estimated from {source}"
                best = Bound(tail.offset, (Reason(Code.R5, f"{key} of {format_bytes(most)}, {how}"),))
        if best is None:
            return Unknown(tuple(unknown))
        return Bound(best.offset, (*best.notes, *unknown))
