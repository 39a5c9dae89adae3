"""R2: trim records by their age in event time (KIP-870)."""

from __future__ import annotations

from retention_cli.core.model import Code, PartitionFacts, Reason, Unknown
from retention_cli.core.units import format_time
from retention_cli.decide.triggers.interface import Ask, Bound, NotEnabled, Trigger, offset_at
from retention_cli.policy.settings import EventSource, Settings

TIMESTAMP = EventSource("timestamp")


class EventTime(Trigger):
    """Asks for the offset before which every record is more than E older than the newest ever seen."""

    code = Code.R2

    def on(self, facts: PartitionFacts, settings: Settings) -> bool:
        """Return whether the policy turns it on."""
        del facts
        return settings.event_time_ms is not None

    def data_cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return ``maxEventTime − E`` if timestamps are the event times."""
        del now_ms
        if settings.event_time_ms is None or isinstance(facts.newest, Unknown) or facts.newest is None:
            return ()
        if source_of(facts, settings) != TIMESTAMP:
            return ()
        return (facts.newest.time_ms - settings.event_time_ms,)

    def ask(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> Ask:
        """Return R2's bound. It does not depend on ``now``: time never moves the bound of an idle partition."""
        keep_ms = settings.event_time_ms
        if keep_ms is None:
            return NotEnabled()
        source = source_of(facts, settings)
        if isinstance(source, Unknown):
            return source
        newest = facts.newest
        if isinstance(newest, Unknown):
            return newest
        if newest is None:
            return Bound(0, (Reason(Code.R2, "it holds no data record, and none is remembered"),))
        if source != TIMESTAMP:
            bound = _read_prefix(facts, settings)
        else:
            bound = offset_at(facts, newest.time_ms - keep_ms, settings, now_ms, data=True)
        if isinstance(bound, Unknown) or newest.exact:
            return bound
        text = "the newest event time is at least that of the newest record that could be seen"
        return Bound(bound.offset, (*bound.notes, Reason(Code.R2, text)))


def source_of(facts: PartitionFacts, settings: Settings) -> EventSource | Unknown:
    """Return where the topic's event times are; unknown if the broker overwrites them and no source is configured."""
    if settings.event_source is not None:
        return settings.event_source
    kind = facts.topic.timestamp_type
    if isinstance(kind, Unknown):
        return kind
    if kind == "LogAppendTime":
        return Unknown.because(
            Code.R2,
            "message.timestamp.type=LogAppendTime: the broker has overwritten the event times; say where they are "
            "with retention.eventtime.source (header:NAME, json:/pointer, avro:/field or protobuf:field)",
        )
    return TIMESTAMP


def _read_prefix(facts: PartitionFacts, settings: Settings) -> Bound | Unknown:
    """Return the bound that was read from records; unknown if an event time below it is before 2000 (G9)."""
    prefix = facts.event_prefix
    if isinstance(prefix, Unknown):
        return prefix
    if prefix.ancient is not None and prefix.ancient < prefix.offset and not settings.allow_ancient:
        when = "" if prefix.ancient_ms is None else f", {format_time(prefix.ancient_ms)}"
        return Unknown.because(
            Code.G9,
            f"the event time of the record at offset {prefix.ancient:,}{when}, is before 2000-01-01: a producer may "
            f"write seconds, not milliseconds. If the times are right, set allow.ancient: true",
        )
    return Bound(prefix.offset, () if prefix.note is None else (prefix.note,))
