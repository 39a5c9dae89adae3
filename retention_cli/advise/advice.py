"""Judge a topic by its facts and the demands on it, and derive the advice. Pure.

Dangers: one small check for each. It returns the danger, None if there is none, or unknown if a fact that it needs
could not be read. Advice: better settings for brokers and policy.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal, TypeVar

from retention_cli.advise.facts import (
    CLOCK_DIFFERENCE_MS,
    DAY,
    HOUR,
    MIB,
    MINUTE,
    SMALLEST_SEGMENT_BYTES,
    AtMost,
    Demand,
    Forever,
    TopicState,
    Usual,
    WantedBy,
    at_most,
    moment,
    needed_ms,
    retention_bytes,
    retention_ms,
    roll_ms,
    size_window_ms,
    span,
    usual,
    wanted,
)
from retention_cli.core.model import INFINITE_MS, Maybe, Reason, Unknown, certain, or_unknown
from retention_cli.core.units import LAST_DATE_MS, format_bytes
from retention_cli.decide.triggers.consumed import forced_retention_conflict
from retention_cli.policy.settings import Settings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Danger:
    """One way in which retention differs from what is wanted.

    ``effect``: data is deleted sooner or kept longer than wanted, takes more space than wanted, or blocks time-based
    rules.
    ``partitions`` are those affected; empty: all of the topic's. ``remedy`` is what to do if settings alone don't help.
    """

    code: str
    effect: Literal["sooner", "longer", "larger", "blocked"]
    text: str
    partitions: tuple[int, ...] = ()
    remedy: str | None = None


@or_unknown
def consumed_after_retention(topic: TopicState, demand: Demand, _now_ms: int) -> Danger | None:
    """Check that R1's time is not longer than the forced retention (R1)."""
    if demand.consumed_after_ms is None:
        return None
    live = certain(retention_ms(topic))
    conflict = forced_retention_conflict(
        demand.consumed_after_ms, INFINITE_MS if live is None else live, demand.forced_age_ms
    )
    if conflict is None:
        return None
    text = conflict.reasons[0].text.replace("the policy's retention.ms", demand.forced_age_by)
    return Danger("R1-above-retention", "sooner", text)


@or_unknown
def broker_before_policy(topic: TopicState, demand: Demand, _now_ms: int) -> Danger | None:
    """Check whether the broker's retention.ms is shorter than R4's age, so that it deletes before R4 can act."""
    if demand.forced_age_ms is None:
        return None
    if (live := certain(retention_ms(topic))) is None or live >= demand.forced_age_ms:
        return None
    wanted_by = f"{demand.forced_age_by} ({span(demand.forced_age_ms)})"
    text = f"the broker's retention.ms ({span(live)}) deletes records before {wanted_by} would"
    return Danger("broker-before-policy", "sooner", text)


@or_unknown
def size_before_time(topic: TopicState, demand: Demand, _now_ms: int) -> Danger | None:
    """Check whether, at the measured rate, retention.bytes deletes data before the time for which it is needed."""
    limit, needed = certain(retention_bytes(topic)), certain(needed_ms(topic, demand))
    if limit is None or needed is None:
        return None
    windows = {one.number: size_window_ms(one, limit) for one in topic.partitions}
    if not (short := _where(windows, lambda window: window is not None and window < needed)):
        return None
    least = min(window for window in short.values() if window is not None)
    text = (
        f"at today's rate retention.bytes ({format_bytes(limit)} a partition) holds {span(least)} of "
        f"data in the busiest partition; you want {span(needed)}"
    )
    remedy = None
    if demand.topic_bytes is not None:
        rates = [rate for one in topic.partitions if not isinstance(rate := one.bytes_per_hour, Unknown)]
        remedy = (
            f"--want-bytes is too small: {span(needed)} of data need {format_bytes(round(sum(rates) * needed / HOUR))}"
        )
    return Danger("size-before-time", "sooner", text, tuple(sorted(short)), remedy)


@or_unknown
def segment_above_retention(topic: TopicState, _demand: Demand, _now_ms: int) -> Danger | None:
    """Check for segments that take longer than retention.ms to roll: they keep their first record far longer."""
    limit = certain(retention_ms(topic))
    if limit is None or (segment := certain(topic.settings.segment_ms)) <= limit:
        return None
    rolls = {one.number: roll_ms(one, topic.settings) for one in topic.partitions}
    if not (slow := _where(rolls, lambda roll: roll > limit)):
        return None
    return Danger(
        "segment-above-retention",
        "longer",
        f"segment.ms ({span(segment)}) is longer than retention.ms ({span(limit)}), and traffic is too low to fill a "
        f"segment sooner: records stay up to {span(limit + max(slow.values()))}",
        tuple(sorted(slow)),
    )


@or_unknown
def bytes_per_partition(topic: TopicState, demand: Demand, _now_ms: int) -> Danger | None:
    """Check the topic's size: retention.bytes is per partition, not per topic, and a segment comes on top."""
    if topic.settings.deletes is False:
        return None
    limit, count = certain(retention_bytes(topic)), len(topic.partitions)
    if demand.topic_bytes is not None:
        return _against_topic_bytes(topic, limit, demand.topic_bytes)
    if limit is None or count < 2:
        return None
    sizes = [one.size_bytes for one in topic.partitions]
    total = sum(one for one in sizes if not isinstance(one, Unknown))
    if total <= limit and sum(map(certain, sizes)) <= limit:
        return None
    return Danger(
        "bytes-per-partition",
        "larger",
        f"retention.bytes ({format_bytes(limit)}) applies per partition: {count} partitions may hold "
        f"{format_bytes(limit * count)}, and hold {format_bytes(total)} now",
        remedy=f"if you meant the topic, not each partition, use --want-bytes {limit}B",
    )


def _against_topic_bytes(topic: TopicState, limit: int | None, topic_bytes: int) -> Danger | None:
    demand, count = f"the topic is to stay within {format_bytes(topic_bytes)}", len(topic.partitions)
    remedy = None
    if topic_bytes < (least := count * 2 * SMALLEST_SEGMENT_BYTES):
        remedy = f"{count} partitions need {format_bytes(least)} at least, two of the smallest segments each"
    if limit is None:
        return Danger("bytes-per-partition", "larger", f"{demand}, and retention.bytes sets no limit", remedy=remedy)
    segment = certain(topic.settings.segment_bytes)
    if (most := count * (limit + segment)) <= topic_bytes:
        return None
    return Danger(
        "bytes-per-partition",
        "larger",
        f"{demand}, and retention.bytes ({format_bytes(limit)}) applies per partition, plus a segment "
        f"({format_bytes(segment)}): {count} partitions may take {format_bytes(most)}",
        remedy=remedy,
    )


@or_unknown
def offsets_expire_first(topic: TopicState, _demand: Demand, _now_ms: int) -> Danger | None:
    """Check that a stopped group's commits are kept at least as long as the data that it has yet to read."""
    limit, offsets = certain(retention_ms(topic)), certain(topic.settings.offsets_retention_ms)
    if not certain(topic.settings.deletes) or offsets is None or (limit is not None and offsets >= limit):
        return None
    lasting = "without limit" if limit is None else f"for {span(limit)}"
    return Danger(
        "offsets-expire-first",
        "sooner",
        f"brokers forget the commits of a stopped group after {span(offsets)} (offsets.retention.minutes), but keep "
        f"data {lasting}: a group that comes back later starts over, and skips or repeats records",
        remedy="name such groups in the policy's groups.require; kretain then trims nothing without a commit of theirs",
    )


@or_unknown
def future_timestamps(topic: TopicState, _demand: Demand, now_ms: int) -> Danger | None:
    """Check for timestamps in the future: one keeps its segment and all later ones that much longer."""
    if topic.settings.deletes is False:
        return None
    stamps = {one.number: one.newest for one in topic.partitions if one.newest is not None}
    if not (ahead := _where(stamps, lambda one: one.time_ms > now_ms + CLOCK_DIFFERENCE_MS)):
        return None
    number, worst = max(ahead.items(), key=lambda item: (item[1].time_ms, -item[0]))
    start = next(one.log_start for one in topic.partitions if one.number == number)
    trimmed = not isinstance(start, Unknown) and worst.offset < start
    limit = retention_ms(topic)
    where = f"partition {number}, offset {worst.offset:,}{' (trimmed, its segment is still there)' if trimmed else ''}"
    whose = " by the broker's clock" if topic.settings.timestamp_type == "LogAppendTime" else ""
    suspicion = " (microseconds for milliseconds?)" if worst.time_ms > LAST_DATE_MS else ""
    until = moment(worst.time_ms + limit) if isinstance(limit, int) else None
    held = "" if until is None else f"the broker keeps it and everything after it until {until}, and "
    return Danger(
        "future-timestamps",
        "blocked",
        f"{where} is stamped {moment(worst.time_ms)}, {span(worst.time_ms - now_ms)} ahead{suspicion}{whose}: "
        f"{held}rules based on time stop there",
        tuple(sorted(ahead)),
        "brokers delete a closed segment once all of it is trimmed: segment.ms or segment.bytes close it"
        if trimmed
        else f"no setting changes an existing timestamp: once no consumer needs older records, trim past it by hand "
        f"(kafka-delete-records.sh, offset {worst.offset + 1})",
    )


def _where(facts: Mapping[int, Maybe[T]], test: Callable[[T], bool]) -> dict[int, T]:
    """Return the known facts, by partition, for which a test holds.

    If none does, end the calculation as unknown where any fact is: then "none of them" is not certain.
    """
    found = {number: one for number, one in facts.items() if not isinstance(one, Unknown) and test(one)}
    return found or {number: value for number, one in facts.items() if test(value := certain(one))}


JUDGES: Final[Sequence[Callable[[TopicState, Demand, int], Maybe[Danger | None]]]] = (
    consumed_after_retention,
    broker_before_policy,
    size_before_time,
    offsets_expire_first,
    future_timestamps,
    segment_above_retention,
    bytes_per_partition,
)
"""All checks, in the order in which dangers are reported: first those that may lose data."""


def judge(topic: TopicState, demand: Demand, now_ms: int) -> tuple[list[Danger], list[Reason]]:
    """Return the topic's dangers, and the reasons why others could not be judged."""
    found = [judge_one(topic, demand, now_ms) for judge_one in JUDGES]
    return (
        [one for one in found if isinstance(one, Danger)],
        [reason for one in found if isinstance(one, Unknown) for reason in one.reasons],
    )


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


def changes_for(topic: TopicState, demand: Demand, dangers: Collection[str]) -> dict[str, int]:
    """Return the topic settings to set, by Kafka's names; empty if none need to change, or if facts are missing."""
    found: dict[str, int] = {}
    if topic.settings.deletes is True:
        if isinstance(target := target_retention(topic, demand), int):
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
    better = max(least_segment_ms, min(LONGEST_SEGMENT_MS, target))
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
    if isinstance(needed := needed_ms(topic, demand), Unknown) or needed is None:
        return {}
    rates = (rate for one in topic.partitions if not isinstance(rate := one.bytes_per_hour, Unknown))
    return {"retention.bytes": -(-int(max(rates, default=0.0) * needed / HOUR * HEADROOM) // MIB) * MIB}


def broker_properties_for(topic: TopicState, demand: Demand, now_ms: int) -> dict[str, int]:
    """Return the properties for every broker's ``server.properties``, which brokers read only when they start."""
    limit = retention_ms(topic)
    if not isinstance(limit, int) or not isinstance(offsets_expire_first(topic, demand, now_ms), Danger):
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
    argv = ["kafka-configs.sh", "--bootstrap-server", bootstrap]
    if command_config is not None:
        argv += ["--command-config", command_config]
    added = ",".join(f"{key}={value}" for key, value in sorted(changes.items()))
    return shlex.join([*argv, "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", added])
