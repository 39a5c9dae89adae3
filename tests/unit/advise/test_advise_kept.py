"""How long a broker keeps data: the guide's table, traffic, size, and what is not known."""

from __future__ import annotations

from typing import Any

import pytest

from retention_cli.advise.advice import advise, segment_for
from retention_cli.advise.facts import (
    AtMost,
    Demand,
    Normal,
    Stamp,
    Window,
    at_most,
    in_normal_traffic,
    measured,
    usual,
)
from retention_cli.advise.format import DAY, HOUR, MINUTE, exact, moment, span
from retention_cli.core.model import Unknown
from tests.support.advised import GIB, NOW, UNREAD, part, topic

KIB, MIB = 1 << 10, 1 << 20


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
    assert isinstance(one.then_at_most, AtMost)
    assert one.then_at_most.settings_ms == broker_at_most
    assert span(one.then_at_most.settings_ms) == said
    assert (one.policy_entry, one.policy_at_most_ms) == ({"retention.ms": by_r4}, by_r4)


@pytest.mark.parametrize(
    ("retention", "least", "segment"),
    [
        (HOUR, MINUTE, HOUR),
        (12 * HOUR, MINUTE, 12 * HOUR),
        (90 * DAY, MINUTE, DAY),
        (30_000, MINUTE, MINUTE),
        (HOUR, DAY, DAY),
    ],
)
def test_advised_segment_time_is_at_most_retention_and_a_day_but_at_least_the_cluster_minimum(
    retention: int, least: int, segment: int
) -> None:
    assert segment_for(retention, least) == segment


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
    found = at_most(topic(partitions, **settings), NOW)
    assert isinstance(found, AtMost)
    assert (found.settings_ms, found.readable_ms, found.on_disk_ms) == times


@pytest.mark.parametrize("settings", [{"retention_ms": None}, {"cleanup_policy": frozenset({"compact"})}])
def test_at_most_is_forever_without_a_time_limit(settings: dict) -> None:
    assert at_most(topic(**settings), NOW) == "forever"


@pytest.mark.parametrize("name", ["cleanup_policy", "retention_ms", "segment_ms"])
def test_unreadable_setting_makes_at_most_unknown_and_is_named(name: str) -> None:
    settings: dict[str, Any] = {name: UNREAD}
    one = advise(topic(**settings), Demand(), NOW)
    assert one.at_most == UNREAD
    assert UNREAD.reasons[0] in one.unknown


class TestNormalTraffic:
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
    def test_age_at_deletion_is_computed_from_the_rate(self, rate: int, settings: dict, expected: object) -> None:
        found = in_normal_traffic(part(bytes_per_hour=rate), topic(**settings))
        if isinstance(expected, Normal):
            assert isinstance(found, Normal)
            assert found.by == expected.by
            assert found.least_ms == pytest.approx(expected.least_ms, rel=1e-4)
            assert found.most_ms == pytest.approx(expected.most_ms, rel=1e-4)
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
        self, partitions: Any, settings: dict, least: int, most: int
    ) -> None:
        found = usual(topic(partitions, **settings))
        assert isinstance(found, Normal)
        assert (found.least_ms, found.most_ms) == pytest.approx((least, most), rel=1e-4)

    def test_traffic_without_sizes_is_unknown_but_idle_is_idle(self) -> None:
        no_size = Unknown.because("size", "not told")
        assert usual(topic([part(0, GIB, size_bytes=no_size)])) == no_size
        assert usual(topic([part(0, size_bytes=no_size)])) == "idle"

    def test_hourly_rate_falls_back_to_the_last_hour_if_the_last_day_is_unknown(self) -> None:
        one = part(0, GIB, last_day=Unknown.because("traffic", "ambiguous"))
        assert one.records_per_hour == GIB // 100


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


def test_durations_and_moments_are_formatted() -> None:
    for ms, said in [
        (0, "0ms"),
        (999, "999ms"),
        (40_000, "40s"),
        (59_600, "1m"),
        (90_000, "1m 30s"),
        (25 * MINUTE, "25m"),
        (HOUR - 400, "1h"),
        (25 * HOUR + 5 * MINUTE, "1d 1h"),
        (DAY - 20_000, "1d"),
        (14 * DAY, "14d"),
    ]:
        assert span(ms) == said
    assert [exact(ms) for ms in (7 * DAY, 36 * HOUR, 90 * MINUTE, 1500, 0)] == ["7d", "36h", "90m", "1500ms", "0ms"]
    assert moment(1_795_255_562_968) == "2026-11-21T10:06:02Z"
    assert moment(1_795_255_562_968_000) == "the year 58,859"
