"""Advice for scripts: JSON types, times in ms, sizes in bytes (docs/advise.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from retention_cli.advise.advice import Advice
from retention_cli.advise.facts import PartitionState, TopicState
from retention_cli.advise.format import exact
from retention_cli.advise.kept import AtMost, Normal, in_normal_traffic
from retention_cli.advise.settings import kafka_configs
from retention_cli.core.model import Maybe, Unknown, known

FORMAT = "kretain.advice/v1"
FOREVER = "forever"
UNLIMITED = "unlimited"

CSV_COLUMNS = (
    "topic",
    "partitions",
    "wanted_ms",
    "wanted_by",
    "at_most_ms",
    "at_most_readable_ms",
    "at_most_on_disk_ms",
    "normal_least_ms",
    "normal_most_ms",
    "normal_by",
    "records_per_hour",
    "bytes_per_hour",
    "dangers",
    "kafka_configs",
    "then_at_most_ms",
    "policy_entry",
    "unknown",
)


def row(one: Advice, bootstrap: str, command_config: str | None) -> dict[str, Any]:
    """Return a topic's advice. Null means unknown, ``forever`` and ``unlimited`` no limit."""
    topic = one.topic
    wanted = one.wanted_ms
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "wanted_ms": None if isinstance(wanted, Unknown) else FOREVER if wanted is None else wanted,
        "wanted_by": one.wanted_by,
        "at_most": _at_most(one.at_most),
        "normal": _usual(one.usual),
        "traffic": traffic(topic),
        "settings": settings(topic),
        "brokers": {
            "check_interval_ms": known(topic.check_interval_ms),
            "offsets_retention_ms": known(topic.offsets_retention_ms),
        },
        "dangers": [
            {
                "code": danger.code,
                "effect": danger.effect,
                "text": danger.text,
                "remedy": danger.remedy,
                "partitions": list(danger.partitions),
            }
            for danger in one.dangers
        ],
        "advice": {
            "settings": dict(one.changes),
            "kafka_configs": line(one, bootstrap, command_config),
            "then_at_most": _at_most(one.then_at_most),
            "then_dangers": [danger.code for danger in one.then_dangers],
            "broker_properties": dict(one.broker_properties),
            "policy_entry": entry(one),
            "policy_at_most_ms": one.policy_at_most_ms,
        },
        "unknown": [{"code": reason.code, "text": reason.text} for reason in one.unknown],
        "by_partition": [_partition(partition, topic) for partition in topic.partitions],
    }


def csv_row(whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return a topic's row with one value per column."""
    at_most, normal, advice = whole["at_most"], whole["normal"], whole["advice"]
    then = advice["then_at_most"]
    return {
        **{key: whole[key] for key in ("topic", "partitions", "wanted_ms", "wanted_by", "dangers", "unknown")},
        "at_most_ms": _inner(at_most, "settings_ms"),
        "at_most_readable_ms": _inner(at_most, "readable_ms"),
        "at_most_on_disk_ms": _inner(at_most, "on_disk_ms"),
        "normal_least_ms": _inner(normal, "least_ms"),
        "normal_most_ms": _inner(normal, "most_ms"),
        "normal_by": normal["by"] if isinstance(normal, dict) else None,
        "records_per_hour": whole["traffic"]["records_per_hour"],
        "bytes_per_hour": whole["traffic"]["bytes_per_hour"],
        "kafka_configs": advice["kafka_configs"],
        "then_at_most_ms": _inner(then, "settings_ms"),
        "policy_entry": "; ".join(f"{key}: {value}" for key, value in (advice["policy_entry"] or {}).items()),
    }


def line(one: Advice, bootstrap: str, command_config: str | None) -> str | None:
    """Return the command line that applies the advice, None if there is nothing to change."""
    return kafka_configs(one.topic.name, one.changes, bootstrap, command_config) if one.changes else None


def entry(one: Advice) -> dict[str, str] | None:
    """Return the advised policy entry, None if there is none to add."""
    if not one.policy_entry:
        return None
    return {"match": one.topic.name, **{key: exact(value) for key, value in one.policy_entry.items()}}


def traffic(topic: TopicState) -> dict[str, float | int | None]:
    """Return the topic's sums; null if a partition's part is unknown."""
    partitions = topic.partitions
    return {
        "records_per_hour": _total(one.records_per_hour for one in partitions),
        "bytes_per_hour": _total(one.bytes_per_hour for one in partitions),
        "records_last_hour": _total(_records(one.last_hour) for one in partitions),
        "records_last_day": _total(_records(one.last_day) for one in partitions),
        "bytes": _total(one.size_bytes for one in partitions),
    }


def settings(topic: TopicState) -> dict[str, Any]:
    """Return the live settings by Kafka's names."""
    live = topic.settings
    policy = known(live.cleanup_policy)
    return {
        "cleanup.policy": None if policy is None else sorted(policy),
        "retention.ms": _limit(live.retention_ms),
        "retention.bytes": _limit(live.retention_bytes),
        "segment.ms": known(live.segment_ms),
        "segment.bytes": known(live.segment_bytes),
        "message.timestamp.type": known(live.timestamp_type),
        "message.timestamp.before.max.ms": _limit(live.before_max_ms),
        "message.timestamp.after.max.ms": _limit(live.after_max_ms),
        "file.delete.delay.ms": known(live.delete_delay_ms),
        "remote.storage.enable": known(live.tiered),
    }


def _partition(one: PartitionState, topic: TopicState) -> dict[str, Any]:
    newest = known(one.newest)
    return {
        "partition": one.number,
        "log_start": known(one.log_start),
        "high_watermark": known(one.high_watermark),
        "bytes": known(one.size_bytes),
        "records_per_hour": _rounded(one.records_per_hour),
        "bytes_per_hour": _rounded(one.bytes_per_hour),
        "records_last_hour": known(_records(one.last_hour)),
        "records_last_day": known(_records(one.last_day)),
        "newest_offset": None if newest is None else newest.offset,
        "newest_ms": None if newest is None else newest.time_ms,
        "normal": _usual(in_normal_traffic(one, topic)),
    }


def _records(window: Any) -> Maybe[int]:
    return window if isinstance(window, Unknown) else window.records


def _total(values: Any) -> Any:
    """Return the sum, or None if one of them is unknown."""
    found = list(values)
    return None if any(isinstance(one, Unknown) for one in found) else _rounded(sum(found))


def _rounded(value: Maybe[float]) -> float | int | None:
    if isinstance(value, Unknown):
        return None
    return value if isinstance(value, int) else round(value, 3)


def _limit(value: Maybe[int | None]) -> int | str | None:
    return None if isinstance(value, Unknown) else UNLIMITED if value is None else value


def _at_most(value: Maybe[AtMost | str]) -> dict[str, int | None] | str | None:
    if isinstance(value, Unknown | str):
        return None if isinstance(value, Unknown) else value
    return {
        "settings_ms": value.settings_ms,
        "readable_ms": known(value.readable_ms),
        "on_disk_ms": known(value.on_disk_ms),
        "retention_ms": value.retention_ms,
        "segment_ms": value.segment_ms,
        "ahead_ms": value.ahead_ms,
        "check_interval_ms": known(value.check_interval_ms),
        "delete_delay_ms": known(value.delete_delay_ms),
    }


def _usual(value: Maybe[Normal | str]) -> dict[str, Any] | str | None:
    if isinstance(value, Normal):
        return asdict(value)
    return None if isinstance(value, Unknown) else value


def _inner(value: Any, key: str) -> Any:
    return value[key] if isinstance(value, dict) else value
