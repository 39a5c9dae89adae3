"""Unknown is a value with a reason: it holds what rests on it, and never lets more go (docs/rules.md, Deciding)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import ANCIENT_MS, LookUp, PartitionFacts, Unknown
from retention_cli.decide.decision import decide
from retention_cli.policy.settings import Settings
from tests.support.facts import HOUR, NOW, UNKNOWN, Log, logs, settings, topic

R1 = Settings(consumed_after_ms=24 * HOUR)
OLD = NOW - 48 * HOUR
BLIND = Unknown.because("test", "time-out")


@given(logs(), settings, st.data())
def test_unknown_fact_never_trims_more_than_the_known_one(log: Log, chosen: Settings, data: st.DataObject) -> None:
    facts = log.facts(chosen)
    full = decide(facts, chosen, NOW)
    blind = Unknown.because("lookup", "time-out")
    lost = data.draw(
        st.sampled_from(
            [
                "floor",
                "last_stable_offset",
                "lookups",
                "topic_id",
                "high_watermark",
                "log_start",
                "cleanup_policy",
                "newest",
                "samples",
                "clock",
                "timestamp_type",
            ]
        )
    )
    if lost == "lookups":
        less: PartitionFacts = facts._replace(
            lookups=dict.fromkeys(facts.lookups, blind),
            data_lookups=dict.fromkeys(facts.data_lookups, blind),
        )
    elif lost == "topic_id":
        less = facts._replace(topic=topic(topic_id=blind))
    elif lost in ("cleanup_policy", "timestamp_type"):
        less = facts._replace(topic=replace(facts.topic, **{lost: blind}))  # type: ignore[arg-type]
    else:
        unknown: dict[str, Any] = {lost: blind}
        less = facts._replace(**unknown)
    decision = decide(less, chosen, NOW)
    assert (decision.trim_to or 0) <= (full.trim_to or 0)
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


def test_lower_of_high_watermark_and_last_stable_offset_limits_a_trim() -> None:
    """H and L are read at the same time: on a log that is written to, L may be the higher number."""
    facts = Log(0, [OLD] * 5, None, 9).facts(R1, lookups={NOW - 24 * HOUR: LookUp(9)})
    assert decide(facts._replace(high_watermark=5, last_stable_offset=8), R1, NOW).trim_to == 5
    assert decide(facts._replace(high_watermark=8, last_stable_offset=5), R1, NOW).trim_to == 5


def test_unknown_look_up_holds_r1_only_if_the_floor_needs_it() -> None:
    blind = Unknown.because("lookup", "time-out")
    for floor, action in ((3, "hold"), (0, "keep")):
        facts = Log(0, [OLD] * 5, None, floor).facts(R1, lookups={NOW - 24 * HOUR: blind, ANCIENT_MS: LookUp(0)})
        assert decide(facts, R1, NOW).action == action


def test_unknown_facts_are_listed_beside_a_trim() -> None:
    both = replace(R1, forced_age_ms=36 * HOUR)
    decision = decide(Log(0, [OLD] * 5, None, UNKNOWN).facts(both), both, NOW)
    assert (decision.action, decision.rule, decision.reasons) == ("trim", "forced-age", UNKNOWN.reasons)
    assert decision.unconsumed == 5
    assert decision.min_commit is None
