"""The dangers to a topic's data: one small pure check for each.

A check returns the danger, None if there is none, or unknown if a fact that it needs could not be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from retention_cli.advise.facts import (
    CLOCK_DIFFERENCE_MS,
    SMALLEST_SEGMENT_BYTES,
    Demand,
    PartitionState,
    Stamp,
    TopicState,
    needed_ms,
    retention_bytes,
    retention_ms,
    roll_ms,
    size_window_ms,
)
from retention_cli.advise.format import HOUR, LAST_DATE_MS, moment, span
from retention_cli.core.model import INFINITE_MS, Maybe, Reason, Unknown, certain, or_unknown
from retention_cli.core.units import format_bytes
from retention_cli.decide.triggers.consumed import forced_retention_conflict

T = TypeVar("T")

Effect = Literal["sooner", "longer", "larger", "blocked"]
"""Data is deleted sooner or kept longer than wanted, takes more space than wanted, or blocks time-based rules."""


@dataclass(frozen=True, slots=True)
class Danger:
    """One way in which retention differs from what is wanted.

    ``partitions`` are those affected; empty: the whole topic. ``remedy`` is what to do if settings alone don't help.
    """

    code: str
    effect: Effect
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
    text = conflict.reasons[0].text
    if demand.keep_ms is not None:
        text = text.replace("the policy's retention.ms", "--want")
    return Danger("R1-above-retention", "sooner", text)


@or_unknown
def broker_before_policy(topic: TopicState, demand: Demand, _now_ms: int) -> Danger | None:
    """Check whether the broker's retention.ms is shorter than R4's age, so that it deletes before R4 can act."""
    if demand.forced_age_ms is None:
        return None
    live = certain(retention_ms(topic))
    if live is None or live >= demand.forced_age_ms:
        return None
    who = "--want" if demand.keep_ms is not None else "the policy's retention.ms"
    text = f"the broker's retention.ms ({span(live)}) lets records go before {who} ({span(demand.forced_age_ms)}) would"
    return Danger("broker-before-policy", "sooner", text)


@or_unknown
def size_before_time(topic: TopicState, demand: Demand, _now_ms: int) -> Danger | None:
    """Check whether, at the measured rate, retention.bytes deletes data before the time for which it is needed."""
    limit, needed = certain(retention_bytes(topic)), certain(needed_ms(topic, demand))
    if limit is None or needed is None:
        return None
    windows = {one.number: size_window_ms(one, limit) for one in topic.partitions}
    short = _where(windows, lambda window: window is not None and window < needed)
    if not short:
        return None
    least = min(window for window in short.values() if window is not None)
    text = (
        f"at today's rate retention.bytes ({format_bytes(limit)} a partition) holds {span(least)} of "
        f"data in the busiest partition; {span(needed)} are wanted"
    )
    remedy = None
    if demand.topic_bytes is not None:
        rates = [rate for one in topic.partitions if not isinstance(rate := one.bytes_per_hour, Unknown)]
        remedy = (
            f"--want-bytes can't hold that: {span(needed)} come to {format_bytes(round(sum(rates) * needed / HOUR))}"
        )
    return Danger("size-before-time", "sooner", text, tuple(sorted(short)), remedy)


@or_unknown
def segment_above_retention(topic: TopicState, _demand: Demand, _now_ms: int) -> Danger | None:
    """Check for segments that take longer than retention.ms to roll: they keep their first record far longer."""
    limit = certain(retention_ms(topic))
    if limit is None or (segment := certain(topic.settings.segment_ms)) <= limit:
        return None
    slow = _where({one.number: roll_ms(one, topic.settings) for one in topic.partitions}, lambda roll: roll > limit)
    if not slow:
        return None
    text = (
        f"segment.ms ({span(segment)}) is longer than retention.ms ({span(limit)}), and traffic is too low to fill a "
        f"segment sooner: records stay up to {span(limit + max(slow.values()))}"
    )
    return Danger("segment-above-retention", "longer", text, tuple(sorted(slow)))


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
    text = (
        f"retention.bytes ({format_bytes(limit)}) is for each partition: {count} of them may hold "
        f"{format_bytes(limit * count)}, and hold {format_bytes(total)} now"
    )
    remedy = f"if you meant the topic, not each partition, use --want-bytes {limit}B"
    return Danger("bytes-per-partition", "larger", text, remedy=remedy)


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
    text = (
        f"{demand}, and retention.bytes ({format_bytes(limit)}) is for each partition, with a segment "
        f"({format_bytes(segment)}) on top: {count} may take {format_bytes(most)}"
    )
    return Danger("bytes-per-partition", "larger", text, remedy=remedy)


@or_unknown
def offsets_expire_first(topic: TopicState, _demand: Demand, _now_ms: int) -> Danger | None:
    """Check that a stopped group's commits are kept at least as long as the data that it has yet to read."""
    limit, offsets = certain(retention_ms(topic)), certain(topic.settings.offsets_retention_ms)
    if not certain(topic.settings.deletes) or offsets is None or (limit is not None and offsets >= limit):
        return None
    kept = "without end" if limit is None else f"for {span(limit)}"
    text = (
        f"commits of a group that stopped are forgotten after {span(offsets)} (the brokers' offsets.retention.minutes) "
        f"and data is kept {kept}: a group that comes back later starts over, and skips or repeats records"
    )
    remedy = "name such groups in the policy's groups.require: then nothing is trimmed on the others' word alone"
    return Danger("offsets-expire-first", "sooner", text, remedy=remedy)


@or_unknown
def future_timestamps(topic: TopicState, _demand: Demand, now_ms: int) -> Danger | None:
    """Check for timestamps in the future: one keeps its segment and all later ones that much longer."""
    if topic.settings.deletes is False:
        return None
    stamps = {one.number: _newest(one) for one in topic.partitions}
    ahead = _where(stamps, lambda one: one.time_ms > now_ms + CLOCK_DIFFERENCE_MS)
    if not ahead:
        return None
    number, worst = max(ahead.items(), key=lambda item: (item[1].time_ms, -item[0]))
    start = next(one.log_start for one in topic.partitions if one.number == number)
    trimmed = not isinstance(start, Unknown) and worst.offset < start
    limit = retention_ms(topic)
    where = f"partition {number}, offset {worst.offset:,}{' (trimmed, its segment is still there)' if trimmed else ''}"
    whose = " by the broker's clock" if topic.settings.timestamp_type == "LogAppendTime" else ""
    held, odd = "", " (microseconds for milliseconds?)" if worst.time_ms > LAST_DATE_MS else ""
    if isinstance(limit, int):
        held = f"the broker keeps it and all behind it until {moment(worst.time_ms + limit)}, and "
    stamped = f"is stamped {moment(worst.time_ms)}, {span(worst.time_ms - now_ms)} ahead{odd}{whose}"
    text = f"{where} {stamped}: {held}rules based on time stop there"
    remedy = (
        "brokers delete a closed segment once all of it is trimmed: segment.ms or segment.bytes close it"
        if trimmed
        else f"no setting changes an existing timestamp: once no consumer needs older records, trim past it by hand "
        f"(kafka-delete-records.sh, offset {worst.offset + 1})"
    )
    return Danger("future-timestamps", "blocked", text, tuple(sorted(ahead)), remedy)


def _newest(one: PartitionState) -> Maybe[Stamp]:
    """Return a partition's newest record by time, one of the year 1970 if it has none."""
    return Stamp(0, 0) if one.newest is None else one.newest


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
    dangers: list[Danger] = []
    unknown: list[Reason] = []
    for one in JUDGES:
        found = one(topic, demand, now_ms)
        if isinstance(found, Unknown):
            unknown += found.reasons
        elif found is not None:
            dangers.append(found)
    return dangers, unknown
