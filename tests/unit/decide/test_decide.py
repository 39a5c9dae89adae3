"""The heart: triggers, each under its guards, come to one decision (docs/rules.md, Deciding)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from retention_cli.core.consumers import NO_GROUP
from retention_cli.core.model import (
    ANCIENT_MS,
    EventMax,
    EventPrefix,
    Floor,
    LookUp,
    PartitionFacts,
    Reason,
    Sample,
    Tail,
    TopicFacts,
    Unknown,
    Usage,
    Watermark,
)
from retention_cli.decide.decision import decide, unread_below, weigh
from retention_cli.decide.guards.limits import Amount, over_limits, total
from retention_cli.decide.guards.our_clock import compare_clocks
from retention_cli.decide.triggers import TRIGGERS, NotEnabled
from retention_cli.memory.event_scan import EventScan
from retention_cli.policy.settings import EventSource, Limits, Settings
from tests.support.facts import HOUR, NOTE, NOW, UNKNOWN, Log, logs, settings, topic, wanted_lookups

R1 = Settings(consumed_after_ms=24 * HOUR)
R4 = Settings(forced_age_ms=24 * HOUR)
OLD, NEW = NOW - 48 * HOUR, NOW - HOUR


def expected(log: Log, chosen: Settings) -> int | None:
    """Brute force: the largest offset that some trigger may trim to, by the rules' own words; None for none."""
    bounds = range(log.start + 1, min(log.end, log.end if log.stable is None else log.stable) + 1)
    return max((bound for bound in bounds if any(allowed(log, chosen, bound))), default=None)


def allowed(log: Log, chosen: Settings, bound: int) -> list[bool]:
    """Whether R1, R2, R3 and R4, each under its guards, allow a bound."""
    going = log.stamps[: bound - log.start]
    read = not isinstance(log.floor, Unknown) and bound <= log.floor
    unguarded = chosen.unconsumed == "trim"
    conflict = (
        chosen.consumed_after_ms is not None
        and chosen.forced_age_ms is not None
        and chosen.consumed_after_ms > chosen.forced_age_ms
    )

    def all_before(time_ms: int) -> bool:
        return all(stamp < time_ms for stamp in going)

    # G3: every record that goes was surely written W ago: some sample of that age had H beyond it
    wait = chosen.min_wallclock_ms
    waited = wait is None or any(one.wall_ms <= NOW - wait and one.high_watermark >= bound for one in log.samples)
    newest, minimum = log.newest, chosen.min_timestamp_ms
    by_r1 = (
        chosen.consumed_after_ms is not None and not conflict and read and all_before(NOW - chosen.consumed_after_ms)
    )
    by_r2 = (
        chosen.event_time_ms is not None
        and newest is not None
        and newest <= NOW + chosen.max_ahead_ms  # G4
        and all_before(newest - chosen.event_time_ms)
        and (read or unguarded)
    )
    by_r3 = (
        minimum is not None and (minimum <= NOW or chosen.allow_empty) and all_before(minimum) and (read or unguarded)
    )
    by_r4 = (
        chosen.forced_age_ms is not None
        and all_before(NOW - chosen.forced_age_ms)
        and (read or unguarded or not chosen.forced_age_guarded)
    )
    return [waited and one for one in (by_r1, by_r2, by_r3, by_r4)]


@given(logs(), settings)
def test_decision_equals_brute_force_over_the_rules(log: Log, chosen: Settings) -> None:
    decision = decide(log.facts(chosen), chosen, NOW)
    assert decision.trim_to == expected(log, chosen)
    assert (decision.action == "trim") == (decision.trim_to is not None)
    assert decision.records == (0 if decision.trim_to is None else decision.trim_to - log.start)
    assert decision.rule != "consumed" or decision.unconsumed == 0
    needs_floor = chosen.consumed_after_ms is not None and log.stamps
    assert not (decision.action == "keep" and needs_floor and isinstance(log.floor, Unknown))
    assert decision.reasons or decision.action != "hold"
    assert not any("not looked up" in reason.text for reason in decision.reasons), "wanted look-ups suffice"


@pytest.mark.parametrize(
    ("log", "chosen", "action", "trim_to", "rule", "limited_by"),
    [
        # G1: an open transaction's records are not yet anyone's
        (Log(0, [OLD] * 5, 3, 5), R1, "trim", 3, "consumed", "G1"),
        (Log(0, [OLD] * 5, 0, 5), R1, "keep", None, None, None),
        (Log(0, [OLD] * 5, 2, UNKNOWN), R4, "trim", 2, "forced-age", "G1"),
        # G2 guards a one-off R4, and the file's not
        (Log(0, [OLD] * 5, None, 2), replace(R4, forced_age_guarded=True), "trim", 2, "forced-age", "G2"),
        (Log(0, [OLD] * 5, None, 0), replace(R4, forced_age_guarded=True), "keep", None, None, None),
        (Log(0, [OLD] * 5, None, UNKNOWN), replace(R4, forced_age_guarded=True), "hold", None, None, None),
        (
            Log(0, [OLD] * 5, None, 2),
            replace(R4, forced_age_guarded=True, unconsumed="trim"),
            "trim",
            5,
            "forced-age",
            None,
        ),
        (Log(0, [OLD] * 5, None, 2), R4, "trim", 5, "forced-age", None),
        # two guards: the lower one is named
        (Log(0, [OLD] * 5, 3, 2), replace(R4, forced_age_guarded=True), "trim", 2, "forced-age", "G2"),
        (Log(0, [OLD] * 5, 2, 3), replace(R4, forced_age_guarded=True), "trim", 2, "forced-age", "G1"),
        (Log(0, [OLD] * 5, 2, 2), replace(R4, forced_age_guarded=True), "trim", 2, "forced-age", "G1"),
        # a commit below S counts as it is, and asks for nothing
        (Log(10, [OLD] * 5, None, 4), R1, "keep", None, None, None),
        # a bound at S asks for nothing, and no guard is asked about it
        (Log(0, [NEW] * 5, None, UNKNOWN), R4, "keep", None, None, None),
        (Log(0, [], None, UNKNOWN), R1, "keep", None, None, None),
    ],
)
def test_guard_that_lowers_a_bound_is_named(
    log: Log, chosen: Settings, action: str, trim_to: int | None, rule: str | None, limited_by: str | None
) -> None:
    decision = decide(log.facts(chosen), chosen, NOW)
    assert (decision.action, decision.trim_to, decision.rule, decision.limited_by) == (
        action,
        trim_to,
        rule,
        limited_by,
    )


@pytest.mark.parametrize(
    ("since", "log", "expected"),
    [
        (None, Log(0, [OLD] * 5, None, 3), ("hold", None)),
        (NOW, Log(0, [OLD] * 5, None, 3), ("hold", None)),
        (NOW - 24 * HOUR + 1, Log(0, [OLD] * 5, None, 3), ("hold", None)),
        (NOW - 24 * HOUR, Log(0, [OLD] * 5, None, 3), ("trim", 3)),
        (None, Log(0, [OLD] * 5, None, 0), ("keep", None)),
        (None, Log(0, [NEW] * 5, None, 3), ("keep", None)),
    ],
)
def test_r1_waits_until_groups_have_been_watched(since: int | None, log: Log, expected: tuple[str, int | None]) -> None:
    """F10. Where there is nothing to trim, nothing waits."""
    waiting = replace(R1, watch_first_ms=24 * HOUR)
    facts = log.facts(waiting)._replace(watched_since_ms=since)
    decision = decide(facts, waiting, NOW)
    assert (decision.action, decision.trim_to) == expected
    assert [reason.code for reason in decision.reasons] == (["F10"] if expected[0] == "hold" else [])
    assert decide(facts, R1, NOW).action == ("keep" if expected[0] == "keep" else "trim")


def test_topic_without_groups_gets_the_way_out_only_where_it_helps() -> None:
    log = Log(0, [OLD] * 5, None, Unknown((NO_GROUP,)))
    guarded = replace(R4, forced_age_guarded=True)
    [reason] = decide(log.facts(guarded), guarded, NOW).reasons
    assert (reason.code, reason.text) == (
        "F4",
        f"{NO_GROUP.text}; if no group reads it, set unconsumed: trim, or --unconsumed trim for one run",
    )
    assert decide(log.facts(R1), R1, NOW).reasons == (NO_GROUP,)
    other = Unknown.because("F3", "a group could not be read")
    assert decide(replace(log, floor=other).facts(guarded), guarded, NOW).reasons == other.reasons


def pressed(about: TopicFacts | None = None) -> PartitionFacts:
    """Records of 18 hours on a full disk, of which a group has read three: R7 halves R1's 24 hours."""
    log = Log(0, [NOW - 18 * HOUR] * 5, None, 3)
    full = Usage("1:/d", 95.0, Watermark(90.0, 0.5, 0))
    return log.facts(R1, about, lookups={NOW - 12 * HOUR: LookUp(5)})._replace(usage=full)


def test_keep_decision_names_the_guard_that_prevented_a_trim() -> None:
    chosen = replace(R4, forced_age_guarded=True)
    decision = decide(Log(0, [OLD] * 5, None, 0).facts(chosen), chosen, NOW)
    assert decision.reasons == (Reason("G2", "forced-age would trim to 5, but group:a has read up to 0"),)


@pytest.mark.parametrize(
    ("about", "chosen", "action"),
    [
        (topic("__consumer_offsets", internal=True), replace(R1, named_in_full=True), "skip"),
        (topic("_schemas"), R1, "skip"),
        (topic("_schemas"), replace(R1, named_in_full=True), "trim"),
        (topic("app-store-changelog"), R1, "skip"),
        (topic("app-store-changelog"), replace(R1, named_in_full=True), "trim"),
        (topic("app-key-repartition"), R1, "skip"),
        (topic("changelog-of-orders"), R1, "trim"),
        (topic("app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic"), R1, "skip"),
        (topic("app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic"), R1, "skip"),
        (topic("app-orders-join-subscription-registration-topic"), R1, "skip"),
        (topic("app-orders-join-subscription-response-topic"), R1, "skip"),
        (
            topic("app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic"),
            replace(R1, named_in_full=True),
            "trim",
        ),
        (topic(cleanup_policy=frozenset({"compact"})), replace(R1, trim_compacted=True), "skip"),
        (topic(cleanup_policy=frozenset({"compact", "delete"})), R1, "skip"),
        (topic(cleanup_policy=frozenset({"compact", "delete"})), replace(R1, trim_compacted=True), "trim"),
        (topic(cleanup_policy=Unknown.because("G5", "?")), R1, "hold"),
        (topic(topic_id=Unknown.because("topic-id", "?")), R1, "hold"),
        (topic(), replace(R1, hold="case 4711"), "hold"),
    ],
)
def test_internal_frozen_and_held_topics_are_not_trimmed(about: object, chosen: Settings, action: str) -> None:
    assert decide(Log(0, [OLD] * 5, None, 5).facts(chosen, about), chosen, NOW).action == action  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trim_to", "start", "floor", "unread"),
    [(10, 0, 10, 0), (10, 0, 4, 6), (10, 0, 0, 10), (10, 0, None, 10), (10, 6, 4, 4), (10, 6, 8, 2), (10, 0, 99, 0)],
)
def test_unread_records_start_at_the_floor(trim_to: int, start: int, floor: int | None, unread: int) -> None:
    assert unread_below(trim_to, start, floor) == unread


def test_trimmed_bytes_are_the_records_share_of_the_replica() -> None:
    facts = Log(0, [OLD] * 4, None, 3).facts(R1)
    assert decide(facts, R1, NOW).size_bytes == 750
    assert decide(facts._replace(size_bytes=Unknown.because("size", "?")), R1, NOW).size_bytes is None


def test_explain_shows_the_bound_and_limit_of_each_active_rule() -> None:
    both = replace(R1, forced_age_ms=36 * HOUR)
    shown = weigh(Log(0, [OLD] * 5, 4, 3).facts(both), both, NOW)
    assert [(one.code, one.bound, one.allowed, one.limited_by) for one in shown] == [
        ("R1", 3, 3, None),
        ("R4", 5, 4, "G1"),
    ]


usages = st.one_of(
    st.none(), st.just(UNKNOWN), st.builds(Usage, st.just("1"), st.just(90.0), st.just(Watermark(80.0, 0.5, HOUR)))
)
sizes = st.none() | st.integers(1, 2000)


@given(logs(), settings, usages, sizes, sizes)
def test_inactive_rule_asks_for_nothing(
    log: Log, chosen: Settings, usage: Usage | Unknown | None, most: int | None, most_of_topic: int | None
) -> None:
    """``on`` is a short cut: a rule that it called off and that would have asked would be lost in silence."""
    chosen = replace(chosen, max_bytes=most, max_topic_bytes=most_of_topic)
    facts = log.facts(chosen)._replace(usage=usage)
    for trigger in TRIGGERS:
        if not trigger.on(facts, chosen):
            assert isinstance(trigger.ask(facts, chosen, NOW), NotEnabled), trigger.code
            assert not trigger.cutoffs(facts, chosen, NOW), trigger.code
            assert not trigger.data_cutoffs(facts, chosen, NOW), trigger.code


BLIND = Unknown.because("test", "time-out")
OF_TOPIC = ("topic_id", "cleanup_policy", "timestamp_type")
OF_PARTITION = ("floor", "last_stable_offset", "high_watermark", "log_start", "newest", "samples", "clock")


@given(logs(), settings, st.sampled_from([*OF_TOPIC, *OF_PARTITION, "lookups"]))
def test_unknown_fact_never_trims_more_than_the_known_one(log: Log, chosen: Settings, lost: str) -> None:
    facts = log.facts(chosen)
    unknown: dict[str, Any] = {lost: BLIND}
    if lost == "lookups":
        unknown = {name: dict.fromkeys(getattr(facts, name), BLIND) for name in ("lookups", "data_lookups")}
    elif lost in OF_TOPIC:
        unknown = {"topic": replace(facts.topic, **unknown)}
    decision = decide(facts._replace(**unknown), chosen, NOW)
    assert (decision.trim_to or 0) <= (decide(facts, chosen, NOW).trim_to or 0)
    if lost in ("topic_id", "high_watermark", "log_start", "cleanup_policy"):
        assert decision.action in ("hold", "keep")


@pytest.mark.parametrize(
    "lost",
    [
        {"log_start": BLIND},
        {"high_watermark": BLIND},
        {"last_stable_offset": BLIND},
        {"floor": BLIND},
        {"topic": topic(topic_id=BLIND)},
        {"topic": topic(cleanup_policy=BLIND)},
        {"topic": topic(retention_ms=BLIND)},
        {"lookups": {NOW - 24 * HOUR: BLIND, ANCIENT_MS: LookUp(0)}},
        {"lookups": {NOW - 24 * HOUR: LookUp(5), ANCIENT_MS: BLIND}},
    ],
    ids=str,
)
def test_any_unknown_fact_holds_and_is_reported(lost: dict[str, Any]) -> None:
    """One fact missing of those that R1 rests on: never a trim, never a keep, never without a word."""
    facts = Log(0, [OLD] * 5, None, 5).facts(R1)
    assert decide(facts, R1, NOW).trim_to == 5
    decision = decide(facts._replace(**lost), R1, NOW)
    assert (decision.action, decision.trim_to, decision.reasons) == ("hold", None, BLIND.reasons)


NONE = Amount()


@pytest.mark.parametrize(
    ("run", "past", "managed", "limits", "broken"),
    [
        (Amount(100, 10), NONE, 1000, Limits(), 0),
        (Amount(100, 10), NONE, 1000, Limits(max_records=100), 0),
        (Amount(101, 10), NONE, 1000, Limits(max_records=100), 1),
        (Amount(60, 10), Amount(41, 0), 1000, Limits(max_records=100), 1),
        (Amount(60, 10), Amount(40, 0), 1000, Limits(max_records=100), 0),
        (Amount(1, 10), NONE, 1000, Limits(max_bytes=10), 0),
        (Amount(1, 11), NONE, 1000, Limits(max_bytes=10), 1),
        (Amount(1, 5), Amount(1, 6), 1000, Limits(max_bytes=10), 1),
        (Amount(1, None), NONE, 1000, Limits(max_bytes=10), 1),
        (Amount(1, 1), Amount(1, None), 1000, Limits(max_bytes=10), 1),
        (Amount(1, None), NONE, 1000, Limits(max_records=10), 0),
        (Amount(500, 1), NONE, 1000, Limits(max_percent=50), 0),
        (Amount(501, 1), NONE, 1000, Limits(max_percent=50), 1),
        (Amount(1, 1), NONE, 0, Limits(max_percent=50), 1),
        (Amount(1, 1), NONE, 10, Limits(max_percent=0), 1),
        (Amount(0, 0), Amount(500, 0), 10, Limits(max_records=1, max_percent=0), 0),  # nothing to trim breaks nothing
        (Amount(999, 999), NONE, 1000, Limits(max_records=1, max_bytes=1, max_percent=1), 3),
    ],
)
def test_run_above_a_limit_is_refused_and_one_at_the_limit_passes(
    run: Amount, past: Amount, managed: int, limits: Limits, broken: int
) -> None:
    assert [reason.code for reason in over_limits(run, past, managed, limits)] == ["G6"] * broken


def test_unknown_size_makes_the_sum_unknown() -> None:
    assert total([Amount(1, 2), Amount(3, None), Amount(4, 5)]) == Amount(8, None)


# -- KIP-870's own test plan: every combination of its settings, on one log, and what must come of each --
#
# The log: four records with event times 72 h and 48 h before a moment, 2 h before it and 10 h after it. All are
# written at that moment; kretain looked then, when the first two were there, and 15 h later. It decides 30 h later.
# Forced age is 24 h, event time 36 h, the wall clock guard 20 h; a group has read one record.


EVENT_HOURS = (-72, -48, -2, 10)
LOOKED_AGAIN_MS, DECIDED_MS = 15 * HOUR, 30 * HOUR
AGE_MS, EVENT_MS, WALL_MS = 24 * HOUR, 36 * HOUR, 20 * HOUR
COMMITTED = 1


def worked_out(
    age: bool, event: bool, wall: bool, log_append: bool, watched: bool, unconsumed: str
) -> tuple[str, int | None]:
    """Return action and trim_to, worked out by hand.

    Forced age reaches the first record that is younger than 24 h by the broker's stamp: the fourth (its event
    time is 20 h ago), or the end, where all are stamped 30 h ago. Event time reaches the third, but what the
    group has not read only by the operator's word. The wall clock guard lets the two go that were there when
    kretain first looked; where it never looked it knows nothing; and append times need no memory.
    """
    by_age, by_event = 4 if log_append else 3, 2 if unconsumed == "trim" else COMMITTED
    bounds = [bound for bound, on in ((by_age, age), (by_event, event)) if on]
    if not bounds:
        return "keep", None
    if not wall or log_append:
        return "trim", max(bounds)
    return ("trim", min(max(bounds), 2)) if watched else ("hold", None)


THEN = 1_800_000_000_000
DECIDED = THEN + DECIDED_MS


@pytest.mark.parametrize("unconsumed", ["hold", "trim"])
@pytest.mark.parametrize("watched", [False, True], ids=["new", "watched"])
@pytest.mark.parametrize("log_append", [False, True], ids=["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("wall", [False, True], ids=["no wall", "wall"])
@pytest.mark.parametrize("event", [False, True], ids=["no event", "event"])
@pytest.mark.parametrize("age", [False, True], ids=["no age", "age"])
def test_settings_combination_matches_the_rules(
    age: bool, event: bool, wall: bool, log_append: bool, watched: bool, unconsumed: str
) -> None:
    """``watched``: the topic is older than the ledger's first sample of it."""
    events = [THEN + hours * HOUR for hours in EVENT_HOURS]
    stamps = [THEN] * 4 if log_append else events
    settings = Settings(
        forced_age_ms=AGE_MS if age else None,
        event_time_ms=EVENT_MS if event else None,
        event_source=EventSource("header", "et") if log_append else None,
        min_wallclock_ms=WALL_MS if wall else None,
        unconsumed="trim" if unconsumed == "trim" else "hold",
    )

    def first(times: list[int], cutoff: int) -> int:
        return next((n for n, at in enumerate(times) if at >= cutoff), 4)

    samples = (Sample(THEN, 2), Sample(THEN + LOOKED_AGAIN_MS, 4), Sample(DECIDED, 4))
    facts = PartitionFacts(
        topic=topic(timestamp_type="LogAppendTime" if log_append else "CreateTime"),
        partition=0,
        log_start=0,
        high_watermark=4,
        last_stable_offset=4,
        floor=Floor(COMMITTED, "group:a"),
        lookups={},
        newest=EventMax(max(events)),
        event_prefix=EventPrefix(first(events, max(events) - EVENT_MS)),
        samples=samples if watched else samples[-1:],
    )
    wanted = wanted_lookups(facts, settings, DECIDED)
    times, data = ({at: LookUp(first(stamps, at)) for at in some} for some in (wanted.times, wanted.data))
    decision = decide(facts._replace(lookups=times, data_lookups=data), settings, DECIDED)
    expected = worked_out(age, event, wall, log_append, watched, unconsumed)
    assert (decision.action, decision.trim_to) == expected


EVENT = Settings(event_time_ms=24 * HOUR, unconsumed="trim")
HEADER = replace(EVENT, event_source=EventSource("header", "et"), allow_ancient=True)
BY_WORD = replace(EVENT, event_source=EventSource("timestamp"))


FORCED = replace(R1, forced_age_ms=36 * HOUR)
APPENDED = topic(timestamp_type="LogAppendTime")
FIVE = Log(0, [OLD] * 5, None, 5)
SIZED = Settings(max_bytes=100, unconsumed="trim")
WAITED = replace(SIZED, min_wallclock_ms=HOUR)
CLOCK_OFF = Unknown((Reason("G8", "5 min apart"),))
TAIL = {"retention.bytes": Tail(1, exact=True)}
SEEN = Log(0, [OLD, OLD], written=[OLD, OLD], watched=[OLD])
MINIMUM = Settings(min_timestamp_ms=NOW, unconsumed="trim")
EMPTYING = replace(MINIMUM, min_timestamp_ms=NOW + 1, allow_empty=True)


def codes(facts: PartitionFacts, settings: Settings) -> tuple[str, int | None, list[str]]:
    decision = decide(facts, settings, NOW)
    return decision.action, decision.trim_to, sorted({reason.code for reason in decision.reasons})


@pytest.mark.parametrize(
    ("facts", "chosen", "expected"),
    [
        pytest.param(
            FIVE.facts(R1, lookups={NOW - 24 * HOUR: LookUp(2, NOTE)}),
            *(R1, ("trim", 2, ["lookup"])),
            id="an incomplete look-up is trimmed to with a note",
        ),
        pytest.param(
            FIVE.facts(R1, topic(retention_ms=12 * HOUR)),
            *(R1, ("hold", None, ["R1"])),
            id="R1's time above the broker's retention is unknown",
        ),
        pytest.param(
            FIVE.facts(R1, topic(retention_ms=12 * HOUR, cleanup_policy=frozenset())),
            *(R1, ("trim", 5, [])),
            id="brokers delete nothing by time without a cleanup policy (Kafka 4.2)",
        ),
        pytest.param(
            FIVE.facts(replace(R1, forced_age_ms=12 * HOUR), topic(cleanup_policy=frozenset())),
            *(replace(R1, forced_age_ms=12 * HOUR), ("trim", 5, ["R1"])),
            id="a forced age below R1's time makes R1 unknown all the same",
        ),
        pytest.param(
            Log(0, []).facts(R1),
            *(replace(R1, hold="case 4711"), ("hold", None, ["G7"])),
            id="a hold precedes an empty log",
        ),
        pytest.param(
            Log(0, []).facts(R1, topic("_x")),
            *(replace(R1, hold="case 4711"), ("skip", None, ["G5"])),
            id="a skipped topic precedes a hold",
        ),
        pytest.param(
            Log(10, [OLD] * 5).facts(R1)._replace(floor=Floor(4, "group:a", (Reason("F5", "6 were deleted"),))),
            *(R1, ("keep", None, ["F5"])),
            id="a floor below the log start mentions the loss",
        ),
        pytest.param(
            Log(0, [OLD] * 5, None, 9)
            .facts(R1, lookups={NOW - 24 * HOUR: LookUp(9)})
            ._replace(high_watermark=5, last_stable_offset=8),
            *(R1, ("trim", 5, [])),
            id="L may be above H on a log that is written to",
        ),
        pytest.param(
            Log(0, [OLD] * 5, None, 3).facts(R1, lookups={NOW - 24 * HOUR: UNKNOWN, ANCIENT_MS: LookUp(0)}),
            *(R1, ("hold", None, ["F4"])),
            id="an unknown look-up holds R1",
        ),
        pytest.param(
            Log(0, [OLD] * 5, None, 0).facts(R1, lookups={NOW - 24 * HOUR: UNKNOWN, ANCIENT_MS: LookUp(0)}),
            *(R1, ("keep", None, [])),
            id="an unknown look-up is not needed where the floor allows nothing",
        ),
        pytest.param(
            Log(0, [OLD] * 5, None, UNKNOWN).facts(FORCED),
            *(FORCED, ("trim", 5, ["F4"])),
            id="an unknown fact is listed beside a trim",
        ),
        pytest.param(
            *(Log(5, [1_700_000_000, OLD], None, 6).facts(R1), R1, ("hold", None, ["G9"])),
            id="stamps in seconds hold R1",
        ),
        pytest.param(
            *(Log(5, [1_700_000_000], None, 6).facts(R4), R4, ("hold", None, ["G9"])),
            id="stamps in seconds hold R4",
        ),
        pytest.param(
            Log(5, [1_700_000_000, 1_700_000_001], None, 7).facts(R1),
            *(replace(R1, allow_ancient=True), ("trim", 7, [])),
            id="old stamps are trimmed where the policy vouches for them",
        ),
        pytest.param(
            *(Log(0, [OLD, OLD, NOW]).facts(EVENT, APPENDED), EVENT, ("hold", None, ["R2"])),
            id="append times are no event times",
        ),
        pytest.param(
            Log(0, [OLD, OLD, NOW]).facts(BY_WORD, APPENDED),
            *(BY_WORD, ("trim", 2, [])),
            id="append times are event times where the policy says so",
        ),
        pytest.param(
            Log(0, [OLD, OLD, NOW]).facts(HEADER, APPENDED)._replace(event_prefix=EventPrefix(1)),
            *(HEADER, ("trim", 1, [])),
            id="event times in headers don't depend on the timestamp type",
        ),
        pytest.param(
            Log(0, [OLD, NOW]).facts(EVENT, topic(timestamp_type=Unknown.because("topic-settings", "not read"))),
            *(EVENT, ("hold", None, ["topic-settings"])),
            id="an unknown timestamp type holds",
        ),
        pytest.param(
            *(Log(0, [OLD, OLD]).facts(EVENT)._replace(newest=None), EVENT, ("keep", None, ["R2"])),
            id="a partition without data records needs no look-up",
        ),
        pytest.param(
            *(Log(0, [OLD, OLD]).facts(MINIMUM), MINIMUM, ("trim", 2, [])), id="the minimum timestamp may be now"
        ),
        pytest.param(
            Log(0, [OLD, OLD]).facts(replace(MINIMUM, min_timestamp_ms=NOW + 1)),
            *(replace(MINIMUM, min_timestamp_ms=NOW + 1), ("hold", None, ["R3"])),
            id="the minimum timestamp may not be in the future",
        ),
        pytest.param(
            *(Log(0, [OLD, OLD]).facts(EMPTYING), EMPTYING, ("trim", 2, [])),
            id="a minimum timestamp in the future is meant where a log may be emptied",
        ),
        pytest.param(
            Log(0, [NOW + 9 * HOUR, OLD]).facts(R4, lookups={NOW - 24 * HOUR: LookUp(0, None, NOW + 9 * HOUR)}),
            *(R4, ("keep", None, ["G4"])),
            id="a future record at a prefix's end is named",
        ),
        pytest.param(
            *(Log(0, [OLD]).facts(R4)._replace(clock=CLOCK_OFF), R4, ("hold", None, ["G8"])),
            id="a wrong clock stops rules by time",
        ),
        pytest.param(
            *(SEEN.facts(SIZED)._replace(clock=CLOCK_OFF, tails=TAIL), SIZED, ("trim", 1, ["R5"])),
            id="a wrong clock does not stop a rule by size",
        ),
        pytest.param(
            *(SEEN.facts(WAITED)._replace(clock=CLOCK_OFF, tails=TAIL), WAITED, ("hold", None, ["G8", "R5"])),
            id="a wrong clock stops the wall-clock guard of a rule by size (G3)",
        ),
        pytest.param(
            *(SEEN.facts(WAITED)._replace(tails=TAIL), WAITED, ("trim", 1, ["R5"])),
            id="the wall-clock guard lets go what was written long ago",
        ),
        pytest.param(pressed(), R1, ("trim", 3, ["R7"]), id="a full disk shortens R1's time"),
        pytest.param(
            *(pressed(), replace(R1, watch_first_ms=24 * HOUR), ("hold", None, ["F10"])),
            id="and not the watch over groups (F10)",
        ),
        pytest.param(
            pressed(topic(retention_ms=18 * HOUR)),
            *(R1, ("hold", None, ["R1"])),
            id="R7 measures R1's time by the retention that brokers apply",
        ),
        pytest.param(
            pressed(topic(retention_ms=18 * HOUR, cleanup_policy=frozenset())),
            *(R1, ("trim", 3, ["R7"])),
            id="without delete in its cleanup policy a topic's retention.ms deletes nothing",
        ),
    ],
)
def test_decision_on_one_partition_follows_the_rules(
    facts: PartitionFacts, chosen: Settings, expected: tuple[str, int | None, list[str]]
) -> None:
    assert codes(facts, chosen) == expected


def test_explanation_of_a_decision_names_its_numbers() -> None:
    retention = decide(FIVE.facts(R1, topic(retention_ms=12 * HOUR)), R1, NOW).reasons[0].text
    assert ("1 d" in retention, "12 h" in retention) == (True, True)
    at_least = Log(0, [OLD, OLD, NOW]).facts(EVENT)._replace(newest=EventMax(NOW, 2, exact=False))
    assert "at least" in decide(at_least, EVENT, NOW).reasons[0].text
    blind = decide(Log(0, [OLD] * 5, None, UNKNOWN).facts(FORCED), FORCED, NOW)
    assert (blind.rule, blind.unconsumed, blind.min_commit) == ("forced-age", 5, None)
    both = replace(R1, forced_age_ms=24 * HOUR)
    assert decide(FIVE.facts(both), both, NOW).rule == "consumed", "the first of two rules with one bound"


@pytest.mark.parametrize(("apart_ms", "wrong"), [(60_000, False), (60_001, True), (-60_001, True)])
def test_clocks_may_be_a_minute_apart(apart_ms: int, wrong: bool) -> None:
    assert (compare_clocks(NOW, NOW + apart_ms, NOW) is not None) is wrong
    assert compare_clocks(NOW, NOW + 90_000, NOW + 100_000) is None, "it was stamped between our two looks"


@pytest.mark.parametrize(
    ("ahead_ms", "expected"),
    [(HOUR, ("trim", 2, [])), (HOUR + 1, ("hold", None, ["G4"])), (10**15, ("hold", None, ["G4"]))],
)
def test_largest_event_time_may_be_ahead_only_within_the_tolerance(
    ahead_ms: int, expected: tuple[str, int | None, list[str]]
) -> None:
    facts = Log(0, [OLD, OLD, NOW - HOUR]).facts(EVENT)
    lookups = {NOW + ahead_ms - 24 * HOUR: LookUp(2)}
    assert codes(facts._replace(newest=EventMax(NOW + ahead_ms, 7), data_lookups=lookups), EVENT) == expected


def test_future_timestamp_names_its_record_and_the_remedy() -> None:
    facts = Log(0, [OLD, NOW]).facts(EVENT)._replace(newest=EventMax(NOW + 9 * HOUR, 7))
    facts = facts._replace(data_lookups={NOW - 15 * HOUR: LookUp(1)})
    (reason,) = decide(facts, EVENT, NOW).reasons
    assert "the record at offset 7" in reason.text
    assert "retention.eventtime.ignore.future: true" in reason.text


@pytest.mark.parametrize("settings", [EVENT, Settings(forced_age_ms=24 * HOUR), Settings(min_timestamp_ms=1)])
def test_times_before_1970_are_never_looked_up(settings: Settings) -> None:
    """To a broker −1 is the end of the log: a cutoff so early is older than every record."""
    early = replace(
        settings,
        event_time_ms=None if settings.event_time_ms is None else NOW + 1,
        forced_age_ms=None if settings.forced_age_ms is None else NOW + 1,
        allow_ancient=True,
    )
    facts = Log(3, [5, 6]).facts(early)._replace(newest=EventMax(NOW))
    wanted = wanted_lookups(facts, early, NOW)
    assert all(time_ms > 0 for time_ms in wanted.times | wanted.data)
    assert decide(facts, early, NOW).trim_to is None


def test_merged_blocks_keep_their_first_unreadable_record() -> None:
    scan = EventScan("header:et", 0, 0, block_records=1)
    for offset in range(300):
        scan.add(offset, None if offset in (5, 6, 200) else 1)
    assert min(one.unreadable for one in scan.blocks if one.unreadable is not None) == 5
    there: Any = scan.prefix(0, 10, skip=False)
    assert there.start <= 5 < there.end
    assert scan.prefix(0, 10, skip=True) == 300
