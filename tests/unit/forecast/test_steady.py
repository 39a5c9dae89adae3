"""What is kept in steady state: a simulated log with brokers and trims never leaves what was foretold."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kretain.render.forecast import money_json, price
from retention_cli.advise.facts import TopicSettings
from retention_cli.audit.log import Run, one_by_one
from retention_cli.core.model import Maybe, PartitionFacts, Reason, Sample, Unknown
from retention_cli.core.units import parse_time_ms
from retention_cli.forecast.cost import GIB, MONTH_MS, added, by_consumer, by_label, stayed, topic_bill, total_of
from retention_cli.forecast.steady import (
    Flow,
    Retained,
    Seen,
    Standing,
    Terms,
    brokers_keep,
    bytes_per_record,
    forecast_partitions,
    forecast_topic,
    policy_keeps,
)
from retention_cli.forecast.value import ENDLESS, NOTHING, Bill, Bills, Rate, Span, TopicBill
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.load import parse_policy
from retention_cli.policy.settings import Prices, Settings
from tests.support.audit_logs import AT, BEGUN, batch, result
from tests.support.facts import HOUR, NOW, Log, known, topic
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
    found = known(kept(settings, lag=lag))
    assert (found.records, found.by, bool(found.notes)) == ((low, high), by, isinstance(lag, Unknown))


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
    facts = Log(0, [NOW - 9 * HOUR] * 10, floor=10).facts(settings)
    facts = facts._replace(watched_since_ms=None if watched_ms is None else NOW - watched_ms)
    seen = Seen(facts, [Sample(NOW - 5 * HOUR, 5)], Sample(NOW, 10))
    [found] = forecast_partitions([seen], limits(), settings, Terms(0, HOUR, NOW))
    kept = known(found.retained)
    assert (kept.by, kept.waits_ms, [one.code for one in kept.notes]) == ("R1", waits_ms, ["F10"] if waits_ms else [])


@pytest.mark.parametrize(
    ("size", "start", "segment", "each"),
    [
        (1000, 0, 100, (100, 100)),
        (1000, 5, 100, (180, 200)),
        (1000, 5, 10_000, (100, 200)),
        (1000, 10, 100, None),
        (NEVER_READ, 0, 100, None),
    ],
)
def test_dead_bytes_before_the_log_start_widen_the_bytes_per_record(
    size: Maybe[int], start: int, segment: int, each: tuple[int, int] | None
) -> None:
    found = bytes_per_record(PartitionFacts(topic("t"), 0, start, 10, 10, NEVER_READ, size_bytes=size), segment)
    assert (None if isinstance(found, Unknown) else found) == each


def trimmed_to(ages: list[int], rules: tuple[int | None, int | None, int | None], read: int) -> int:
    """Where R4 and R1 trim to, of records of these ages, if the first ones were ``read``; min.wallclock lowers it."""
    by_age, consumed, settled = (None if rule is None else sum(one > rule for one in ages) for rule in rules)
    return min(max(by_age or 0, min(read, consumed or 0)), len(ages) if settled is None else settled)


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
    alone = known(brokers_keep(of, brokers))
    foretold = known(policy_keeps(of, Standing(settings, lag=lag), alone, every))
    records: list[int] = []  # when each was written
    bases = [0]
    begun = start = by_brokers = 0
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


# -- what a forecast comes to in money: by hand, and what is unknown never counts as nothing --


DAY = 24 * HOUR
THEN = parse_time_ms(AT)
LOST = Unknown.because("size", "not read")


def ran(rule: str | None = None, outcome: str = "trimmed", **row: Any) -> list[Run]:
    """A run that trimmed 100 bytes of one partition at AT."""
    one = batch(1, 0)
    one["partitions"] = [{**one["partitions"][0], "topic_id": "id", "rule": rule, **row}]
    return [*one_by_one([BEGUN, one, result(1, {0: outcome})])]


@pytest.mark.parametrize(
    ("runs", "retention", "digest", "bytes_for"),
    [
        (ran(), None, "d", 5 * DAY),  # brokers would have kept it
        (ran(), 2 * DAY, "d", 2 * DAY + HOUR),  # by whole segments
        (ran("consumed"), 2 * DAY, "d", DAY + HOUR),  # it was a day old
        (ran("consumed"), 2 * DAY, "other", 2 * DAY + HOUR),  # by another policy: nothing is known of its age
        (ran("consumed"), 2 * DAY, None, 2 * DAY + HOUR),
        (ran("forced-age"), 2 * DAY, "d", 0),
        (ran("size"), 2 * DAY, "d", 2 * DAY + HOUR),
        (ran(), LOST, "d", None),
        (ran(bytes=None), None, "d", None),
        (ran(outcome="unverified"), None, "d", 0),
        (ran(topic_id="former"), None, "d", 0),
        (ran(topic="other"), None, "d", 0),
        ([], LOST, "d", 0),
    ],
)
def test_trimmed_bytes_count_until_brokers_would_have_deleted_them(
    runs: list[Run], retention: Maybe[int] | None, digest: str | None, bytes_for: int | None
) -> None:
    settings = {"t": Settings(consumed_after_ms=DAY, forced_age_ms=9 * DAY)}
    [found] = stayed(
        runs, {"t": "id"}, {"t": limits(retention_ms=retention)}, settings, digest, THEN + 5 * DAY
    ).values()
    assert (None if isinstance(found, Unknown) else found) == (None if bytes_for is None else 100 * bytes_for)


def test_trim_in_the_future_of_a_clock_set_back_has_saved_nothing() -> None:
    assert stayed(ran(), {"t": "id"}, {"t": limits()}, {"t": Settings()}, "d", THEN - DAY) == {"t": 0}


def test_topic_is_priced_with_what_its_slow_consumer_keeps() -> None:
    """A GiB an hour, of which R1 keeps two hours; its consumer is ten behind, and brokers would keep a hundred."""
    log = Log(0, [NOW] * 20, floor=10)
    settings = Settings(consumed_after_ms=2 * HOUR)
    seen = Seen(log.facts(settings)._replace(size_bytes=20 * GIB), [Sample(NOW - 10 * HOUR, 10)], Sample(NOW, 20))
    terms = Terms(0, HOUR, NOW, priced=True)
    parts = forecast_partitions([seen], limits(retention_ms=100 * HOUR, segment_ms=0), settings, terms)
    one = forecast_topic("t", [seen], parts)
    found = topic_bill(one, [(seen, parts[0])], {"team": "a"}, 0.5, GIB * MONTH_MS * 3.0)
    assert found.bill == Bill(Span.of(10.0), Span(0.0, 1.5), Span.of(45.0), Span.of(4.0))
    assert found.by_consumer == {"group:a": Span.of(4.0)}
    assert isinstance(topic_bill(one, [(seen, parts[0])], {}, LOST, LOST).bill.saves, Unknown)


def bill(now: Maybe[Span]) -> Bill:
    return Bill(now, now, now, now)


BILLS = Bills(
    Prices(0.1, currency="EUR"),
    [
        TopicBill("a", {"team": "x"}, bill(Span(1, 2)), {"group:g": Span(1, 2)}),
        TopicBill("b", {"team": "x", "tier": "1"}, bill(LOST), {"group:g": LOST, "group:h": Span(5, 5)}),
        TopicBill("c", {}, bill(Span(4, 4)), {}),
    ],
)


def test_sums_with_an_unknown_part_have_no_upper_bound() -> None:
    assert total_of(one.bill for one in BILLS.topics) == bill(Span(5, math.inf))
    assert by_label(BILLS) == {"team=x": (2, bill(Span(1, math.inf))), "tier=1": (1, bill(Span(0, math.inf)))}
    assert by_consumer(BILLS) == [("group:h", Span(5, 5)), ("group:g", Span(1, math.inf))]
    found = known(money_json(BILLS))
    assert (found["cost_now_low"], found["cost_now_high"], found["currency"]) == (5, None, "EUR")
    assert found["consumers"][0] == {"consumer": "group:h", "cost_unread_month_low": 5, "cost_unread_month_high": 5}


@given(st.lists(st.one_of(st.just(LOST), st.just(ENDLESS), st.builds(Span.of, st.floats(0, 1e9))), max_size=6))
def test_a_sum_is_exact_or_says_that_it_is_not(amounts: list[Maybe[Span]]) -> None:
    found = added(amounts)
    known = [one for one in amounts if isinstance(one, Span) and one.bounded]
    assert (found.low, found.bounded) == (sum(one.low for one in known), len(known) == len(amounts))


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (NOTHING, "0.00"),
        (LOST, "?"),
        (Span(0, math.inf), "?"),
        (ENDLESS, "without limit"),
        (Span(2, math.inf), "≥ 2.00"),
        (Span(0, 1234.5), "≤ 1,234.50"),
        (Span(0.0001, 0.001), "0.01"),
        (Span(1.2, 1.4), "1.20–1.40"),
        (Span(1.2001, 1.2002), "1.20"),
    ],
)
def test_money_has_two_decimals_and_is_never_nothing_by_rounding(span: Maybe[Span], text: str) -> None:
    assert price(span) == text


TOPICS = "topics:\n  - {match: '*', labels: {team: all}}\n  - {match: t, labels: {owner: me}}\n"


def test_price_and_labels_of_the_last_entry_that_has_some_are_read() -> None:
    policy = parse_policy(
        f"version: 1\ncost: {{per.gib.month: 1, replication: excluded, currency: €}}\n{TOPICS}", "p", "d"
    )
    assert policy.prices == Prices(1.0, per_replica=True, currency="€")
    assert (policy.labels_of("t"), policy.labels_of("u")) == ({"owner": "me"}, {"team": "all"})
    assert parse_policy(f"version: 1\n{TOPICS}", "p", "d").prices is None
    assert parse_policy(f"version: 1\ncost: {{per.gib.month: 0}}\n{TOPICS}", "p", "d").prices == Prices(0.0)


@pytest.mark.parametrize(
    ("cost", "labels", "problem"),
    [
        ("{}", "{a: b}", "per.gib.month"),
        ("{per.gib.month: cheap}", "{a: b}", "'cheap' is not a price"),
        ("{per.gib.month: -1}", "{a: b}", "-1 is not a price"),
        ("{per.gib.month: .nan}", "{a: b}", "is not a price"),
        ("{per.gib.month: 1, replication: yes}", "{a: b}", "is not included or excluded"),
        ("{per.gib.month: 1, currency: 'a b'}", "{a: b}", "is not a currency"),
        ("{per.gib.month: 1, curency: a}", "{a: b}", "did you mean currency?"),
        ("{per.gib.month: 1}", "[a]", "is not a mapping"),
        ("{per.gib.month: 1}", "{a: 7}", "7 is not a label"),
        ("{per.gib.month: 1}", '{a: "x\\e[2J"}', "is not a label"),
    ],
)
def test_wrong_price_or_label_is_a_problem_with_its_line(cost: str, labels: str, problem: str) -> None:
    with pytest.raises(PolicyError) as found:
        parse_policy(f"version: 1\ncost: {cost}\ntopics:\n  - {{match: t, labels: {labels}}}\n", "p", "d")
    [line] = found.value.lines
    assert problem in line
    assert line.startswith(("p:2", "p:4"))
