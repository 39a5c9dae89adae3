"""What a forecast comes to in money: by hand, and what is unknown never counts as nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kretain.render.forecast import money_json, price
from retention_cli.audit.log import Run, one_by_one
from retention_cli.core.model import Maybe, Sample, Unknown
from retention_cli.core.units import parse_time_ms
from retention_cli.forecast.cost import GIB, MONTH_MS, Past, added, by_consumer, by_label, stayed, topic_bill, total_of
from retention_cli.forecast.steady import Seen, Terms, forecast_partitions, forecast_topic
from retention_cli.forecast.value import ENDLESS, NOTHING, Bill, Bills, Span, TopicBill
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.load import parse_policy
from retention_cli.policy.settings import Prices, Settings
from tests.support.audit_logs import AT, BEGUN, batch, result
from tests.support.facts import HOUR, NOW, Log
from tests.support.forecasts import limits

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
    past = Past("id", limits(retention_ms=retention), Settings(consumed_after_ms=DAY, forced_age_ms=9 * DAY))
    [found] = stayed(runs, {"t": past}, digest, THEN + 5 * DAY).values()
    assert (None if isinstance(found, Unknown) else found) == (None if bytes_for is None else 100 * bytes_for)


def test_trim_in_the_future_of_a_clock_set_back_has_saved_nothing() -> None:
    assert stayed(ran(), {"t": Past("id", limits(), Settings())}, "d", THEN - DAY) == {"t": 0}


def test_topic_is_priced_with_what_its_slow_consumer_keeps() -> None:
    """A GiB an hour, of which R1 keeps two hours; its consumer is ten behind, and brokers would keep a hundred."""
    log = Log(0, [NOW] * 20, floor=10)
    settings = Settings(consumed_after_ms=2 * HOUR)
    facts = log.facts(settings)._replace(size_bytes=20 * GIB)
    seen = Seen(facts, [Sample(NOW - 10 * HOUR, 10)], Sample(NOW, 20))
    terms = Terms(0, HOUR, NOW, priced=True)
    brokers = limits(retention_ms=100 * HOUR, segment_ms=0)
    parts = forecast_partitions([seen], brokers, settings, terms)
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
    assert total_of(BILLS) == bill(Span(5, math.inf))
    assert by_label(BILLS) == {"team=x": (2, bill(Span(1, math.inf))), "tier=1": (1, bill(Span(0, math.inf)))}
    assert by_consumer(BILLS) == [("group:h", Span(5, 5)), ("group:g", Span(1, math.inf))]
    found = money_json(BILLS)
    assert found is not None
    assert (found["cost_now_low"], found["cost_now_high"], found["currency"]) == (5, None, "EUR")
    assert found["consumers"][0] == {"consumer": "group:h", "cost_unread_month_low": 5, "cost_unread_month_high": 5}


@given(st.lists(st.one_of(st.just(LOST), st.just(ENDLESS), st.builds(Span.of, st.floats(0, 1e9))), max_size=6))
def test_a_sum_is_exact_or_says_that_it_is_not(amounts: list[Maybe[Span]]) -> None:
    found = added(amounts)
    known = [one for one in amounts if isinstance(one, Span) and one.bounded]
    assert found.low == sum(one.low for one in known)
    assert found.bounded == (len(known) == len(amounts))


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (NOTHING, "0.00"),
        (LOST, "?"),
        (Span(0, math.inf), "?"),
        (ENDLESS, "without end"),
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
