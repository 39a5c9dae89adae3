"""Convert facts to rows of the data sources (``schemas.OFFSETS``), and unknowns to rows. Pure."""

from __future__ import annotations

from typing import Any, Final

from retention_cli.core.model import LookUp, PartitionFacts, TopicFacts, Unknown

Row = dict[str, Any]
_NO_TYPE: Final[Any] = TopicFacts("", "", internal=False, cleanup_policy=frozenset(), retention_ms=0).timestamp_type


def unknown_rows(name: str, value: Unknown) -> list[Row]:
    """Return why a field is null, one row per reason."""
    return [{"field": name, "code": one.code, "text": one.text} for one in value.reasons]


def facts_row(facts: PartitionFacts) -> Row:
    """Return a partition's facts as a row of ``schemas.OFFSETS``.

    Event times, sizes and the ledger's facts, which the data source does not read, are left empty.
    """
    unknown: list[Row] = []

    def plain(name: str, value: Any, default: Unknown | None = None) -> Any:
        if not isinstance(value, Unknown):
            return value
        if value != default:
            unknown.extend(unknown_rows(name, value))
        return None

    topic = facts.topic
    policy = plain("cleanup_policy", topic.cleanup_policy)
    return {
        "topic": topic.name,
        "partition": facts.partition,
        "topic_id": plain("topic_id", topic.topic_id),
        "internal": topic.internal,
        "cleanup_policy": None if policy is None else ",".join(sorted(policy)),
        "retention_ms": plain("retention_ms", topic.retention_ms),
        "timestamp_type": plain("timestamp_type", topic.timestamp_type, _NO_TYPE),
        "log_start": plain("log_start", facts.log_start),
        "high_watermark": plain("high_watermark", facts.high_watermark),
        "last_stable_offset": plain("last_stable_offset", facts.last_stable_offset),
        "lookups": [_lookup_row(at, plain(f"time:{at}", found)) for at, found in facts.lookups.items()],
        "samples": b"",
        "stamped_below": 0,
        "unknown": unknown,
    }


def _lookup_row(time_ms: int, found: LookUp | None) -> Row:
    row: Row = {"time": time_ms, "data": False}
    if found is not None:
        row |= {"offset": found.offset, "timestamp": found.timestamp, "record": found.record}
        if found.note is not None:
            row |= {"code": found.note.code, "text": found.note.text}
    return row
