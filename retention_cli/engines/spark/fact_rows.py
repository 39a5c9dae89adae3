"""Facts and decisions as rows and back: what travels between tasks (schemas.FACTS, schemas.DECIDED). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from retention_cli.core.model import (
    NO_EVENT_TIMES,
    NO_SIZE,
    EventMax,
    EventPrefix,
    Floor,
    LookUp,
    Maybe,
    PartitionFacts,
    Reason,
    Sample,
    Tail,
    TimestampType,
    TopicFacts,
    Unknown,
    Usage,
    Watermark,
)
from retention_cli.memory import earlier
from retention_cli.memory.partition import Front, PartitionMemory
from retention_cli.memory.samples import pack, unpack

Row = dict[str, Any]
FloorAt = Callable[[Maybe[int], Maybe[int]], Maybe[Floor]]
"""What a partition's standing comes to, with its log start and its high watermark."""
_NO_TYPE: Final[Any] = TopicFacts("", "", internal=False, cleanup_policy=frozenset(), retention_ms=0).timestamp_type


def unknown_rows(name: str, value: Unknown) -> list[Row]:
    """Return why a field is null: a row for each reason."""
    return [{"field": name, "code": one.code, "text": one.text} for one in value.reasons]


def facts_row(facts: PartitionFacts) -> Row:
    """Return a partition's facts but for its floor, as a row of ``schemas.OFFSETS`` (names of the place left out)."""
    unknown: list[Row] = []

    def plain(name: str, value: Any, default: Unknown | None = None) -> Any:
        if not isinstance(value, Unknown):
            return value
        if value != default:
            unknown.extend(unknown_rows(name, value))
        return None

    topic = facts.topic
    policy = plain("cleanup_policy", topic.cleanup_policy)
    newest = plain("newest", facts.newest, NO_EVENT_TIMES)
    prefix = plain("event_prefix", facts.event_prefix, NO_EVENT_TIMES)
    samples = plain("samples", facts.samples)
    row = {
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
        "newest": None
        if isinstance(facts.newest, Unknown)
        else {"time": None, "offset": None, "exact": True}
        if newest is None
        else {"time": newest.time_ms, "offset": newest.offset, "exact": newest.exact},
        "event_prefix": None if prefix is None else _prefix_row(prefix),
        "samples": None if samples is None else pack(samples),
        "stamped_below": plain("stamped_below", facts.stamped_below),
        "size_bytes": plain("size_bytes", facts.size_bytes, NO_SIZE),
    }
    row["lookups"] = [
        *_lookup_rows(facts.lookups, unknown, data=False),
        *_lookup_rows(facts.data_lookups, unknown, data=True),
    ]
    row["unknown"] = unknown
    return row


def _lookup_row(found: LookUp) -> Row:
    return {"offset": found.offset, "timestamp": found.timestamp, "record": found.record, **_note_row(found.note)}


def _prefix_row(found: EventPrefix) -> Row:
    return {
        "offset": found.offset,
        "timestamp": found.timestamp,
        "ancient": found.ancient,
        "ancient_ms": found.ancient_ms,
        **_note_row(found.note),
    }


def _note_row(note: Reason | None) -> Row:
    return {"code": None if note is None else note.code, "text": None if note is None else note.text}


def _lookup_rows(lookups: Mapping[int, Maybe[LookUp]], unknown: list[Row], *, data: bool) -> list[Row]:
    rows = []
    for time_ms, found in lookups.items():
        if isinstance(found, Unknown):
            name = f"{'data' if data else 'time'}:{time_ms}"
            unknown.extend(unknown_rows(name, found))
            row = dict.fromkeys(("offset", "timestamp", "record", "code", "text"))
        else:
            row = _lookup_row(found)
        rows.append({"time": time_ms, "data": data, **row})
    return rows


def reason_rows(value: Unknown) -> list[Row]:
    """Return why something is unknown, as rows of ``schemas.REASON``."""
    return [{"code": one.code, "text": one.text} for one in value.reasons]


def unknown_of(rows: Iterable[Mapping[str, str]] | None) -> Unknown | None:
    """Return what :func:`reason_rows` made rows of; None where there is none."""
    return Unknown(tuple(Reason(one["code"], one["text"]) for one in rows)) if rows else None


def disk_facts_row(usage: Maybe[Usage | None], tails: Mapping[str, Maybe[Tail]]) -> Row:
    """Return what the client has seen of disks, as ``schemas.DISK_FACTS``."""
    found: list[Row] = []
    for key, tail in tails.items():
        if isinstance(tail, Unknown):
            found.append({"key": key, "reasons": reason_rows(tail)})
        else:
            found.append({"key": key, "offset": tail.offset, "exact": tail.exact, "by": tail.by})
    if isinstance(usage, Unknown):
        return {"usage_reasons": reason_rows(usage), "tails": found}
    if usage is None:
        return {"tails": found}
    percent, factor, minimum_ms = usage.mark
    mark = {"mark": percent, "factor": factor, "minimum_ms": minimum_ms}
    return {"usage": {"disk": usage.disk, "percent": usage.percent, **mark}, "tails": found}


def with_disk_facts(facts: PartitionFacts, row: Mapping[str, Any]) -> PartitionFacts:
    """Return the facts with what the client, and an inventory, say of disks (``disk_facts`` and ``bases`` of a row)."""
    told, bases = row["disk_facts"], unknown_of(row["bases_reasons"]) or row["bases"]
    if bases is not None:
        facts = facts._replace(segment_bases=bases)
    if told is None:
        return facts
    usage: Maybe[Usage | None] = unknown_of(told["usage_reasons"])
    if (seen := told["usage"]) is not None:
        mark = Watermark(seen["mark"], seen["factor"], seen["minimum_ms"])
        usage = Usage(seen["disk"], seen["percent"], mark)
    tails: dict[str, Maybe[Tail]] = {
        one["key"]: unknown_of(one["reasons"]) or Tail(one["offset"], one["exact"], one["by"])
        for one in told["tails"] or ()
    }
    return facts._replace(usage=usage, tails=tails)


def facts_of(row: Mapping[str, Any], floor_at: FloorAt) -> PartitionFacts:
    """Return the facts of a row, with the partition's floor."""
    unknown: dict[str, Unknown] = {}
    if row["unknown"]:
        reasons: dict[str, list[Reason]] = {}
        for one in row["unknown"]:
            reasons.setdefault(one["field"], []).append(Reason(one["code"], one["text"]))
        unknown = {name: Unknown(tuple(some)) for name, some in reasons.items()}

    def value(name: str, default: Any = None) -> Any:
        found = row[name]
        return found if found is not None else unknown.get(name, default or _unread(name))

    lookups: dict[int, Maybe[LookUp]] = {}
    data_lookups: dict[int, Maybe[LookUp]] = {}
    for one in row["lookups"] or ():
        time_ms = one["time"]
        into = data_lookups if one["data"] else lookups
        if one["offset"] is None:
            name = f"{'data' if one['data'] else 'time'}:{time_ms}"
            into[time_ms] = unknown.get(name) or _unread(name)
        else:
            into[time_ms] = _lookup(one)
    newest, prefix = row["newest"], row["event_prefix"]
    samples = row["samples"]
    log_start, high_watermark = value("log_start"), value("high_watermark")
    facts = PartitionFacts(
        topic=_topic(
            row["topic"],
            value("topic_id"),
            bool(row["internal"]),
            value("cleanup_policy"),
            value("retention_ms"),
            value("timestamp_type", _NO_TYPE),
        ),
        partition=row["partition"],
        log_start=log_start,
        high_watermark=high_watermark,
        last_stable_offset=value("last_stable_offset"),
        floor=floor_at(log_start, high_watermark),
        lookups=lookups,
        data_lookups=data_lookups,
        newest=unknown.get("newest", NO_EVENT_TIMES)
        if newest is None
        else None
        if newest["time"] is None
        else EventMax(newest["time"], newest["offset"], newest["exact"]),
        event_prefix=unknown.get("event_prefix", NO_EVENT_TIMES) if prefix is None else _prefix(prefix),
        samples=unknown.get("samples", ()) if samples is None else unpack(samples),
        stamped_below=value("stamped_below"),
        size_bytes=value("size_bytes", NO_SIZE),
        has_leader=row["leader"] is not None,
        leader_epoch=row["leader_epoch"],
    )
    return with_disk_facts(facts, row)


@lru_cache(maxsize=64)  # a topic's partitions follow each other
def _topic(
    name: str,
    topic_id: Maybe[str],
    internal: bool,
    policy: Maybe[str],
    retention_ms: Maybe[int],
    timestamp_type: Maybe[TimestampType],
) -> TopicFacts:
    parts = policy if isinstance(policy, Unknown) else frozenset(part for part in policy.split(",") if part)
    return TopicFacts(name, topic_id, internal, parts, retention_ms, timestamp_type)


def _lookup(row: Mapping[str, Any]) -> LookUp:
    return LookUp(row["offset"], _note(row), row["timestamp"], row["record"])


def _prefix(row: Mapping[str, Any]) -> EventPrefix:
    return EventPrefix(row["offset"], _note(row), row["timestamp"], row["ancient"], row["ancient_ms"])


def _note(row: Mapping[str, Any]) -> Reason | None:
    return None if row["code"] is None else Reason(row["code"], row["text"])


def _unread(name: str) -> Unknown:
    return Unknown.because("offsets", f"{name} is missing, and nothing says why")


def memory_row(memory: PartitionMemory) -> Row:
    """Return what is remembered of a partition as ``schemas.MEMORY``."""
    newest, front = memory.newest, memory.front
    return {
        "packed": memory.packed,
        "newest_time": None if newest is None else newest.time_ms,
        "newest_offset": None if newest is None else newest.offset,
        "newest_exact": None if newest is None else newest.exact,
        "data_at": list(memory.data_at),
        "scan": memory.scan,
        "replicas": memory.replicas,
        "leader_epoch": memory.leader_epoch,
        "last_epoch": memory.last_epoch,
        "earlier": earlier.pack(memory.earlier),
        "log_start": memory.log_start,
        "created": memory.created,
        "created_below": memory.created_below,
        "front": None if front is None else front.offset,
        "front_append": None if front is None else front.append_time,
    }


def memory_of(row: Mapping[str, Any] | None) -> PartitionMemory:
    """Return what :func:`memory_row` made; nothing is remembered where there is no row."""
    if row is None:
        return PartitionMemory()
    newest = None
    if row["newest_time"] is not None:
        newest = EventMax(row["newest_time"], row["newest_offset"], row["newest_exact"])
    return PartitionMemory(
        packed=bytes(row["packed"] or b""),
        newest=newest,
        data_at=tuple(row["data_at"] or ()),
        scan=None if row["scan"] is None else bytes(row["scan"]),
        replicas=bytes(row["replicas"] or b""),
        leader_epoch=row["leader_epoch"],
        last_epoch=row["last_epoch"],
        earlier=earlier.unpack(bytes(row["earlier"] or b"")),
        log_start=row["log_start"],
        created=row["created"],
        created_below=row["created_below"],
        front=None if row["front"] is None else Front(row["front"], row["front_append"]),
    )


def proof_row(memory: PartitionMemory) -> Row | None:
    """Return where a partition stood when it was last looked at, as ``schemas.PROOF``; None where it never was."""
    if memory.leader_epoch is None:
        return None
    return {
        "leader_epoch": memory.leader_epoch,
        "last_epoch": memory.last_epoch,
        "earlier": earlier.pack(memory.earlier),
        "log_start": memory.log_start,
        "high_watermark": memory.high_watermark,
    }


def proof_of(row: Mapping[str, Any]) -> PartitionMemory:
    """Return as much of a memory as :func:`proof_row` says of it: what tells whether the log was cut."""
    packed = pack([Sample(0, row["high_watermark"])])
    return PartitionMemory(
        packed,
        leader_epoch=row["leader_epoch"],
        last_epoch=row["last_epoch"],
        earlier=earlier.unpack(bytes(row["earlier"] or b"")),
        log_start=row["log_start"],
    )
