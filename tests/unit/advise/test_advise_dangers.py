"""Each danger where it is, where it isn't, and where that can't be said."""

from __future__ import annotations

from typing import Any

import pytest

from retention_cli.advise import dangers
from retention_cli.advise.dangers import Danger
from retention_cli.advise.facts import Demand
from retention_cli.advise.format import DAY, HOUR, MINUTE
from retention_cli.core.model import Unknown
from retention_cli.policy.settings import Settings
from tests.support.advised import GIB, NOW, UNREAD, part, topic

MIB = 1 << 20
NO_SIZE = Unknown.because("size", "not told")
BUSY, SLOW, IDLE = GIB, MIB, 0


def judged(judge: Any, about: Any, demand: Demand | None = None) -> Danger:
    found = judge(about, demand or Demand(), NOW)
    assert isinstance(found, Danger), found
    return found


def demand(**policy: Any) -> Demand:
    return Demand(policy=Settings(**policy))


class TestConsumedAfterRetention:
    """R1's time above the forced retention (R1)."""

    judge = staticmethod(dangers.consumed_after_retention)

    def test_above_the_brokers_retention(self) -> None:
        found = judged(self.judge, topic(retention_ms=2 * DAY), demand(consumed_after_ms=3 * DAY))
        assert (found.code, found.effect) == ("R1-above-retention", "sooner")
        assert "retention.commitoffset is 3 d, longer than the topic's retention.ms of 2 d" in found.text

    def test_above_the_policys_own_age(self) -> None:
        found = judged(self.judge, topic(), demand(consumed_after_ms=3 * DAY, forced_age_ms=DAY))
        assert "the policy's retention.ms of 1 d" in found.text

    def test_above_what_is_wanted_instead(self) -> None:
        found = judged(self.judge, topic(), Demand(keep_ms=DAY, policy=Settings(consumed_after_ms=3 * DAY)))
        assert "longer than --want of 1 d" in found.text

    @pytest.mark.parametrize(
        ("settings", "policy"),
        [
            ({}, {"consumed_after_ms": 7 * DAY}),
            ({"retention_ms": None}, {"consumed_after_ms": 99 * DAY}),
            ({"cleanup_policy": frozenset({"compact"})}, {"consumed_after_ms": 99 * DAY}),
            ({"retention_ms": HOUR}, {"forced_age_ms": 3 * DAY}),
        ],
    )
    def test_silent_where_it_fits_or_is_not_asked_for(self, settings: dict, policy: dict) -> None:
        assert self.judge(topic(**settings), demand(**policy), NOW) is None
        assert self.judge(topic(retention_ms=1), Demand(), NOW) is None

    def test_unknown_where_retention_is(self) -> None:
        assert self.judge(topic(retention_ms=UNREAD), demand(consumed_after_ms=1), NOW) == UNREAD


class TestBrokerBeforePolicy:
    judge = staticmethod(dangers.broker_before_policy)

    def test_a_shorter_retention_deletes_before_r4_would(self) -> None:
        found = judged(self.judge, topic(retention_ms=DAY), demand(forced_age_ms=3 * DAY))
        assert (found.code, found.effect) == ("broker-before-policy", "sooner")
        assert (
            "the broker's retention.ms (1d) lets records go before the policy's retention.ms (3d) would" in found.text
        )
        assert "before --want (2d)" in judged(self.judge, topic(retention_ms=DAY), Demand(keep_ms=2 * DAY)).text

    @pytest.mark.parametrize("retention", [3 * DAY, 4 * DAY, None])
    def test_silent_where_the_broker_waits_as_long(self, retention: int | None) -> None:
        assert self.judge(topic(retention_ms=retention), demand(forced_age_ms=3 * DAY), NOW) is None

    def test_silent_without_a_policy_that_says_so_and_unknown_where_retention_is(self) -> None:
        assert self.judge(topic(retention_ms=1), demand(consumed_after_ms=DAY), NOW) is None
        assert self.judge(topic(retention_ms=UNREAD), demand(forced_age_ms=DAY), NOW) == UNREAD


class TestSizeBeforeTime:
    judge = staticmethod(dangers.size_before_time)

    def test_at_todays_rate_bytes_run_out_first_in_the_busy_partitions(self) -> None:
        about = topic([part(0, BUSY), part(1, SLOW), part(2, IDLE)], retention_bytes=5 * GIB)
        found = judged(self.judge, about)
        assert (found.code, found.effect, found.partitions) == ("size-before-time", "sooner", (0,))
        assert "holds 5h of data in the busiest partition; 7d are wanted" in found.text

    def test_r1s_time_counts_too(self) -> None:
        about = topic([part(0, BUSY)], retention_ms=None, retention_bytes=5 * GIB)
        assert self.judge(about, Demand(), NOW) is None
        assert "6h are wanted" in judged(self.judge, about, demand(consumed_after_ms=6 * HOUR)).text
        assert self.judge(about, demand(consumed_after_ms=4 * HOUR), NOW) is None
        shorter = topic([part(0, BUSY)], retention_ms=HOUR, retention_bytes=5 * GIB)
        assert self.judge(shorter, Demand(), NOW) is None
        assert "6h are wanted" in judged(self.judge, shorter, demand(consumed_after_ms=6 * HOUR)).text

    @pytest.mark.parametrize(
        ("rate", "settings"), [(BUSY, {}), (SLOW, {"retention_bytes": 5 * GIB}), (IDLE, {"retention_bytes": 0})]
    )
    def test_silent_without_a_limit_or_where_time_comes_first(self, rate: int, settings: dict) -> None:
        assert self.judge(topic([part(0, rate)], **settings), Demand(), NOW) is None

    def test_unknown_where_a_rate_is_and_no_other_partition_shows_it(self) -> None:
        blind = part(1, BUSY, size_bytes=NO_SIZE)
        assert self.judge(topic([part(0, SLOW), blind], retention_bytes=5 * GIB), Demand(), NOW) == NO_SIZE
        assert judged(self.judge, topic([part(0, BUSY), blind], retention_bytes=5 * GIB)).partitions == (0,)


class TestSegmentAboveRetention:
    judge = staticmethod(dangers.segment_above_retention)

    @pytest.mark.parametrize("rate", [SLOW, IDLE])
    def test_with_low_traffic_the_first_record_waits_for_the_whole_segment(self, rate: int) -> None:
        found = judged(self.judge, topic([part(0, BUSY), part(1, rate)], retention_ms=2 * HOUR, segment_ms=7 * DAY))
        assert (found.code, found.effect, found.partitions) == ("segment-above-retention", "longer", (1,))
        assert "segment.ms (7d) is longer than retention.ms (2h)" in found.text
        assert "records stay up to 7d 2h" in found.text

    @pytest.mark.parametrize(
        "settings",
        [
            {"retention_ms": DAY, "segment_ms": DAY},
            {"retention_ms": None, "segment_ms": 99 * DAY},
            {"cleanup_policy": frozenset({"compact"}), "retention_ms": HOUR},
        ],
    )
    def test_silent_where_the_segment_is_not_longer(self, settings: dict) -> None:
        assert self.judge(topic(**settings), Demand(), NOW) is None

    def test_silent_where_traffic_fills_segments_sooner(self) -> None:
        assert self.judge(topic([part(0, BUSY)], retention_ms=2 * HOUR, segment_ms=7 * DAY), Demand(), NOW) is None

    def test_unknown_where_the_traffic_or_a_setting_is(self) -> None:
        blind = [part(0, BUSY, size_bytes=NO_SIZE)]
        assert self.judge(topic(blind, retention_ms=HOUR, segment_ms=DAY), Demand(), NOW) == NO_SIZE
        assert self.judge(topic(segment_ms=UNREAD), Demand(), NOW) == UNREAD


class TestBytesPerPartition:
    judge = staticmethod(dangers.bytes_per_partition)

    def test_a_topic_that_already_holds_more_than_the_number_says(self) -> None:
        found = judged(self.judge, topic([part(n, SLOW * 10) for n in range(6)], retention_bytes=GIB))
        assert (found.code, found.effect) == ("bytes-per-partition", "larger")
        assert (
            "retention.bytes (1.00 GiB) is for each partition: 6 of them may hold 6.00 GiB, and hold 1.41 GiB"
            in found.text
        )
        assert found.remedy == "if it was meant for the whole topic, ask again with --want-bytes 1073741824B"

    @pytest.mark.parametrize(
        ("count", "rate", "settings"),
        [
            (1, BUSY, {"retention_bytes": GIB}),
            (6, MIB, {"retention_bytes": GIB}),
            (6, BUSY, {}),
            (6, BUSY, {"retention_bytes": GIB, "cleanup_policy": frozenset({"compact"})}),
        ],
    )
    def test_silent_with_one_partition_with_little_data_or_without_a_limit(
        self, count: int, rate: int, settings: dict
    ) -> None:
        assert self.judge(topic([part(n, rate) for n in range(count)], **settings), Demand(), NOW) is None

    def test_the_operators_word_is_held_against_limit_and_segment_of_all_partitions(self) -> None:
        about = topic([part(n) for n in range(4)], retention_bytes=2 * GIB, segment_bytes=GIB)
        assert self.judge(about, Demand(topic_bytes=12 * GIB), NOW) is None
        found = judged(self.judge, about, Demand(topic_bytes=12 * GIB - 1))
        assert "is for each partition, with a segment (1.00 GiB) on top: 4 may take 12.0 GiB" in found.text
        assert "sets no limit" in judged(self.judge, topic(), Demand(topic_bytes=GIB)).text
        assert "need 8.00 MiB at least" in (judged(self.judge, about, Demand(topic_bytes=7 * MIB)).remedy or "")

    def test_unknown_where_a_size_is_and_the_others_do_not_show_it(self) -> None:
        about = topic([part(0, SLOW), part(1, size_bytes=NO_SIZE)], retention_bytes=GIB)
        assert self.judge(about, Demand(), NOW) == NO_SIZE


class TestOffsetsExpireFirst:
    judge = staticmethod(dangers.offsets_expire_first)

    def test_data_that_outlives_the_commits_of_a_group_that_stopped(self) -> None:
        found = judged(self.judge, topic(retention_ms=30 * DAY))
        assert (found.code, found.effect) == ("offsets-expire-first", "sooner")
        assert "forgotten after 7d (the brokers' offsets.retention.minutes) and data is kept for 30d" in found.text
        assert "without end" in judged(self.judge, topic(retention_ms=None)).text

    @pytest.mark.parametrize("settings", [{}, {"retention_ms": None, "cleanup_policy": frozenset({"compact"})}])
    def test_silent_where_commits_live_as_long_or_nothing_is_deleted(self, settings: dict) -> None:
        assert self.judge(topic(**settings), Demand(), NOW) is None

    def test_unknown_where_the_brokers_do_not_say(self) -> None:
        assert self.judge(topic(offsets_retention_ms=UNREAD), Demand(), NOW) == UNREAD


class TestFutureTimestamps:
    judge = staticmethod(dangers.future_timestamps)

    def test_the_worst_record_is_named_with_what_it_keeps(self) -> None:
        about = topic([part(0, 2400, newest_ms=NOW + DAY), part(1, newest_ms=NOW), part(2, newest_ms=NOW + 2 * HOUR)])
        found = judged(self.judge, about)
        assert (found.code, found.effect, found.partitions) == ("future-timestamps", "blocked", (0, 2))
        assert "partition 0, offset 1,575 is stamped 2027-01-16T08:00:00Z, 1d ahead" in found.text
        assert "the broker keeps it and all behind it until 2027-01-23T08:00:00Z" in found.text
        assert "offset 1576" in (found.remedy or "")

    def test_microseconds_are_no_date_but_a_year(self) -> None:
        found = judged(self.judge, topic([part(newest_ms=NOW * 1000)]))
        assert "the year 59,009" in found.text
        assert "microseconds for milliseconds?" in found.text

    def test_a_trimmed_record_still_counts_while_its_segment_is_there(self) -> None:
        found = judged(self.judge, topic([part(newest_ms=NOW + DAY, log_start=99_999, high_watermark=99_999)]))
        assert "(trimmed, its segment is still there)" in found.text
        assert "segment.ms or segment.bytes close it" in (found.remedy or "")

    def test_without_a_time_limit_it_still_stops_rules_and_a_brokers_clock_is_named(self) -> None:
        found = judged(
            self.judge, topic([part(newest_ms=NOW + DAY)], retention_ms=None, timestamp_type="LogAppendTime")
        )
        assert "ahead by the broker's own clock: rules that go by time stop there" in found.text

    def test_silent_within_a_minute_and_on_a_topic_that_is_only_compacted(self) -> None:
        assert self.judge(topic([part(newest_ms=NOW + MINUTE), part(1)]), Demand(), NOW) is None
        about = topic([part(newest_ms=NOW + DAY)], cleanup_policy=frozenset({"compact"}))
        assert self.judge(about, Demand(), NOW) is None

    def test_unknown_where_the_newest_record_is(self) -> None:
        assert self.judge(topic([part(0, newest=UNREAD), part(1)]), Demand(), NOW) == UNREAD


def test_all_dangers_of_a_topic_are_said_and_what_could_not_be_judged_beside_them() -> None:
    about = topic([part(0, SLOW, newest_ms=NOW + DAY)], retention_ms=HOUR, offsets_retention_ms=UNREAD)
    found, unknown = dangers.judge(about, demand(consumed_after_ms=DAY, forced_age_ms=DAY), NOW)
    assert [one.code for one in found] == [
        "R1-above-retention",
        "broker-before-policy",
        "future-timestamps",
        "segment-above-retention",
    ]
    assert unknown == list(UNREAD.reasons)
