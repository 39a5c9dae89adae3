"""Derive the advice for a topic from its facts and the demands on it: better settings for brokers and policy. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from retention_cli.advise.dangers import Danger, judge, offsets_expire_first
from retention_cli.advise.facts import (
    SMALLEST_SEGMENT_BYTES,
    AtMost,
    Demand,
    Forever,
    TopicState,
    Usual,
    WantedBy,
    at_most,
    needed_ms,
    retention_ms,
    usual,
    wanted,
)
from retention_cli.advise.format import DAY, HOUR, MIB, MINUTE
from retention_cli.core.model import Maybe, Reason, Unknown, certain, or_unknown
from retention_cli.policy.settings import Settings

LONGEST_SEGMENT_MS: Final = DAY
"""The longest ``segment.ms`` advised: a segment rolls at least daily, so no record is kept over a day too long."""

HEADROOM: Final = 2
"""The advised ``retention.bytes`` suffice for this many times the measured rate."""

_SEGMENTS_IN_LIMIT: Final = 4
"""A partition's share is at least this many segments; one of them is the segment above ``retention.bytes``."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice for one topic.

    ``wanted_ms`` is how long data should be kept (None: forever). ``changes`` are topic settings to set;
    ``then_at_most`` is how long data is kept with them, and ``then_dangers`` are the dangers that remain or are new.
    ``broker_properties`` belong in ``server.properties``. ``policy_entry`` maps keys of kretain's policy to durations
    (ms) to set: with them, in-order records are kept for at most ``policy_at_most_ms`` plus one run of the tool (None:
    neither the entry nor the policy has R4). ``unknown`` names the facts that could not be read, and so were not
    judged.
    """

    topic: TopicState
    wanted_ms: Maybe[int | None]
    wanted_by: WantedBy
    at_most: Maybe[AtMost | Forever]
    usual: Maybe[Usual]
    dangers: Sequence[Danger]
    changes: Mapping[str, int]
    then_at_most: Maybe[AtMost | Forever]
    then_dangers: Sequence[Danger]
    broker_properties: Mapping[str, int]
    policy_entry: Mapping[str, int]
    policy_at_most_ms: int | None
    unknown: Sequence[Reason]


def advise(topic: TopicState, demand: Demand, now_ms: int) -> Advice:
    """Return the advice for one topic. ``now_ms`` is when its traffic was measured (Unix ms)."""
    dangers, unknown = judge(topic, demand, now_ms)
    changes = changes_for(topic, demand, {one.code for one in dangers})
    changed = topic.changed(changes)
    keep, by = wanted(topic, demand)
    entry = policy_entry_for(topic, demand)
    return Advice(
        topic=topic,
        wanted_ms=keep,
        wanted_by=by,
        at_most=at_most(topic, now_ms),
        usual=usual(topic),
        dangers=dangers,
        changes=changes,
        then_at_most=at_most(changed, now_ms),
        then_dangers=judge(changed, demand, now_ms)[0],
        broker_properties=broker_properties_for(changed, demand, now_ms),
        policy_entry=entry,
        policy_at_most_ms=entry.get("retention.ms", demand.policy.forced_age_ms if demand.policy is not None else None),
        unknown=list(dict.fromkeys([*unknown, *_unread(topic)])),
    )


def _unread(topic: TopicState) -> Iterable[Reason]:
    """Yield the reasons of every setting and measurement that is unknown, so that the advice omits none."""
    if topic.settings.tiered is True:
        yield Reason("traffic", "tiered storage: the interval of remote retention checks is not counted")
    facts = [getattr(topic.settings, field.name) for field in fields(topic.settings)]
    for one in topic.partitions:
        facts += [one.log_start, one.high_watermark, one.size_bytes, one.records_per_hour, one.newest]
    for fact in facts:
        if isinstance(fact, Unknown):
            yield from fact.reasons


def segment_for(retention_ms: int, least_ms: int = MINUTE) -> int:
    """Return the ``segment.ms`` for a ``retention.ms``: equal to it, at most a day, at least ``least_ms``."""
    return max(least_ms, min(LONGEST_SEGMENT_MS, retention_ms))


def changes_for(topic: TopicState, demand: Demand, dangers: Collection[str]) -> dict[str, int]:
    """Return the topic settings to set, by Kafka's names; empty if none need to change, or if facts are missing."""
    found: dict[str, int] = {}
    if topic.settings.deletes is True:
        target = target_retention(topic, demand)
        if isinstance(target, int):
            found |= _time(topic, target, demand.least_segment_ms)
        if demand.topic_bytes is not None:
            found |= _within(topic, demand.topic_bytes) if "bytes-per-partition" in dangers else {}
        elif "size-before-time" in dangers:
            found |= _roomier(topic, demand)
    if "future-timestamps" in dangers and topic.settings.timestamp_type == "CreateTime":
        allowed = topic.settings.after_max_ms
        if allowed is None or (isinstance(allowed, int) and allowed > HOUR):
            found["message.timestamp.after.max.ms"] = HOUR
    return found


@or_unknown
def target_retention(topic: TopicState, demand: Demand) -> int | None:
    """Return the ``retention.ms`` that the broker should have; None: unlimited.

    The operator's value wins. Otherwise the live value is only ever raised, to R1's time or R4's.
    """
    if demand.keep_ms is not None:
        return demand.keep_ms
    live = certain(retention_ms(topic))
    return None if live is None else max(live, demand.consumed_after_ms or 0, demand.forced_age_ms or 0)


def _time(topic: TopicState, target: int, least_segment_ms: int) -> dict[str, int]:
    found = {}
    live, segment = topic.settings.retention_ms, topic.settings.segment_ms
    if not isinstance(live, Unknown) and live != target:
        found["retention.ms"] = target
    better = segment_for(target, least_segment_ms)
    if isinstance(segment, int) and segment > better:
        found["segment.ms"] = better
    return found


def _within(topic: TopicState, topic_bytes: int) -> dict[str, int]:
    """Divide a topic's bytes among its partitions, including the segment above ``retention.bytes``."""
    segment = topic.settings.segment_bytes
    share = topic_bytes // max(1, len(topic.partitions))
    if isinstance(segment, Unknown) or share < 2 * SMALLEST_SEGMENT_BYTES:
        return {}
    smaller = min(segment, max(SMALLEST_SEGMENT_BYTES, share // _SEGMENTS_IN_LIMIT))
    found = {"retention.bytes": share - smaller}
    return found if smaller == segment else {**found, "segment.bytes": smaller}


def _roomier(topic: TopicState, demand: Demand) -> dict[str, int]:
    needed = needed_ms(topic, demand)
    if isinstance(needed, Unknown) or needed is None:
        return {}
    rates = [one.bytes_per_hour for one in topic.partitions]
    busiest = max((rate for rate in rates if not isinstance(rate, Unknown)), default=0.0)
    return {"retention.bytes": -(-int(busiest * needed / HOUR * HEADROOM) // MIB) * MIB}


def broker_properties_for(topic: TopicState, demand: Demand, now_ms: int) -> dict[str, int]:
    """Return the properties for every broker's ``server.properties``, which brokers read only when they start."""
    limit = retention_ms(topic)
    if not isinstance(limit, int) or offsets_expire_first(topic, demand, now_ms) is None:
        return {}
    if isinstance(topic.settings.offsets_retention_ms, Unknown):
        return {}
    return {"offsets.retention.minutes": -(-limit // MINUTE)}


def policy_entry_for(topic: TopicState, demand: Demand) -> dict[str, int]:
    """Return what a policy entry should set for the topic (key to ms); empty if the policy already sets it.

    R4 does not wait for a segment: in-order records are kept for at most ``retention.ms`` plus one run of the
    tool.
    """
    target = target_retention(topic, demand)
    if isinstance(target, Unknown) or (demand.policy is None and topic.untouched(Settings())):
        return {}
    age, after = demand.forced_age_ms, demand.consumed_after_ms
    says = None if demand.policy is None else demand.policy.forced_age_ms
    found: dict[str, int] = {}
    if after is not None and age is not None and after > age:
        if demand.keep_ms is not None:
            found["retention.commitoffset.ms"] = age
        else:
            age = after
    age = target if age is None else age
    if age is not None and age != says:
        found["retention.ms"] = age
    return found


def kafka_configs(topic: str, changes: Mapping[str, int], bootstrap: str, command_config: str | None = None) -> str:
    """Return the ``kafka-configs.sh`` command line that sets these topic settings."""
    words = ["kafka-configs.sh", "--bootstrap-server", bootstrap]
    if command_config is not None:
        words += ["--command-config", command_config]
    added = ",".join(f"{key}={value}" for key, value in sorted(changes.items()))
    return shlex.join([*words, "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", added])
