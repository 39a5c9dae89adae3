"""A forecast for scripts: JSON types, times in ms, sizes in bytes (docs/forecast.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from retention_cli.core.model import Maybe, Reason, Unknown
from retention_cli.core.units import timestamp
from retention_cli.forecast.loss import Loss, seconds_to_loss
from retention_cli.forecast.make import saved
from retention_cli.forecast.rates import HOUR_MS
from retention_cli.forecast.span import Span
from retention_cli.forecast.value import Amounts, DiskForecast, Forecast, GroupForecast, TopicForecast
from retention_cli.memory.disk import Growth

FORMAT: Final = "kretain.forecast/v1"
STEADY, ENDLESS, UNKNOWN = "steady", "endless", "unknown"
CSV_COLUMNS = (
    "topic",
    "partitions",
    "now_records",
    "now_bytes",
    "records_per_hour",
    "records_per_hour_low",
    "records_per_hour_high",
    "measured_ms",
    *(
        f"{scenario}{part}"
        for scenario in ("alone", "policy", "compared")
        for part in ("", "_records_low", "_records_high", "_bytes_low", "_bytes_high")
    ),
    "policy_by",
    "compared_by",
    "saved_records_low",
    "saved_records_high",
    "saved_bytes_low",
    "saved_bytes_high",
    "reasons",
)


def head(one: Forecast, other: Forecast | None) -> dict[str, Any]:
    """Return the JSON without the topics."""
    return {
        "format": FORMAT,
        "created_at": timestamp(one.created_at_ms),
        "cluster": {"id": one.cluster_id, "bootstrap": one.bootstrap},
        "policy": {"source": one.policy_source, "digest": one.policy_digest},
        "compared": None if other is None else {"source": other.policy_source, "digest": other.policy_digest},
        "every_ms": one.every_ms,
        "least_ms": one.least_ms,
        "totals": _totals(one) | {"compared": None if other is None else _totals(other)},
        "disks": [_disk(disk, _same(disk, other)) for disk in one.disks],
        "groups": [_group(group) for group in one.groups],
        "notes": _reasons(one.notes),
    }


def topic_rows(one: Forecast, other: Forecast | None) -> Iterable[dict[str, Any]]:
    """Yield the topics' rows. Null is unknown or without end: ``alone``, ``policy`` and ``compared`` say which."""
    others: Mapping[str, TopicForecast] = {} if other is None else {topic.name: topic for topic in other.topics}
    for topic in one.topics:
        yield _topic(topic, others.get(topic.name))


def _topic(one: TopicForecast, other: TopicForecast | None) -> dict[str, Any]:
    rate = None if isinstance(one.rate, Unknown) else one.rate
    less = saved(one.alone, one.policy)
    row: dict[str, Any] = {
        "topic": one.name,
        "partitions": one.partitions,
        "now_records": _low(one.now.records),
        "now_bytes": _low(one.now.size_bytes),
        "records_per_hour": None if rate is None else _rounded(rate.mean * HOUR_MS),
        "records_per_hour_low": None if rate is None else _rounded(rate.low * HOUR_MS),
        "records_per_hour_high": None if rate is None else _rounded(rate.high * HOUR_MS),
        "measured_ms": None if rate is None else rate.over_ms,
        **_amounts("alone", one.alone),
        **_amounts("policy", one.policy),
        **_amounts("compared", None if other is None else other.policy),
        "policy_by": one.by,
        "compared_by": None if other is None else other.by,
        **_bounds("saved_records", less.records),
        **_bounds("saved_bytes", less.size_bytes),
        "reasons": _reasons(one.reasons),
    }
    return {key: row[key] for key in CSV_COLUMNS}


def _totals(one: Forecast) -> dict[str, Any]:
    totals, less = one.totals, one.totals.saved
    return {
        "topics": totals.topics,
        "steady": totals.known,
        "unknown": totals.unknown,
        "endless_alone": totals.endless,
        "endless_policy": totals.growing,
        "now_records": _low(totals.now.records),
        "now_bytes": _low(totals.now.size_bytes),
        **_amounts("alone", totals.alone),
        **_amounts("policy", totals.policy),
        **_bounds("saved_records", less.records),
        **_bounds("saved_bytes", less.size_bytes),
        **_bounds("ended_records", totals.ended.records),
        **_bounds("ended_bytes", totals.ended.size_bytes),
    }


def _disk(one: DiskForecast, other: DiskForecast | None) -> dict[str, Any]:
    room = None if isinstance(one.disk.room, Unknown) else one.disk.room
    grows = one.growth if isinstance(one.growth, Growth) else None
    unknown = [value for value in (one.alone, one.policy) if isinstance(value, Unknown)]
    return {
        "broker": one.disk.broker,
        "dirs": list(one.disk.dirs),
        "total_bytes": None if room is None else room.total_bytes,
        "used_bytes": None if room is None else room.used_bytes,
        "ceiling_percent": one.percent,
        "still_bytes": one.still_bytes,
        "growth_bytes_per_day": None if grows is None else grows.bytes_per_day,
        "growth_full_in_ms": None if grows is None else grows.full_in_ms,
        **_when("full_alone_in", one.alone),
        **_when("full_policy_in", one.policy),
        **_when("full_compared_in", None if other is None else other.policy),
        **_when("ceiling_in", one.ceiling),
        "reasons": _reasons(dict.fromkeys(reason for value in unknown for reason in value.reasons)),
    }


def _group(one: GroupForecast) -> dict[str, Any]:
    loss: Loss | None = None if isinstance(one.loss, Unknown) else one.loss
    return {
        "group": one.group,
        "topic": one.topic,
        "partition": one.partition,
        "lag": one.lag,
        **_when("unread", one.unread_ms),
        "cause": None if loss is None else loss.cause,
        "seconds_to_loss": _finite(seconds_to_loss(one.loss)),
        **_when("if_stopped", None if loss is None else loss.if_stopped_ms),
        **_when("at_its_rate", None if loss is None else loss.at_its_rate_ms),
        "reasons": _reasons(one.loss.reasons if isinstance(one.loss, Unknown) else ()),
    }


def _same(disk: DiskForecast, other: Forecast | None) -> DiskForecast | None:
    if other is None:
        return None
    return next((one for one in other.disks if one.disk.key == disk.disk.key), None)


def _amounts(name: str, amounts: Amounts | None) -> dict[str, Any]:
    if amounts is None:
        none = dict.fromkeys(f"{name}_{what}_{end}" for what in ("records", "bytes") for end in ("low", "high"))
        return {name: None, **none}
    records = amounts.records
    kind = UNKNOWN if isinstance(records, Unknown) else STEADY if records.bounded else ENDLESS
    return {
        name: kind,
        **_bounds(f"{name}_records", amounts.records),
        **_bounds(f"{name}_bytes", amounts.size_bytes),
    }


def _when(name: str, span: Maybe[Span] | None) -> dict[str, Any]:
    """Return a time to come (ms): ``known`` is false where it can't be told; null is never."""
    known = span is not None and not isinstance(span, Unknown)
    return {f"{name}_known": known, **_bounds(f"{name}_ms", span)}


def _bounds(name: str, span: Maybe[Span] | None) -> dict[str, int | None]:
    if span is None or isinstance(span, Unknown):
        return {f"{name}_low": None, f"{name}_high": None}
    return {f"{name}_low": _finite(span.low), f"{name}_high": _finite(span.high)}


def _low(span: Maybe[Span]) -> int | None:
    return None if isinstance(span, Unknown) else _finite(span.low)


def _finite(value: float | None) -> int | None:
    return None if value is None or math.isinf(value) else round(value)


def _rounded(value: float) -> float:
    """Return a rate to four digits: more of them would be false precision."""
    return float(f"{value:.4g}")


def _reasons(reasons: Iterable[Reason]) -> list[dict[str, str]]:
    return [{"code": reason.code, "text": reason.text} for reason in reasons]
