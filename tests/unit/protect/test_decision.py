"""Which settings protection raises, how far, and what it leaves alone (docs/rules.md, P1 to P6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.metadata import TopicValue
from retention_cli.core.model import Reason, Unknown
from retention_cli.policy.settings import UntilConsumed
from retention_cli.protect.decision import (
    Decision,
    Live,
    Record,
    Rooms,
    Setting,
    Terms,
    TopicFacts,
    Unread,
    current,
    decide,
)
from retention_cli.protect.reading import live_of
from tests.support.facts import HOUR, known

MINUTE = 60_000
DAY = 24 * HOUR
TERMS = Terms(5 * MINUTE)
MARGIN = 20 * MINUTE
GIB = 1 << 30
UNKNOWN = Unknown.because("x", "unknown")


def facts(age_ms: Any = None, **more: Any) -> TopicFacts:
    """Return a topic of one partition with a retention of a day, whose oldest unread record is so old."""
    parts = {} if age_ms is None else {0: Unread("billing", 1, (0, 2), None, age_ms, 2 * GIB)}
    live: dict[Setting, Live] = {"retention.ms": Live(None, DAY, DAY), "retention.bytes": Live(None, None, None)}
    base = TopicFacts(
        "orders", "id", UntilConsumed(("billing",), 14 * DAY), live, 5 * MINUTE, parts, (), 2 * GIB, 1, {"d": 1}
    )
    return replace(base, **more)


def raised(value: str | None, state: Any = "raised", **more: Any) -> Record:
    """Return the record of a raised value, of a topic that has the default of a day."""
    return replace(Record("orders", "id", "retention.ms", state, None, DAY, value, None, "run", 1, "me"), **more)


def decided(
    one: TopicFacts, record: Any = None, room: Any = 1 << 50, *, ceiling: bool = True, lowers: bool = True
) -> Decision:
    return decide(one, "retention.ms", record, replace(TERMS, lowers=lowers), Rooms({"d": room}, ceiling))


def test_bytes_that_a_lower_value_will_free_make_up_for_an_excess_and_are_no_room() -> None:
    rooms = Rooms({"full": -100, "free": 50, "broken": UNKNOWN}, ceiling=True)
    rooms.use({"full": 1, "free": 1, "broken": 1}, -1000.0)
    assert rooms.left == {"full": 0, "free": 50, "broken": UNKNOWN}
    rooms.use({"full": 2, "free": 1}, 20.0)
    assert rooms.left == {"full": -40, "free": 30, "broken": UNKNOWN}


def at(value: int, default: Any = DAY) -> dict[str, Any]:
    return {"live": {"retention.ms": Live(str(value), value, default), "retention.bytes": Live(None, None, None)}}


@pytest.mark.parametrize(
    ("age", "action", "new"),
    [
        (None, "none", DAY),
        (HOUR, "none", DAY),
        (DAY - MARGIN, "none", DAY),
        (DAY - MARGIN + 1, "raise", DAY + DAY // 20 + 1),
        (2 * DAY, "raise", 2 * DAY + MARGIN + DAY // 20),
        (20 * DAY, "raise", 14 * DAY),
        (UNKNOWN, "raise", 14 * DAY),
    ],
)
def test_value_is_raised_before_the_oldest_unread_record_expires(age: Any, action: str, new: int) -> None:
    """P2 to P4."""
    one = decided(facts(age))
    assert (one.action, one.new) == (action, new)


@pytest.mark.parametrize(
    ("more", "lowers"),
    [({"unknown": (Reason("offsets", "partition 1 can't be read"),)}, True), ({}, False)],
    ids=["something is unknown", "the policy has just changed"],
)
def test_raised_value_is_kept_while_something_is_unknown_or_the_policy_has_just_changed(
    more: dict[str, Any], lowers: bool
) -> None:
    """P3."""
    assert decided(facts(None, **more, **at(3 * DAY)), raised(str(3 * DAY)), lowers=lowers).action == "keep"


@pytest.mark.parametrize(
    ("record", "live", "action"),
    [
        (raised(str(3 * DAY)), 2 * DAY, "release"),
        (raised(str(3 * DAY), "released"), 3 * DAY, "none"),
        (raised(str(3 * DAY), "changing", before=str(2 * DAY)), 2 * DAY, "restore"),
        (raised(str(3 * DAY), "changing", before=str(2 * DAY)), 3 * DAY, "restore"),
        (raised(str(3 * DAY), "changing", before=str(2 * DAY)), 4 * DAY, "release"),
        (raised(None, "unreadable"), 3 * DAY, "none"),
    ],
)
def test_value_that_another_client_set_is_left_alone(record: Any, live: int, action: str) -> None:
    """P5, P6: after a crash either value may be kretain's own."""
    assert decided(facts(None, **at(live)), record).action == action


@pytest.mark.parametrize(
    ("age", "max_bytes", "more", "action", "new"),
    [
        pytest.param(DAY, 3 * GIB, {}, "raise", DAY + DAY // 20 + MARGIN, id="enough"),
        pytest.param(DAY, 2 * GIB + GIB // 100, {}, "raise", pytest.approx(DAY + DAY / 100, abs=2), id="a little"),
        pytest.param(DAY, GIB, {}, "none", DAY, id="less than there is"),
        pytest.param(DAY, 3 * GIB, {"size_bytes": UNKNOWN}, "none", DAY, id="what there is is unknown"),
    ],
)
def test_topic_takes_no_more_than_max_bytes(
    age: int, max_bytes: int, more: dict[str, Any], action: str, new: Any
) -> None:
    """P4: a GiB was written in a day."""
    one = decided(facts(age, rule=UntilConsumed(("billing",), 14 * DAY, max_bytes), **more))
    assert (one.action, one.new) == (action, new)


def test_raised_topic_that_has_more_than_max_bytes_is_restored() -> None:
    """P4."""
    rule = UntilConsumed(("billing",), 14 * DAY, GIB)
    lowered = decided(facts(2 * DAY, rule=rule, **at(3 * DAY)), raised(str(3 * DAY)))
    assert (lowered.action, lowered.new) == ("restore", DAY)
    assert "max.bytes" in lowered.reasons[0].text


@pytest.mark.parametrize(
    ("room", "ceiling", "action"),
    [
        (1 << 50, True, "raise"),
        (0, True, "none"),
        (-GIB, True, "none"),
        (UNKNOWN, True, "none"),
        (UNKNOWN, False, "raise"),
    ],
)
def test_ceiling_of_a_disk_wins(room: Any, ceiling: bool, action: str) -> None:
    """P4: an unknown disk has no room if there is a ceiling."""
    one = decided(facts(DAY), None, room, ceiling=ceiling)
    assert (one.action, any("too close to" in reason.text for reason in one.reasons)) == (action, action == "none")


@pytest.mark.parametrize(
    ("age", "live", "room", "action", "new"),
    [
        pytest.param(2 * DAY, at(3 * DAY), -GIB // 4, "lower", 2.5 * DAY, id="a quarter of two days' GiB"),
        pytest.param(UNKNOWN, at(3 * DAY), -GIB // 4, "lower", 3 * DAY - 3 * DAY / 8, id="unknown age: its mean rate"),
        pytest.param(2 * DAY, at(3 * DAY, UNKNOWN), -GIB, "keep", 3 * DAY, id="its default may be more by now"),
        pytest.param(UNKNOWN, None, GIB // 4, "raise", DAY + DAY / 8, id="unknown age: raised as the disk allows"),
    ],
)
def test_value_is_lowered_and_raised_as_far_as_its_disk_needs(
    age: Any, live: Any, room: int, action: str, new: float
) -> None:
    """P3, P4: with an unknown age, the topic's rate is its size over its retention, not nothing."""
    one = decided(facts(age, **(live or {})), None if live is None else raised(str(3 * DAY)), room)
    assert [one.action, one.new] == [action, pytest.approx(new, abs=2)]


def test_records_of_restored_settings_and_of_other_topics_of_that_name_do_not_count() -> None:
    """P5."""
    records = {
        ("orders", "retention.ms"): raised("1"),
        ("orders", "retention.bytes"): raised(None, "unreadable", topic_id=""),
        ("again", "retention.ms"): raised("1", topic="again"),
        ("done", "retention.ms"): raised("1", "restored", topic="done"),
    }
    found = current(records, {"orders": "id", "again": "other", "done": "id"})  # type: ignore[arg-type]
    assert [*found] == [("orders", "retention.ms"), ("orders", "retention.bytes")]


@pytest.mark.parametrize(
    ("default", "age", "action", "new"),
    [
        (DAY, None, "restore", DAY),
        (DAY, DAY - 2 * MARGIN, "restore", DAY),
        (DAY, DAY - 2 * MARGIN + 1, "keep", 3 * DAY),
        (DAY, UNKNOWN, "raise", 14 * DAY),
        (2 * DAY, DAY, "restore", 2 * DAY),
        (2 * DAY, 2 * DAY, "keep", 3 * DAY),
        (3 * DAY, 2 * DAY, "restore", 3 * DAY),
        (5 * DAY, UNKNOWN, "raise", 14 * DAY),
        (20 * DAY, UNKNOWN, "restore", 20 * DAY),
        (None, UNKNOWN, "restore", None),
        (UNKNOWN, None, "keep", 3 * DAY),
        (UNKNOWN, 3 * DAY, "raise", 3 * DAY + MARGIN + DAY // 20),
    ],
)
def test_raised_value_is_restored_once_the_default_of_now_spares_what_is_unread(
    default: Any, age: Any, action: str, new: int | None
) -> None:
    """P3, P4: no value stays below it, and where no broker names it nothing is lowered."""
    one = decided(facts(age, **at(3 * DAY, default)), raised(str(3 * DAY)))
    assert (one.action, one.new, one.original) == (action, new, DAY if default is UNKNOWN else default)


@pytest.mark.parametrize(
    ("age", "above", "action", "new"),
    [
        pytest.param(HOUR, (7 * DAY,), "none", DAY, id="nothing is due"),
        pytest.param(2 * DAY, (7 * DAY,), "raise", 7 * DAY, id="as long as the other broker keeps it"),
        pytest.param(8 * DAY, (7 * DAY,), "raise", 8 * DAY + MARGIN + DAY // 20, id="longer"),
        pytest.param(2 * DAY, (20 * DAY,), "none", DAY, id="the other keeps more than max"),
        pytest.param(UNKNOWN, (20 * DAY, 7 * DAY), "none", DAY, id="one of the others does"),
        pytest.param(UNKNOWN, (None,), "none", DAY, id="the other deletes nothing"),
    ],
)
def test_raise_takes_nothing_from_a_broker_whose_default_is_larger(
    age: Any, above: tuple[int | None, ...], action: str, new: int
) -> None:
    """P4: every broker uses the topic's own value in place of its default."""
    one = decided(facts(age, live={"retention.ms": Live(None, DAY, UNKNOWN, above)}))
    assert (one.action, one.new) == (action, new)
    assert (action == "none" and age != HOUR) == any("different defaults" in reason.text for reason in one.reasons)


def test_setting_is_read_as_the_topics_own_or_as_the_default_that_kretains_own_topic_shows() -> None:
    def live(own: str, *general: TopicValue, key: Setting = "retention.ms") -> Any:
        values = {"retention.ms": TopicValue(own, own=True), "retention.bytes": TopicValue("-1", own=False)}
        shown: dict[str, frozenset[TopicValue]] = {"retention.bytes": frozenset(), "retention.ms": frozenset()}
        return known(live_of(values, shown | {key: frozenset(general)}))[key]

    def default(value: str | None) -> TopicValue:
        return TopicValue(value, own=False)

    assert live(str(30 * DAY), default(str(DAY))) == Live(str(30 * DAY), 30 * DAY, DAY)
    assert live("-1", default("-1")) == Live("-1", None, None)
    assert live("1", default("-1"), key="retention.bytes") == Live(None, None, None)
    for unknown in ([TopicValue(str(DAY), own=True)], [], [default(None)], [default("1"), default("2")]):
        assert isinstance(live("1", *unknown).default, Unknown)
    differs = live("1", default("-1"), default("7"), key="retention.bytes")
    assert (differs.own, differs.limit, differs.above) == (None, 7, (None,)), "the least of them counts"
    assert isinstance(differs.default, Unknown)


def test_settings_that_are_not_read_are_unknown() -> None:
    late, values = RequestFailedError("late", retriable=True), {"retention.ms": TopicValue("1", own=False)}
    assert isinstance(live_of(values, late), Unknown), "the brokers name no retention.bytes"
    both = known(live_of(values | {"retention.bytes": TopicValue("5", own=True)}, late))
    assert isinstance(both["retention.bytes"].default, Unknown)
    assert isinstance(live_of(late, {}), Unknown)


def test_topics_share_the_room_of_a_disk() -> None:
    """The first takes what a twentieth of a day and the margin keep; too little is left for the second."""
    rooms = Rooms({"d": GIB // 10}, ceiling=True)
    first, second = (decide(facts(DAY), "retention.ms", None, TERMS, rooms) for _ in range(2))
    assert first.new == DAY + DAY // 20 + MARGIN
    assert DAY < known(second.new) < first.new


@pytest.mark.parametrize(("tail", "action"), [(GIB, "none"), (2 * GIB, "none"), (3 * GIB, "raise"), (UNKNOWN, "none")])
def test_retention_bytes_is_raised_before_what_is_unread_outgrows_it(tail: Any, action: str) -> None:
    """With a quarter added, and a third of it by the margin: 20 minutes of an hour's growth."""
    live = {"retention.ms": Live(None, None, None), "retention.bytes": Live(None, 4 * GIB, 4 * GIB)}
    one = facts(live=live, unread={0: Unread("billing", 0, (0, 2), None, HOUR, tail)})
    assert decide(one, "retention.bytes", None, TERMS, Rooms({"d": 1 << 50}, ceiling=True)).action == action


@pytest.mark.parametrize(
    "more",
    [
        {"live": {"retention.ms": Live("-1", None, DAY), "retention.bytes": Live(None, None, None)}},
        {"skip": Reason("protect", "compacted")},
    ],
    ids=["it never expires", "it never deletes"],
)
def test_topic_that_never_expires_or_never_deletes_is_left_alone(more: dict[str, Any]) -> None:
    assert decided(facts(30 * DAY, **more)).action == "none"


@given(
    age=st.integers(0, 60 * DAY) | st.just(UNKNOWN) | st.none(),
    live=st.integers(DAY, 20 * DAY),
    room=st.integers(-(1 << 40), 1 << 40) | st.just(UNKNOWN),
    most=st.none() | st.integers(0, 1 << 42),
    ours=st.booleans(),
)
def test_no_value_goes_below_the_original_or_is_raised_above_max(
    age: Any, live: int, room: Any, most: int | None, ours: bool
) -> None:
    """P4, whatever the facts."""
    rule = UntilConsumed(("billing",), 14 * DAY, most)
    one = decided(facts(age, rule=rule, **at(live)), raised(str(live)) if ours else None, room)
    assert (DAY if ours else live) <= known(one.new) <= max(14 * DAY, live)
    assert ours or one.action in ("none", "raise")
