"""Advice without a cluster: dangers where they are, how long a broker keeps data, and settings that end the dangers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st

from retention_cli.advise import advice
from retention_cli.advise.advice import Advice, advise, kafka_configs
from retention_cli.advise.facts import (
    DAY,
    HOUR,
    MINUTE,
    AtMost,
    Demand,
    Normal,
    PartitionState,
    Stamp,
    TopicSettings,
    Window,
    at_most,
    in_normal_traffic,
    measured,
    moment,
    span,
    usual,
)
from retention_cli.advise.reading import read_settings
from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from retention_cli.core.model import Unknown
from retention_cli.core.units import exact_duration
from retention_cli.policy.load import parse_policy
from retention_cli.policy.settings import Settings
from tests.support.facts import known
from tests.support.forecasts import GIB, NOW, UNREAD, part, topic

KIB, MIB = 1 << 10, 1 << 20
NO_SIZE = Unknown.because("size", "not read")


@pytest.mark.parametrize(
    ("wanted", "retention_ms", "segment_ms", "broker_at_most", "said", "by_r4"),
    [
        (HOUR, HOUR, DAY, 25 * HOUR, "1d 1h", HOUR),
        (12 * HOUR, 12 * HOUR, DAY, 36 * HOUR, "1d 12h", 12 * HOUR),
        (DAY, DAY, DAY, 2 * DAY, "2d", DAY),
        *[(n * DAY, n * DAY, DAY, (n + 1) * DAY, f"{n + 1}d", n * DAY) for n in (2, 3, 7, 90)],
    ],
)
def test_advised_settings_equal_the_guides_table(
    wanted: int, retention_ms: int, segment_ms: int, broker_at_most: int, said: str, by_r4: int
) -> None:
    """docs/rules.md, Worked cases: a cluster that takes no segment.ms below a day."""
    one = advise(topic(retention_ms=365 * DAY, segment_ms=7 * DAY), Demand(keep_ms=wanted, least_segment_ms=DAY), NOW)
    assert one.changes == {"retention.ms": retention_ms, "segment.ms": segment_ms}
    most: Any = one.then_at_most
    assert (most.settings_ms, span(most.settings_ms)) == (broker_at_most, said)
    assert (one.policy_entry, one.policy_at_most_ms) == ({"retention.ms": by_r4}, by_r4)


@pytest.mark.parametrize(
    ("partitions", "settings", "times"),
    [
        (None, {"retention_ms": HOUR, "segment_ms": DAY}, (25 * HOUR, 25 * HOUR + 5 * MINUTE, 25 * HOUR + 6 * MINUTE)),
        (None, {"check_interval_ms": UNREAD}, (8 * DAY, UNREAD, UNREAD)),
        # a stamp ahead keeps its segment longer, and clocks may differ by a minute
        ([part(newest_ms=NOW + 3 * DAY), part(1)], {"check_interval_ms": 0}, (11 * DAY, 11 * DAY, 11 * DAY + MINUTE)),
        ([part(newest_ms=NOW + MINUTE)], {"check_interval_ms": 0}, (8 * DAY, 8 * DAY, 8 * DAY + MINUTE)),
    ],
)
def test_at_most_adds_the_segment_the_stamp_the_check_and_the_delete_delay(
    partitions: Any, settings: dict, times: tuple[object, ...]
) -> None:
    found: Any = at_most(topic(partitions, **settings), NOW)
    assert (found.settings_ms, found.readable_ms, found.on_disk_ms) == times


@pytest.mark.parametrize("name", ["cleanup_policy", "retention_ms", "segment_ms"])
def test_unreadable_setting_makes_at_most_unknown_and_is_named(name: str) -> None:
    one = advise(topic(**{name: UNREAD}), Demand(), NOW)  # type: ignore[arg-type]
    assert (one.at_most, UNREAD.reasons[0] in one.unknown) == (UNREAD, True)


@pytest.mark.parametrize(
    ("rate", "settings", "expected"),
    [
        # the guide: with normal volume a segment is full long before a day, and about a day is kept
        (GIB, {"retention_ms": DAY}, Normal(DAY, DAY + HOUR, "time")),
        # low volume: the segment is written to for segment.ms
        (100 * KIB, {"retention_ms": DAY}, Normal(DAY, 2 * DAY, "time")),
        # retention.bytes at today's rate: a segment more than the limit, when the oldest goes
        (GIB, {"retention_bytes": 5 * GIB}, Normal(5 * HOUR, 6 * HOUR, "size")),
        (100 * MIB, {"retention_bytes": GIB, "segment_ms": HOUR}, Normal(36_864_000, 36_864_000 + HOUR, "size")),
        # large enough that time comes first
        (GIB, {"retention_bytes": 500 * GIB}, Normal(7 * DAY, 7 * DAY + HOUR, "time")),
        (GIB, {"retention_ms": None, "retention_bytes": 5 * GIB}, Normal(5 * HOUR, 6 * HOUR, "size")),
        (GIB, {"retention_ms": None}, "forever"),
        (GIB, {"cleanup_policy": frozenset({"compact"}), "retention_bytes": GIB}, "forever"),
        (0, {}, "idle"),
    ],
)
def test_age_at_deletion_is_computed_from_the_rate(rate: int, settings: dict, expected: object) -> None:
    found: Any = in_normal_traffic(part(bytes_per_hour=rate), topic(**settings))
    if isinstance(expected, Normal):
        assert found.by == expected.by
        assert (found.least_ms, found.most_ms) == pytest.approx((expected.least_ms, expected.most_ms), rel=1e-4)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("partitions", "settings", "least", "most"),
    [
        (
            [part(0, GIB), part(1, GIB // 2), part(2)],
            {"retention_ms": DAY},
            DAY,
            DAY + 2 * HOUR,
        ),  # not the idle one
        ([part(0, GIB), part(1, GIB // 2)], {"retention_bytes": 5 * GIB}, 5 * HOUR, 12 * HOUR),
    ],
)
def test_topic_age_at_deletion_spans_its_fastest_to_its_slowest_partition(
    partitions: Any, settings: dict, least: int, most: int
) -> None:
    found: Any = usual(topic(partitions, **settings))
    assert (found.least_ms, found.most_ms) == pytest.approx((least, most), rel=1e-4)


def test_traffic_without_sizes_is_unknown_but_idle_is_idle() -> None:
    assert usual(topic([part(0, GIB, size_bytes=NO_SIZE)])) == NO_SIZE
    assert usual(topic([part(0, size_bytes=NO_SIZE)])) == "idle"


def test_hourly_rate_falls_back_to_the_last_hour_if_the_last_day_is_unknown() -> None:
    assert part(0, GIB, last_day=Unknown.because("traffic", "ambiguous")).records_per_hour == GIB // 100


@pytest.mark.parametrize(
    ("start", "end", "first", "newest", "length", "found"),
    [
        (10, 100, Stamp(40, NOW - HOUR), None, HOUR, Window(60, HOUR)),
        (7, 7, UNREAD, UNREAD, HOUR, Window(0, HOUR)),  # it is empty
        (0, 9, None, Stamp(8, NOW - HOUR - 1), HOUR, Window(0, HOUR)),
        *[(0, 9, None, newest, HOUR, None) for newest in (None, Stamp(8, NOW - HOUR), UNREAD)],
        # a log that starts within the window is measured over what it covers
        (500, 800, Stamp(500, NOW - 3 * HOUR), None, DAY, Window(300, 3 * HOUR)),
        (500, 800, Stamp(500, NOW - 1000), None, DAY, None),
        # a topic from which nothing went, over its age, an hour at least
        (0, 300, Stamp(0, NOW - 3 * HOUR), None, DAY, Window(300, 3 * HOUR)),
        (0, 300, Stamp(0, NOW - 2000), None, DAY, Window(300, HOUR)),
        (0, 300, Stamp(0, NOW + DAY), None, DAY, Window(300, HOUR)),
        (0, 9, UNREAD, None, HOUR, None),
    ],
)
def test_unanswered_look_up_means_no_traffic_only_if_the_newest_record_confirms_it(
    start: int, end: int, first: Any, newest: Any, length: int, found: Window | None
) -> None:
    """docs/rules.md, Look-ups; None stands for unknown."""
    window = measured(start, end, first, newest, NOW, length)
    assert (None if isinstance(window, Unknown) else window) == found


@pytest.mark.parametrize(
    ("show", "given", "said"),
    [
        (span, 0, "0ms"),
        (span, 999, "999ms"),
        (span, 40_000, "40s"),
        (span, 59_600, "1m"),
        (span, 90_000, "1m 30s"),
        (span, 25 * MINUTE, "25m"),
        (span, HOUR - 400, "1h"),
        (span, 25 * HOUR + 5 * MINUTE, "1d 1h"),
        (span, DAY - 20_000, "1d"),
        (span, 14 * DAY, "14d"),
        (exact_duration, 7 * DAY, "7d"),
        (exact_duration, 36 * HOUR, "36h"),
        (exact_duration, 90 * MINUTE, "90m"),
        (exact_duration, 1500, "1500ms"),
        (exact_duration, 0, "0ms"),
        (moment, 1_795_255_562_968, "2026-11-21T10:06:02Z"),
        (moment, 1_795_255_562_968_000, "the year 58,859"),
    ],
)
def test_duration_or_moment_is_formatted(show: Any, given: int, said: str) -> None:
    assert show(given) == said


BUSY, SLOW, IDLE = GIB, MIB, 0
COMPACTED = frozenset({"compact"})
NO_DEMAND = Demand()
R1, BROKER, SIZE, SEGMENT, BYTES, OFFSETS, FUTURE = (
    advice.consumed_after_retention,
    advice.broker_before_policy,
    advice.size_before_time,
    advice.segment_above_retention,
    advice.bytes_per_partition,
    advice.offsets_expire_first,
    advice.future_timestamps,
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
         "the broker's retention.ms (1d) deletes records before the policy's retention.ms (3d) would"),
        (BROKER, None, {"retention_ms": DAY}, Demand(keep_ms=2 * DAY), "broker-before-policy", "sooner", (),
         "before --want (2d)"),
        (SIZE, parts(BUSY, SLOW, IDLE), {"retention_bytes": 5 * GIB}, NO_DEMAND, "size-before-time", "sooner", (0,),
         "holds 5h of data in the busiest partition; you want 7d"),
        (SIZE, parts(BUSY), {"retention_ms": None, "retention_bytes": 5 * GIB}, by_policy(consumed_after_ms=6 * HOUR),
         "size-before-time", "sooner", (0,), "you want 6h"),  # R1's time counts too
        (SIZE, parts(BUSY), {"retention_ms": HOUR, "retention_bytes": 5 * GIB}, by_policy(consumed_after_ms=6 * HOUR),
         "size-before-time", "sooner", (0,), "you want 6h"),
        (SIZE, [part(0, BUSY), BLIND], {"retention_bytes": 5 * GIB}, NO_DEMAND, "size-before-time", "sooner", (0,), ""),
        (SEGMENT, parts(BUSY, SLOW), {"retention_ms": 2 * HOUR, "segment_ms": 7 * DAY}, NO_DEMAND,
         "segment-above-retention", "longer", (1,), "segment.ms (7d) is longer than retention.ms (2h)"),
        (SEGMENT, parts(BUSY, IDLE), {"retention_ms": 2 * HOUR, "segment_ms": 7 * DAY}, NO_DEMAND,
         "segment-above-retention", "longer", (1,), "records stay up to 7d 2h"),
        (BYTES, parts(*[SLOW * 10] * 6), {"retention_bytes": GIB}, NO_DEMAND, "bytes-per-partition", "larger", (),
         "retention.bytes (1.00 GiB) applies per partition: 6 partitions may hold 6.00 GiB, and hold 1.41 GiB"),
        (BYTES, parts(*[SLOW * 10] * 6), {"retention_bytes": GIB}, NO_DEMAND, "bytes-per-partition", "larger", (),
         "if you meant the topic, not each partition, use --want-bytes 1073741824B"),
        (BYTES, parts(0, 0, 0, 0), FOUR, Demand(topic_bytes=12 * GIB - 1), "bytes-per-partition", "larger", (),
         "applies per partition, plus a segment (1.00 GiB): 4 partitions may take 12.0 GiB"),
        (BYTES, parts(0, 0, 0, 0), FOUR, Demand(topic_bytes=7 * MIB), "bytes-per-partition", "larger", (),
         "need 8.00 MiB at least"),
        (BYTES, None, {}, Demand(topic_bytes=GIB), "bytes-per-partition", "larger", (), "sets no limit"),
        (OFFSETS, None, {"retention_ms": 30 * DAY}, NO_DEMAND, "offsets-expire-first", "sooner", (),
         "after 7d (offsets.retention.minutes), but keep data for 30d"),
        (OFFSETS, None, {"retention_ms": None}, NO_DEMAND, "offsets-expire-first", "sooner", (), "without limit"),
        (FUTURE, STAMPED, {}, NO_DEMAND, "future-timestamps", "blocked", (0, 2),
         "partition 0, offset 1,575 is stamped 2027-01-16T08:00:00Z, 1d ahead"),
        (FUTURE, STAMPED, {}, NO_DEMAND, "future-timestamps", "blocked", (0, 2),
         "the broker keeps it and everything after it until 2027-01-23T08:00:00Z"),
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
         "ahead by the broker's clock: rules based on time stop there"),
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
    found = known(check(topic(partitions, **settings), demand, NOW))
    assert (found.code, found.effect, found.partitions) == (code, effect, where)
    assert text in f"{found.text}; {found.remedy}"


@pytest.mark.parametrize(
    ("check", "partitions", "settings", "demand", "found"),
    [
        *(
            (*one, None)
            for one in [
                (R1, None, {}, by_policy(consumed_after_ms=7 * DAY)),
                (R1, None, {"retention_ms": None}, by_policy(consumed_after_ms=99 * DAY)),
                (R1, None, {"cleanup_policy": COMPACTED}, by_policy(consumed_after_ms=99 * DAY)),
                (R1, None, {"retention_ms": HOUR}, by_policy(forced_age_ms=3 * DAY)),
                (R1, None, {"retention_ms": 1}, NO_DEMAND),
                *[
                    (BROKER, None, {"retention_ms": one}, by_policy(forced_age_ms=3 * DAY))
                    for one in (3 * DAY, 4 * DAY, None)
                ],
                (BROKER, None, {"retention_ms": 1}, by_policy(consumed_after_ms=DAY)),
                (SIZE, parts(BUSY), {}, NO_DEMAND),
                (SIZE, parts(SLOW), {"retention_bytes": 5 * GIB}, NO_DEMAND),
                (SIZE, parts(IDLE), {"retention_bytes": 0}, NO_DEMAND),
                (SIZE, parts(BUSY), {"retention_ms": None, "retention_bytes": 5 * GIB}, NO_DEMAND),
                (
                    SIZE,
                    parts(BUSY),
                    {"retention_ms": None, "retention_bytes": 5 * GIB},
                    by_policy(consumed_after_ms=4 * HOUR),
                ),
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
                (OFFSETS, None, {"retention_ms": None, "offsets_retention_ms": None}, NO_DEMAND),
                (FUTURE, [part(newest_ms=NOW + MINUTE), part(1)], {}, NO_DEMAND),
                (FUTURE, [part(newest_ms=NOW + DAY)], {"cleanup_policy": COMPACTED}, NO_DEMAND),
            ]
        ),
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
def test_danger_is_not_named_if_settings_fit_and_unknown_if_the_fact_that_decides_it_is(
    check: Any,
    partitions: Sequence[PartitionState] | None,
    settings: dict,
    demand: Demand,
    found: Unknown | None,
) -> None:
    assert check(topic(partitions, **settings), demand, NOW) == found


def test_topic_judgement_names_every_danger_and_every_unknown_fact() -> None:
    about = topic([part(0, SLOW, newest_ms=NOW + DAY)], retention_ms=HOUR, offsets_retention_ms=UNREAD)
    found, unknown = advice.judge(about, by_policy(consumed_after_ms=DAY, forced_age_ms=DAY), NOW)
    assert [one.code for one in found] == [
        "R1-above-retention",
        "broker-before-policy",
        "future-timestamps",
        "segment-above-retention",
    ]
    assert unknown == list(UNREAD.reasons)


BY_SETTINGS = {"broker-before-policy", "segment-above-retention", "size-before-time", "bytes-per-partition"}
"""The dangers that topic settings end. A stamp stays, groups' offsets are the brokers', R1's time the policy's too."""


def said(one: Advice) -> set[str]:
    return {danger.code for danger in one.dangers}


@pytest.mark.parametrize(
    ("settings", "demand", "changes"),
    [
        # a segment's time is at most the retention and a day, but at least what the cluster takes
        *(
            (
                {"retention_ms": retention, "segment_ms": 100 * DAY},
                Demand(least_segment_ms=least),
                {"segment.ms": segment},
            )
            for retention, least, segment in (
                (HOUR, MINUTE, HOUR),
                (12 * HOUR, MINUTE, 12 * HOUR),
                (90 * DAY, MINUTE, DAY),
                (30_000, MINUTE, MINUTE),
                (HOUR, DAY, DAY),
            )
        ),
        ({"retention_ms": HOUR, "segment_ms": 7 * DAY}, Demand(), {"segment.ms": HOUR}),
        ({"retention_ms": HOUR, "segment_ms": 7 * DAY}, Demand(least_segment_ms=DAY), {"segment.ms": DAY}),
        ({"segment_ms": 7 * DAY}, Demand(), {"segment.ms": DAY}),
        ({}, Demand(keep_ms=12 * HOUR), {"retention.ms": 12 * HOUR, "segment.ms": 12 * HOUR}),
        ({"retention_ms": DAY}, Demand(policy=Settings(forced_age_ms=3 * DAY)), {"retention.ms": 3 * DAY}),
        ({}, Demand(policy=Settings(forced_age_ms=10 * DAY)), {"retention.ms": 10 * DAY}),
        ({"retention_ms": DAY}, Demand(policy=Settings(consumed_after_ms=2 * DAY)), {"retention.ms": 2 * DAY}),
        # a broker that keeps longer than the policy is a net, not a danger
        ({}, Demand(policy=Settings(forced_age_ms=DAY)), {}),
        ({"retention_ms": None}, Demand(policy=Settings(forced_age_ms=DAY, consumed_after_ms=HOUR)), {}),
        ({"retention_ms": None, "segment_ms": 99 * DAY}, Demand(), {}),
        ({"cleanup_policy": frozenset({"compact"}), "segment_ms": 99 * DAY}, Demand(keep_ms=DAY, topic_bytes=GIB), {}),
        ({"retention_bytes": GIB}, Demand(topic_bytes=4 * GIB), {}),
        ({}, Demand(topic_bytes=4 * GIB), {"retention.bytes": 3 * GIB}),
        (
            {"retention_bytes": 4 * GIB},
            Demand(topic_bytes=GIB),
            {"retention.bytes": 768 * MIB, "segment.bytes": 256 * MIB},
        ),
        ({"retention_bytes": 4 * GIB}, Demand(topic_bytes=MIB), {}),
    ],
)
def test_advised_changes_match_the_demand(settings: dict, demand: Demand, changes: dict) -> None:
    assert advise(topic(**settings), demand, NOW).changes == changes


def test_too_small_retention_bytes_is_raised_to_twice_the_busiest_partitions_need() -> None:
    one = advise(topic([part(0, GIB), part(1, MIB)], retention_bytes=GIB, retention_ms=DAY), Demand(), NOW)
    assert one.changes["retention.bytes"] == pytest.approx(48 * GIB, rel=1e-3)
    assert one.changes["retention.bytes"] % MIB == 0


def test_wanted_size_too_small_for_the_time_is_a_danger_before_it_is_set() -> None:
    one = advise(topic([part(0, GIB)]), Demand(topic_bytes=10 * GIB), NOW)
    [later] = one.then_dangers
    assert (said(one), later.code) == ({"bytes-per-partition"}, "size-before-time")
    assert "--want-bytes is too small: 7d of data need 168 GiB" in str(later.remedy)


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"after_max_ms": None}, {"message.timestamp.after.max.ms": HOUR}),
        ({"after_max_ms": HOUR}, {}),
        ({"after_max_ms": None, "timestamp_type": "LogAppendTime"}, {}),
    ],
)
def test_future_producer_timestamps_lead_to_advice_to_refuse_them(settings: dict, changes: dict) -> None:
    assert advise(topic([part(newest_ms=NOW + DAY)], **settings), Demand(), NOW).changes == changes
    assert advise(topic([part(newest_ms=NOW)], **settings), Demand(), NOW).changes == {}


@pytest.mark.parametrize(
    ("settings", "demand", "minutes"),
    [
        ({"retention_ms": 30 * DAY}, Demand(), 43_200),
        ({"retention_ms": 30 * DAY + 1}, Demand(), 43_201),
        ({}, Demand(policy=Settings(forced_age_ms=10 * DAY)), 14_400),
        ({"retention_ms": None}, Demand(), None),  # no number is as long as for ever
    ],
)
def test_offsets_retention_is_advised_to_match_the_longer_retention(
    settings: dict, demand: Demand, minutes: int | None
) -> None:
    assert advise(topic(**settings), demand, NOW).broker_properties == (
        {} if minutes is None else {"offsets.retention.minutes": minutes}
    )


@pytest.mark.parametrize("name", ["retention_ms", "segment_ms", "cleanup_policy", "segment_bytes", "retention_bytes"])
def test_advice_never_changes_an_unknown_setting(name: str) -> None:
    about = topic(**{"retention_bytes": GIB, name: UNREAD})  # type: ignore[arg-type]
    changes = advise(about, Demand(keep_ms=HOUR, topic_bytes=GIB), NOW).changes
    assert name.replace("_", ".") not in changes
    assert name != "cleanup_policy" or changes == {}


@pytest.mark.parametrize(
    ("settings", "demand", "entry"),
    [
        ({}, Demand(), {"retention.ms": "7d"}),
        ({}, Demand(keep_ms=90 * MINUTE), {"retention.ms": "90m"}),
        ({}, Demand(policy=Settings(forced_age_ms=DAY)), {}),
        ({"retention_ms": DAY}, Demand(policy=Settings(consumed_after_ms=2 * DAY)), {"retention.ms": "2d"}),
        ({}, Demand(policy=Settings(consumed_after_ms=2 * DAY, forced_age_ms=DAY)), {"retention.ms": "2d"}),
        (
            {},
            Demand(keep_ms=DAY, policy=Settings(consumed_after_ms=2 * DAY)),
            {"retention.commitoffset.ms": "1d", "retention.ms": "1d"},
        ),
        ({"retention_ms": None}, Demand(), {}),
        ({"retention_ms": UNREAD}, Demand(), {}),
        ({"cleanup_policy": frozenset({"compact"})}, Demand(), {}),
        ({"cleanup_policy": frozenset({"compact", "delete"})}, Demand(), {}),
        ({"name": "_orders"}, Demand(), {}),
        ({"name": "app-repartition"}, Demand(), {}),
    ],
)
def test_advised_policy_entry_parses_as_a_policy(settings: dict, demand: Demand, entry: dict) -> None:
    """R4 in the place of the broker's retention; never for what kretain doesn't touch by itself (G5)."""
    one = advise(topic(**settings), demand, NOW)
    assert {key: exact_duration(value) for key, value in one.policy_entry.items()} == entry
    if entry:
        rules = {
            "match": one.topic.name,
            "retention.commitoffset.enable": "retention.commitoffset.ms" in entry,
            **entry,
        }
        policy = parse_policy(yaml.safe_dump({"version": 1, "topics": [rules]}), "advice", "sha256:x")
        assert known(policy.settings_for(one.topic.name)).forced_age_ms == one.policy_at_most_ms


def test_kafka_configs_line_is_quoted_for_a_shell() -> None:
    assert shlex.split(
        kafka_configs("orders", {"segment.ms": 5, "retention.ms": 7}, "b1:9092,b2:9092", "my client.properties")
    ) == [
        *("kafka-configs.sh", "--bootstrap-server", "b1:9092,b2:9092", "--command-config", "my client.properties"),
        *("--alter", "--entity-type", "topics", "--entity-name", "orders"),
        *("--add-config", "retention.ms=7,segment.ms=5"),
    ]


times = st.integers(MINUTE, 40 * DAY)
sizes = st.integers(MIB, 20 * GIB)
topics = st.builds(
    topic,
    st.lists(st.integers(0, 2 * GIB), min_size=1, max_size=4).map(
        lambda rates: [part(n, r) for n, r in enumerate(rates)]
    ),
    retention_ms=st.none() | times,
    retention_bytes=st.none() | sizes,
    segment_ms=times,
    segment_bytes=sizes,
)
policies = st.builds(Settings, consumed_after_ms=st.none() | times, forced_age_ms=st.none() | times)
wishes = st.builds(
    Demand,
    keep_ms=st.none() | times,
    topic_bytes=st.none() | st.integers(10 * MIB, 90 * GIB),
    policy=st.none() | policies,
)


@given(topics, wishes)
def test_followed_advice_is_not_repeated_and_removes_its_dangers(about: object, demand: Demand) -> None:
    """What stays is what topic settings can't mend, a size among them that was wanted too small for the time."""
    first = advise(about, demand, NOW)  # type: ignore[arg-type]
    after = advise(first.topic.changed(first.changes), demand, NOW)
    assert (after.changes, said(after)) == ({}, {danger.code for danger in first.then_dangers})
    # only the operator knows whether a limit was meant for the topic
    assert said(after) & BY_SETTINGS <= {"bytes-per-partition" if demand.topic_bytes is None else "size-before-time"}


@given(topics, wishes)
def test_advice_without_operator_wishes_never_shortens_retention(about: object, demand: Demand) -> None:
    one = advise(about, replace(demand, keep_ms=None, topic_bytes=None), NOW)  # type: ignore[arg-type]
    live, changed = one.topic.settings, one.topic.changed(one.changes).settings
    for before, after in ((live.retention_ms, changed.retention_ms), (live.retention_bytes, changed.retention_bytes)):
        assert after == before or (isinstance(before, int) and isinstance(after, int) and after > before)


@given(topics, wishes)
def test_advised_maximum_grows_only_by_a_longer_retention(about: object, demand: Demand) -> None:
    one = advise(about, demand, NOW)  # type: ignore[arg-type]
    if isinstance(one.at_most, AtMost) and isinstance(one.then_at_most, AtMost):
        longer = max(0, one.then_at_most.retention_ms - one.at_most.retention_ms)
        assert one.then_at_most.settings_ms <= one.at_most.settings_ms + longer


@pytest.mark.parametrize(
    ("minutes", "kept_ms"),
    [(["10080"], 7 * DAY), (["-1"], None), (["-1", "60", "120"], HOUR), (["-1", "-1"], None)],
)
def test_commits_that_never_expire_have_no_retention(minutes: list[str], kept_ms: int | None) -> None:
    """Of several brokers the shortest time counts, and -1 is longer than any."""
    of_brokers = {one: {"offsets.retention.minutes": value} for one, value in enumerate(minutes, start=1)}
    assert settings_of({}, of_brokers).offsets_retention_ms == kept_ms


@pytest.mark.parametrize("key", ["remote.storage.enable", "confluent.tier.enable", "redpanda.remote.write"])
def test_remote_storage_is_seen_under_each_products_setting(key: str) -> None:
    for value in ("true", "false"):
        assert settings_of({"cleanup.policy": "delete", key: value}, {1: {}}).tiered is (value == "true")
    assert isinstance(settings_of({key: "true"}, {1: {}}).tiered, Unknown), "settings that lack cleanup.policy"


def settings_of(values: Mapping[str, str], of_brokers: Mapping[int, Mapping[str, str]]) -> TopicSettings:
    about = TopicMetadata("t", "id", internal=False, partitions={0: PartitionMetadata(1, 0, (1,))})
    metadata = ClusterMetadata("c", frozenset(of_brokers), {"t": about})
    reader: Any = SimpleNamespace(topic_values=lambda *_: {"t": values}, broker_values=lambda *_: of_brokers)
    return read_settings(reader, metadata, ["t"])["t"]
