"""The heart: triggers, each under its guards, come to one decision (docs/rules.md, Deciding)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import INFINITE_MS, Floor, LookUp, Reason, Unknown, Usage, Watermark
from retention_cli.decide.decision import decide, unread_below, weigh
from retention_cli.decide.lookups import Wanted
from retention_cli.decide.triggers import TRIGGERS, NotAsked
from retention_cli.decide.triggers.consumed import live_retention
from retention_cli.policy.settings import Settings
from tests.support.facts import HOUR, NOTE, NOW, UNKNOWN, Log, logs, settings, topic
from tests.support.lookups import wanted_lookups

R1 = Settings(consumed_after_ms=24 * HOUR)
R4 = Settings(forced_age_ms=24 * HOUR)
OLD, NEW = NOW - 48 * HOUR, NOW - HOUR


def expected(log: Log, chosen: Settings) -> int | None:
    """Brute force: the largest offset that some trigger may trim to, by the rules' own words; None for none."""
    stable = log.end if log.stable is None else log.stable
    bounds = range(log.start + 1, min(log.end, stable) + 1)
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
    by_r1 = (
        chosen.consumed_after_ms is not None and not conflict and read and all_before(NOW - chosen.consumed_after_ms)
    )
    newest = log.newest
    by_r2 = (
        chosen.event_time_ms is not None
        and newest is not None
        and newest <= NOW + chosen.max_ahead_ms  # G4
        and all_before(newest - chosen.event_time_ms)
        and (read or unguarded)
    )
    minimum = chosen.min_timestamp_ms
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


@given(logs(), settings)
def test_target_never_passes_end_or_floor_and_every_record_has_a_trigger(log: Log, chosen: Settings) -> None:
    decision = decide(log.facts(chosen), chosen, NOW)
    if decision.trim_to is None:
        assert decision.records == decision.unconsumed == 0
        return
    assert log.start < decision.trim_to <= min(log.end, log.end if log.stable is None else log.stable)
    assert decision.records == decision.trim_to - log.start
    cutoff = {
        "consumed": NOW - (chosen.consumed_after_ms or 0),
        "event-time": (log.newest or 0) - (chosen.event_time_ms or 0),
        "min-timestamp": chosen.min_timestamp_ms or 0,
        "forced-age": NOW - (chosen.forced_age_ms or 0),
    }[decision.rule or ""]
    assert all(stamp < cutoff for stamp in log.stamps[: decision.records])
    if chosen.min_wallclock_ms is not None and log.written is not None:
        assert all(at <= NOW - chosen.min_wallclock_ms for at in log.written[: decision.records])
    guarded = decision.rule != "forced-age" or chosen.forced_age_guarded
    if decision.rule == "consumed" or (guarded and chosen.unconsumed == "hold"):
        assert not isinstance(log.floor, Unknown)
        assert decision.trim_to <= log.floor
        assert decision.unconsumed == 0


@given(logs(), settings)
def test_keep_has_no_unknown_floor_and_hold_has_a_reason(log: Log, chosen: Settings) -> None:
    decision = decide(log.facts(chosen), chosen, NOW)
    needs_floor = chosen.consumed_after_ms is not None and log.stamps
    if decision.action == "keep" and needs_floor:
        assert not isinstance(log.floor, Unknown)
    if decision.action == "hold":
        assert decision.reasons


@given(logs(), settings)
def test_equal_facts_give_equal_decisions(log: Log, chosen: Settings) -> None:
    assert decide(log.facts(chosen), chosen, NOW) == decide(log.facts(chosen), chosen, NOW)


@given(logs(), settings)
def test_wanted_look_ups_suffice_for_a_decision(log: Log, chosen: Settings) -> None:
    decision = decide(log.facts(chosen), chosen, NOW)
    assert not any("not looked up" in reason.text for reason in decision.reasons)


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


def test_keep_decision_names_the_guard_that_prevented_a_trim() -> None:
    chosen = replace(R4, forced_age_guarded=True)
    decision = decide(Log(0, [OLD] * 5, None, 0).facts(chosen), chosen, NOW)
    assert decision.reasons == (Reason("G2", "forced-age would trim to 5, but group:a has read up to 0"),)


def test_old_timestamps_hold_rules_by_time_unless_allowed() -> None:
    for seconds in ([1_700_000_000], [1_700_000_000, 1_700_000_001], [1_700_000_000, OLD]):
        assert decide(Log(5, seconds, None, 6).facts(R1), R1, NOW).reasons[0].code == "G9"
    log = Log(5, [1_700_000_000, 1_700_000_001], None, 7)
    assert decide(log.facts(R1), R1, NOW).reasons[0].code == "G9"
    assert decide(log.facts(R4), R4, NOW).action == "hold"
    vouched = replace(R1, allow_ancient=True)
    assert decide(log.facts(vouched), vouched, NOW).trim_to == 7


def test_incomplete_look_up_is_trimmed_to_with_a_note() -> None:
    facts = Log(0, [OLD] * 5, None, 5).facts(R1, lookups={NOW - 24 * HOUR: LookUp(2, NOTE)})
    decision = decide(facts, R1, NOW)
    assert (decision.trim_to, decision.reasons) == (2, (NOTE,))


def test_r1_time_above_the_forced_retention_is_unknown() -> None:
    facts = Log(0, [OLD] * 5, None, 5).facts(R1, topic(retention_ms=12 * HOUR))
    decision = decide(facts, R1, NOW)
    assert decision.action == "hold"
    assert "1 d" in decision.reasons[0].text
    assert "12 h" in decision.reasons[0].text


@pytest.mark.parametrize("policy", [frozenset(), frozenset({"compact"})])
def test_topic_without_delete_policy_is_not_trimmed_by_time(policy: frozenset[str]) -> None:
    """R1: whatever ``retention.ms`` says. Since Kafka 4.2 the policy may be empty."""
    about = topic(retention_ms=12 * HOUR, cleanup_policy=policy)
    assert live_retention(about) == INFINITE_MS
    if not policy:
        assert decide(Log(0, [OLD] * 5, None, 5).facts(R1, about), R1, NOW).action == "trim"
        by_policy = replace(R1, forced_age_ms=12 * HOUR)
        assert decide(Log(0, [OLD] * 5, None, 5).facts(by_policy, about), by_policy, NOW).reasons[0].code == "R1"


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


def test_held_topic_precedes_an_empty_log_and_a_skipped_topic_precedes_a_hold() -> None:
    chosen = replace(R1, hold="case 4711")
    assert decide(Log(0, []).facts(chosen), chosen, NOW).action == "hold"
    assert decide(Log(0, []).facts(chosen, topic("_x")), chosen, NOW).action == "skip"


def test_first_of_two_rules_with_one_bound_is_named() -> None:
    both = replace(R1, forced_age_ms=24 * HOUR)
    assert decide(Log(0, [OLD] * 5, None, 5).facts(both), both, NOW).rule == "consumed"


def test_floor_below_the_log_start_mentions_the_loss() -> None:
    note = Reason("F5", "6 records were gone")
    facts = Log(10, [OLD] * 5).facts(R1)._replace(floor=Floor(4, "group:a", (note,)))
    decision = decide(facts, R1, NOW)
    assert (decision.action, decision.reasons) == ("keep", (note,))


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


def test_inactive_trigger_wants_no_look_up() -> None:
    for log, chosen in (
        (Log(0, [OLD], None, 0), R1),
        (Log(0, [OLD], None, UNKNOWN), R1),
        (Log(0, [], None, 0), R4),
        (Log(0, [OLD], None, 1), replace(R4, hold="x")),
        (Log(0, [OLD], None, 1), Settings()),
    ):
        bare = log.facts(chosen)._replace(lookups={})
        assert wanted_lookups(bare, chosen, NOW) == Wanted()


def test_explain_shows_the_bound_and_limit_of_each_active_rule() -> None:
    both = replace(R1, forced_age_ms=36 * HOUR)
    shown = weigh(Log(0, [OLD] * 5, 4, 3).facts(both), both, NOW)
    assert [(one.code, one.asked, one.allowed, one.limited_by) for one in shown] == [
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
            assert isinstance(trigger.ask(facts, chosen, NOW), NotAsked), trigger.code
            assert not trigger.cutoffs(facts, chosen, NOW), trigger.code
            assert not trigger.data_cutoffs(facts, chosen, NOW), trigger.code
