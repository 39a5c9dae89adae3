"""What is kept in steady state: a simulated log with brokers and trims never leaves what was foretold."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.advise.facts import TopicSettings
from retention_cli.core.model import Maybe, Reason, Sample, Unknown
from retention_cli.forecast.steady import (
    Flow,
    Retained,
    Seen,
    Standing,
    Terms,
    brokers_keep,
    bytes_per_record,
    forecast_partitions,
    policy_keeps,
)
from retention_cli.forecast.value import ENDLESS, Rate, Span
from retention_cli.policy.settings import Settings
from tests.support.facts import HOUR, NOW, Log
from tests.support.forecasts import limits

NEVER_READ = Unknown.because("F4", "no group")


def rate(low: float, high: float | None = None) -> Rate:
    high = low if high is None else high
    return Rate(low, (low + high) / 2, high, HOUR)


A_HUNDRED = Span(100, 100)


def flow(low: float = 1.0, high: float | None = None, each: Maybe[Span] = A_HUNDRED, records: int = 0) -> Flow:
    return Flow(records, rate(low, high), each)


def kept(settings: Settings, brokers: Maybe[Span] = ENDLESS, lag: Maybe[int] = 0, **more: object) -> Maybe[Retained]:
    return policy_keeps(flow(), Standing(settings, lag=lag, **more), brokers, 1000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "of", "low", "high"),
    [
        (limits(retention_ms=10 * HOUR), flow(), 10 * HOUR, 11 * HOUR),
        (limits(retention_ms=10 * HOUR, check_interval_ms=500), flow(2.0), 20 * HOUR, 22 * HOUR + 1000),
        (limits(retention_ms=10 * HOUR, segment_bytes=1000), flow(), 10 * HOUR, 10 * HOUR + 10),
        (limits(retention_bytes=5000, segment_bytes=1000), flow(), 50, 60),
        (limits(retention_bytes=5000, segment_bytes=1000), flow(each=Span(50, 100)), 50, 120),
        (limits(retention_ms=10 * HOUR), flow(0.0), 0, 0),
        (limits(), flow(0.0, records=7), 7, 7),
        (limits(), flow(), math.inf, math.inf),
        (limits(), flow(0.0, 1.0, records=7), 7, math.inf),
        (limits(cleanup_policy=frozenset()), flow(), math.inf, math.inf),
    ],
)
def test_brokers_keep_by_time_and_size_in_whole_segments(
    given: TopicSettings, of: Flow, low: float, high: float
) -> None:
    assert brokers_keep(of, given) == (low, high)


def test_unknown_broker_limit_stays_unknown() -> None:
    why = Unknown.because("topic-settings", "unread")
    assert brokers_keep(flow(), limits(retention_ms=why)) == why
    assert isinstance(brokers_keep(flow(), limits(cleanup_policy=frozenset({"compact"}))), Unknown)
    assert isinstance(brokers_keep(flow(each=NEVER_READ), limits(retention_bytes=5)), Unknown)


@pytest.mark.parametrize(
    ("settings", "lag", "low", "high", "by"),
    [
        (Settings(consumed_after_ms=5000), 0, 5000, 6000, "R1"),
        (Settings(consumed_after_ms=5000), 9000, 9000, 10_000, "R1"),
        (Settings(consumed_after_ms=5000), NEVER_READ, math.inf, math.inf, "brokers"),
        (Settings(consumed_after_ms=5000, forced_age_ms=7000), NEVER_READ, 7000, 8000, "R4"),
        (Settings(consumed_after_ms=5000, forced_age_ms=7000), 9000, 7000, 8000, "R4"),
        (Settings(forced_age_ms=7000, forced_age_guarded=True), 9000, 9000, 10_000, "R4"),
        (Settings(event_time_ms=7000), 9000, 9000, 10_000, "R2"),
        (Settings(event_time_ms=7000, unconsumed="trim"), 9000, 7000, 8000, "R2"),
        (Settings(forced_age_ms=7000, min_wallclock_ms=20_000), 0, 20_000, 21_000, "R4"),
        (Settings(max_bytes=4000), 0, 40, 1040, "R5"),
        (Settings(max_bytes=4000), NEVER_READ, math.inf, math.inf, "brokers"),
        (Settings(min_timestamp_ms=1), 9000, 9000, math.inf, "brokers"),
        (Settings(), 0, math.inf, math.inf, "brokers"),
    ],
)
def test_forecast_keeps_what_the_first_rule_leaves(
    settings: Settings, lag: Maybe[int], low: float, high: float, by: str
) -> None:
    found = kept(settings, lag=lag)
    assert isinstance(found, Retained)
    assert (found.records, found.by) == ((low, high), by)
    assert bool(found.notes) == isinstance(lag, Unknown)


OLD, SLOW, HOLD = Unknown.because("G9", "an old stamp"), Reason("G2", "group:dead reads slowly"), Reason("G7", "hold")

WAITS = (70, Reason("F10", "R1 holds until then"))


@pytest.mark.parametrize(
    ("settings", "brokers", "more", "expected"),
    [
        # never more than brokers keep
        (Settings(consumed_after_ms=5000), Span(100, 200), {}, Retained(Span(100, 200), "brokers")),
        # a consumer that falls behind holds without end
        (
            Settings(consumed_after_ms=5000),
            ENDLESS,
            {"lag": 9000, "falls_behind": SLOW},
            Retained(Span(9000, math.inf), "brokers", (SLOW,)),
        ),
        (Settings(forced_age_ms=1), Span(5, 6), {"untouched": HOLD}, Retained(Span(5, 6), "brokers", (HOLD,))),
        (Settings(forced_age_ms=1), NEVER_READ, {"untouched": HOLD}, None),
        (Settings(forced_age_ms=1), Span(5, 6), {"stopped": {"R4": OLD}}, Retained(Span(5, 6), "brokers", OLD.reasons)),
        # R1 waits at first (F10): what it keeps later is said, with when that is
        (Settings(consumed_after_ms=5000), ENDLESS, {"waits": WAITS}, Retained(Span(5000, 6000), "R1", WAITS[1:], 70)),
        (Settings(forced_age_ms=5000), ENDLESS, {"waits": WAITS}, Retained(Span(5000, 6000), "R4")),
        # where what brokers keep is unknown, a rule is enough
        (Settings(), NEVER_READ, {}, None),
        (Settings(forced_age_ms=7000), NEVER_READ, {}, Retained(Span(7000, 8000), "R4")),
    ],
)
def test_forecast_keeps_what_guards_hold_up_to_the_brokers_limit(
    settings: Settings, brokers: Maybe[Span], more: dict, expected: Retained | None
) -> None:
    found = kept(settings, brokers, **more)
    assert (None if isinstance(found, Unknown) else found) == expected


@pytest.mark.parametrize(("watched_ms", "waits_ms"), [(0, 2 * HOUR), (HOUR, HOUR), (2 * HOUR, 0), (None, 2 * HOUR)])
def test_rule_that_waits_for_groups_to_be_watched_is_forecast_from_then_on(
    watched_ms: int | None, waits_ms: int
) -> None:
    settings = Settings(consumed_after_ms=1, watch_first_ms=2 * HOUR)
    log = Log(0, [NOW - 9 * HOUR] * 10, floor=10)
    facts = log.facts(settings)._replace(watched_since_ms=None if watched_ms is None else NOW - watched_ms)
    seen = Seen(facts, [Sample(NOW - 5 * HOUR, 5)], Sample(NOW, 10))
    [found] = forecast_partitions([seen], limits(), settings, Terms(0, HOUR, NOW))
    assert isinstance(found.kept, Retained)
    assert (found.kept.by, found.kept.waits_ms) == ("R1", waits_ms)
    assert [one.code for one in found.kept.notes] == (["F10"] if waits_ms else [])


def test_dead_bytes_before_the_log_start_widen_the_bytes_per_record() -> None:
    assert bytes_per_record(1000, 0, 10, 100) == (100, 100)
    assert bytes_per_record(1000, 5, 10, 100) == (180, 200)
    assert bytes_per_record(1000, 5, 10, 10_000) == (100, 200)
    assert isinstance(bytes_per_record(1000, 10, 10, 100), Unknown)
    assert isinstance(bytes_per_record(NEVER_READ, 0, 10, 100), Unknown)


def trimmed_to(ages: list[int], rules: tuple[int | None, int | None, int | None], read: int) -> int:
    """Where R4 and R1 trim to, of records of these ages, if the first ones were ``read``; min.wallclock lowers it."""
    age, consumed, wallclock = rules
    bounds = [0 if age is None else sum(one > age for one in ages)]
    bounds.append(0 if consumed is None else min(read, sum(one > consumed for one in ages)))
    return min(max(bounds), len(ages) if wallclock is None else sum(one > wallclock for one in ages))


@given(
    per_tick=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    kept=st.tuples(
        *(st.none() | st.integers(1, 60), st.none() | st.integers(1, 120), st.integers(1, 20), st.integers(1, 40))
    ),
    rules=st.tuples(*(st.none() | st.integers(1, 60) for _ in range(3))),
    lag=st.integers(0, 80),
    every=st.integers(1, 15),
    data=st.data(),
)
def test_simulated_log_stays_within_the_forecast_size(
    per_tick: tuple[int, int],
    kept: tuple[int | None, int | None, int, int],
    rules: tuple[int | None, int | None, int | None],
    lag: int,
    every: int,
    data: st.DataObject,
) -> None:
    """A tick is a ms, a record a byte. Brokers drop whole segments at each tick, the policy trims every so often."""
    low, high = sorted(per_tick)
    (retention, size, roll, segment), (age, consumed, wallclock) = kept, rules
    brokers = limits(
        retention_ms=retention, retention_bytes=size, segment_ms=roll, segment_bytes=segment, check_interval_ms=1
    )
    settings = Settings(consumed_after_ms=consumed, forced_age_ms=age, min_wallclock_ms=wallclock)
    of = Flow(0, rate(low, high), Span(1, 1))
    alone = brokers_keep(of, brokers)
    assert isinstance(alone, Span)
    foretold = policy_keeps(of, Standing(settings, lag=lag), alone, every)
    assert isinstance(foretold, Retained)
    records: list[int] = []  # when each was written
    bases, begun = [0], 0
    start = by_brokers = 0
    for now in range(400):
        count = data.draw(st.integers(low, high)) if now % 20 == 0 else (low if now % 2 else high)
        for _ in range(count):
            if len(records) - bases[-1] >= segment or (len(records) > bases[-1] and now - begun >= roll):
                bases.append(len(records))
            if len(records) == bases[-1]:
                begun = now
            records.append(now)
        end = len(records)
        for base, after in list(zip(bases, [*bases[1:], end], strict=True)):
            if after <= by_brokers or base == after:
                continue
            expired = retention is not None and now - records[after - 1] > retention
            if not expired and not (size is not None and end - after >= size):
                break
            if after == end:  # brokers roll the active segment, too, once its newest record has expired
                bases.append(end)
            by_brokers = after
        start = max(start, by_brokers)
        if now % every == 0:
            start = max(start, trimmed_to([now - one for one in records], rules, max(0, end - lag)))
        if now > 250:  # a segment, a retention and a trim after the beginning
            slack = 2 * high + 1  # a tick's records come at once
            if low > 0 and alone.bounded:
                assert alone.low - slack <= end - by_brokers <= alone.high + slack
            if low > 0 and foretold.records.bounded:
                assert foretold.records.low - slack <= end - start <= foretold.records.high + slack
