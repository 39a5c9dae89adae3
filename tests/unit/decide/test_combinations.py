"""KIP-870's test plan, the pure part: every combination of settings (R2, R4, G2, G3)."""

from __future__ import annotations

import pytest

from retention_cli.core.model import EventMax, EventPrefix, Floor, LookUp, PartitionFacts, Sample
from retention_cli.decide.decision import decide
from retention_cli.policy.settings import EventSource, Settings
from tests.support import combinations as c
from tests.support.facts import topic
from tests.support.lookups import wanted_lookups

THEN = 1_800_000_000_000
NOW = THEN + c.DECIDED_MS


@pytest.mark.parametrize("one", c.ALL, ids=lambda one: one.name)
def test_settings_combination_matches_the_rules(one: c.Combination) -> None:
    events = [THEN + hours * c.HOUR for hours in c.EVENT_HOURS]
    stamps = [THEN] * 4 if one.log_append else events
    settings = Settings(
        forced_age_ms=c.AGE_MS if one.age else None,
        event_time_ms=c.EVENT_MS if one.event else None,
        event_source=EventSource("header", "et") if one.log_append else None,
        min_wallclock_ms=c.WALL_MS if one.wall else None,
        unconsumed="trim" if one.unconsumed == "trim" else "hold",
    )

    def first(times: list[int], cutoff: int) -> LookUp:
        return LookUp(next((n for n, at in enumerate(times) if at >= cutoff), 4))

    samples = (Sample(THEN, 2), Sample(THEN + c.LOOKED_AGAIN_MS, 4), Sample(NOW, 4))
    lookups: dict[int, LookUp] = {}
    data: dict[int, LookUp] = {}
    facts = PartitionFacts(
        topic=topic(timestamp_type="LogAppendTime" if one.log_append else "CreateTime"),
        partition=0,
        log_start=0,
        high_watermark=4,
        last_stable_offset=4,
        floor=Floor(c.COMMITTED, "group:a"),
        lookups=lookups,
        data_lookups=data,
        newest=EventMax(max(events)),
        event_prefix=EventPrefix(first(events, max(events) - c.EVENT_MS).offset),
        samples=samples if one.watched else samples[-1:],
    )
    wanted = wanted_lookups(facts, settings, NOW)
    lookups.update((time_ms, first(stamps, time_ms)) for time_ms in wanted.times)
    data.update((time_ms, first(stamps, time_ms)) for time_ms in wanted.data)
    decision = decide(facts, settings, NOW)
    assert (decision.action, decision.trim_to) == one.expected
