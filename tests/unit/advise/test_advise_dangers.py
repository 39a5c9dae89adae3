"""Each danger where it is, where it isn't, and where that can't be said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from retention_cli.advise import dangers
from retention_cli.advise.dangers import Danger
from retention_cli.advise.facts import Demand, PartitionState
from retention_cli.advise.format import DAY, HOUR, MINUTE
from retention_cli.core.model import Unknown
from retention_cli.policy.settings import Settings
from tests.support.advised import GIB, NOW, UNREAD, part, topic

MIB = 1 << 20
NO_SIZE = Unknown.because("size", "not told")
BUSY, SLOW, IDLE = GIB, MIB, 0
COMPACTED = frozenset({"compact"})
NO_DEMAND = Demand()
R1, BROKER, SIZE, SEGMENT, BYTES, OFFSETS, FUTURE = (
    dangers.consumed_after_retention,
    dangers.broker_before_policy,
    dangers.size_before_time,
    dangers.segment_above_retention,
    dangers.bytes_per_partition,
    dangers.offsets_expire_first,
    dangers.future_timestamps,
)


def by_policy(**policy: Any) -> Demand:
    return Demand(policy=Settings(**policy))


def parts(*rates: int) -> list[PartitionState]:
    return [part(number, rate) for number, rate in enumerate(rates)]


BLIND = part(1, BUSY, size_bytes=NO_SIZE)
FOUR = {"retention_bytes": 2 * GIB, "segment_bytes": GIB}
STAMPED = [part(0, 2400, newest_ms=NOW + DAY), part(1, newest_ms=NOW), part(2, newest_ms=NOW + 2 * HOUR)]
TRIMMED = part(newest_ms=NOW + DAY, log_start=99_999, high_watermark=99_999)


@pytest.mark.parametrize(
    ("check", "partitions", "settings", "demand", "code", "effect", "where", "text"),
    [
        (R1, None, {"retention_ms": 2 * DAY}, by_policy(consumed_after_ms=3 * DAY), "R1-above-retention", "sooner", (),
         "retention.commitoffset is 3 d, longer than the topic's retention.ms of 2 d"),
        (R1, None, {}, by_policy(consumed_after_ms=3 * DAY, forced_age_ms=DAY), "R1-above-retention", "sooner", (),
         "the policy's retention.ms of 1 d"),
        (R1, None, {}, Demand(keep_ms=DAY, policy=Settings(consumed_after_ms=3 * DAY)), "R1-above-retention", "sooner",
         (), "longer than --want of 1 d"),
        (BROKER, None, {"retention_ms": DAY}, by_policy(forced_age_ms=3 * DAY), "broker-before-policy", "sooner", (),
         "the broker's retention.ms (1d) lets records go before the policy's retention.ms (3d) would"),
        (BROKER, None, {"retention_ms": DAY}, Demand(keep_ms=2 * DAY), "broker-before-policy", "sooner", (),
         "before --want (2d)"),
        (SIZE, parts(BUSY, SLOW, IDLE), {"retention_bytes": 5 * GIB}, NO_DEMAND, "size-before-time", "sooner", (0,),
         "holds 5h of data in the busiest partition; 7d are wanted"),
        (SIZE, parts(BUSY), {"retention_ms": None, "retention_bytes": 5 * GIB}, by_policy(consumed_after_ms=6 * HOUR),
         "size-before-time", "sooner", (0,), "6h are wanted"),  # R1's time counts too
        (SIZE, parts(BUSY), {"retention_ms": HOUR, "retention_bytes": 5 * GIB}, by_policy(consumed_after_ms=6 * HOUR),
         "size-before-time", "sooner", (0,), "6h are wanted"),
        (SIZE, [part(0, BUSY), BLIND], {"retention_bytes": 5 * GIB}, NO_DEMAND, "size-before-time", "sooner", (0,), ""),
        (SEGMENT, parts(BUSY, SLOW), {"retention_ms": 2 * HOUR, "segment_ms": 7 * DAY}, NO_DEMAND,
         "segment-above-retention", "longer", (1,), "segment.ms (7d) is longer than retention.ms (2h)"),
        (SEGMENT, parts(BUSY, IDLE), {"retention_ms": 2 * HOUR, "segment_ms": 7 * DAY}, NO_DEMAND,
         "segment-above-retention", "longer", (1,), "records stay up to 7d 2h"),
        (BYTES, parts(*[SLOW * 10] * 6), {"retention_bytes": GIB}, NO_DEMAND, "bytes-per-partition", "larger", (),
         "retention.bytes (1.00 GiB) is for each partition: 6 of them may hold 6.00 GiB, and hold 1.41 GiB"),
        (BYTES, parts(*[SLOW * 10] * 6), {"retention_bytes": GIB}, NO_DEMAND, "bytes-per-partition", "larger", (),
         "if it was meant for the whole topic, ask again with --want-bytes 1073741824B"),
        (BYTES, parts(0, 0, 0, 0), FOUR, Demand(topic_bytes=12 * GIB - 1), "bytes-per-partition", "larger", (),
         "is for each partition, with a segment (1.00 GiB) on top: 4 may take 12.0 GiB"),
        (BYTES, parts(0, 0, 0, 0), FOUR, Demand(topic_bytes=7 * MIB), "bytes-per-partition", "larger", (),
         "need 8.00 MiB at least"),
        (BYTES, None, {}, Demand(topic_bytes=GIB), "bytes-per-partition", "larger", (), "sets no limit"),
        (OFFSETS, None, {"retention_ms": 30 * DAY}, NO_DEMAND, "offsets-expire-first", "sooner", (),
         "forgotten after 7d (the brokers' offsets.retention.minutes) and data is kept for 30d"),
        (OFFSETS, None, {"retention_ms": None}, NO_DEMAND, "offsets-expire-first", "sooner", (), "without end"),
        (FUTURE, STAMPED, {}, NO_DEMAND, "future-timestamps", "blocked", (0, 2),
         "partition 0, offset 1,575 is stamped 2027-01-16T08:00:00Z, 1d ahead"),
        (FUTURE, STAMPED, {}, NO_DEMAND, "future-timestamps", "blocked", (0, 2),
         "the broker keeps it and all behind it until 2027-01-23T08:00:00Z"),
        (FUTURE, STAMPED, {}, NO_DEMAND, "future-timestamps", "blocked", (0, 2), "offset 1576"),
        (FUTURE, [part(newest_ms=NOW * 1000)], {}, NO_DEMAND, "future-timestamps", "blocked", (0,), "the year 59,009"),
        (FUTURE, [part(newest_ms=NOW * 1000)], {}, NO_DEMAND, "future-timestamps", "blocked", (0,),
         "microseconds for milliseconds?"),
        (FUTURE, [TRIMMED], {}, NO_DEMAND, "future-timestamps", "blocked", (0,),
         "(trimmed, its segment is still there)"),
        (FUTURE, [TRIMMED], {}, NO_DEMAND, "future-timestamps", "blocked", (0,),
         "segment.ms or segment.bytes close it"),
        (FUTURE, [part(newest_ms=NOW + DAY)], {"retention_ms": None, "timestamp_type": "LogAppendTime"}, NO_DEMAND,
         "future-timestamps", "blocked", (0,),
         "ahead by the broker's own clock: rules that go by time stop there"),
    ],
)  # fmt: skip
def test_danger_is_named_with_its_partitions_and_remedy(
    check: Any,
    partitions: Sequence[PartitionState] | None,
    settings: dict,
    demand: Demand,
    code: str,
    effect: str,
    where: tuple[int, ...],
    text: str,
) -> None:
    found = check(topic(partitions, **settings), demand, NOW)
    assert isinstance(found, Danger), found
    assert (found.code, found.effect, found.partitions) == (code, effect, where)
    assert text in f"{found.text}; {found.remedy}"


@pytest.mark.parametrize(
    ("check", "partitions", "settings", "demand"),
    [
        (R1, None, {}, by_policy(consumed_after_ms=7 * DAY)),
        (R1, None, {"retention_ms": None}, by_policy(consumed_after_ms=99 * DAY)),
        (R1, None, {"cleanup_policy": COMPACTED}, by_policy(consumed_after_ms=99 * DAY)),
        (R1, None, {"retention_ms": HOUR}, by_policy(forced_age_ms=3 * DAY)),
        (R1, None, {"retention_ms": 1}, NO_DEMAND),
        *[(BROKER, None, {"retention_ms": one}, by_policy(forced_age_ms=3 * DAY)) for one in (3 * DAY, 4 * DAY, None)],
        (BROKER, None, {"retention_ms": 1}, by_policy(consumed_after_ms=DAY)),
        (SIZE, parts(BUSY), {}, NO_DEMAND),
        (SIZE, parts(SLOW), {"retention_bytes": 5 * GIB}, NO_DEMAND),
        (SIZE, parts(IDLE), {"retention_bytes": 0}, NO_DEMAND),
        (SIZE, parts(BUSY), {"retention_ms": None, "retention_bytes": 5 * GIB}, NO_DEMAND),
        (SIZE, parts(BUSY), {"retention_ms": None, "retention_bytes": 5 * GIB}, by_policy(consumed_after_ms=4 * HOUR)),
        (SIZE, parts(BUSY), {"retention_ms": HOUR, "retention_bytes": 5 * GIB}, NO_DEMAND),
        (SEGMENT, None, {"retention_ms": DAY, "segment_ms": DAY}, NO_DEMAND),
        (SEGMENT, None, {"retention_ms": None, "segment_ms": 99 * DAY}, NO_DEMAND),
        (SEGMENT, None, {"cleanup_policy": COMPACTED, "retention_ms": HOUR}, NO_DEMAND),
        (SEGMENT, parts(BUSY), {"retention_ms": 2 * HOUR, "segment_ms": 7 * DAY}, NO_DEMAND),
        (BYTES, parts(BUSY), {"retention_bytes": GIB}, NO_DEMAND),
        (BYTES, parts(*[MIB] * 6), {"retention_bytes": GIB}, NO_DEMAND),
        (BYTES, parts(*[BUSY] * 6), {}, NO_DEMAND),
        (BYTES, parts(*[BUSY] * 6), {"retention_bytes": GIB, "cleanup_policy": COMPACTED}, NO_DEMAND),
        (BYTES, parts(0, 0, 0, 0), FOUR, Demand(topic_bytes=12 * GIB)),
        (OFFSETS, None, {}, NO_DEMAND),
        (OFFSETS, None, {"retention_ms": None, "cleanup_policy": COMPACTED}, NO_DEMAND),
        (FUTURE, [part(newest_ms=NOW + MINUTE), part(1)], {}, NO_DEMAND),
        (FUTURE, [part(newest_ms=NOW + DAY)], {"cleanup_policy": COMPACTED}, NO_DEMAND),
    ],
)
def test_danger_is_not_named_if_settings_fit_the_demand(
    check: Any, partitions: Sequence[PartitionState] | None, settings: dict, demand: Demand
) -> None:
    assert check(topic(partitions, **settings), demand, NOW) is None


@pytest.mark.parametrize(
    ("check", "partitions", "settings", "demand", "why"),
    [
        (R1, None, {"retention_ms": UNREAD}, by_policy(consumed_after_ms=1), UNREAD),
        (BROKER, None, {"retention_ms": UNREAD}, by_policy(forced_age_ms=DAY), UNREAD),
        (SIZE, [part(0, SLOW), BLIND], {"retention_bytes": 5 * GIB}, NO_DEMAND, NO_SIZE),
        (SEGMENT, [BLIND], {"retention_ms": HOUR, "segment_ms": DAY}, NO_DEMAND, NO_SIZE),
        (SEGMENT, None, {"segment_ms": UNREAD}, NO_DEMAND, UNREAD),
        (BYTES, [part(0, SLOW), part(1, size_bytes=NO_SIZE)], {"retention_bytes": GIB}, NO_DEMAND, NO_SIZE),
        (OFFSETS, None, {"offsets_retention_ms": UNREAD}, NO_DEMAND, UNREAD),
        (FUTURE, [part(0, newest=UNREAD), part(1)], {}, NO_DEMAND, UNREAD),
    ],
)
def test_danger_is_unknown_if_the_fact_that_decides_it_is_unknown(
    check: Any, partitions: Sequence[PartitionState] | None, settings: dict, demand: Demand, why: Unknown
) -> None:
    assert check(topic(partitions, **settings), demand, NOW) == why


def test_topic_judgement_names_every_danger_and_every_unknown_fact() -> None:
    about = topic([part(0, SLOW, newest_ms=NOW + DAY)], retention_ms=HOUR, offsets_retention_ms=UNREAD)
    found, unknown = dangers.judge(about, by_policy(consumed_after_ms=DAY, forced_age_ms=DAY), NOW)
    assert [one.code for one in found] == [
        "R1-above-retention",
        "broker-before-policy",
        "future-timestamps",
        "segment-above-retention",
    ]
    assert unknown == list(UNREAD.reasons)
