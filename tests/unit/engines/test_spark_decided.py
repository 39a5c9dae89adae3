"""Partitions decided in columns are decided as they are one by one: the whole decision, with its reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_cli.core.model import (
    ANCIENT_MS,
    Decision,
    Floor,
    LookUp,
    PartitionFacts,
    Reason,
    TopicFacts,
    Unknown,
    Usage,
    Watermark,
)
from retention_cli.decide.decision import decide
from retention_cli.engines.spark import decided
from retention_cli.engines.spark.decided import decided_batch, decisions_batch
from retention_cli.plan.columns import decision_of
from retention_cli.policy.settings import Settings
from tests.unit.facts import HOUR, NOW, UNKNOWN, topic

R1 = Settings(consumed_after_ms=24 * HOUR)
THEN = NOW - 24 * HOUR
WHY = Unknown.because("offsets", "nobody answered")
ODD = Reason("F5", "group b stands at 1: 2 records were gone before it read them")

offsets = st.integers(0, 12)
stamps = st.sampled_from([None, THEN + 1, NOW])


@st.composite
def partitions(draw: st.DrawFn, about: TopicFacts, number: int) -> PartitionFacts:
    """Draw a partition that R1 alone decides, and then perhaps something about it that is not plain."""
    start, high, floor, old = (draw(offsets) for _ in range(4))
    high = max(start, high)
    one = PartitionFacts(
        topic=about,
        partition=number,
        log_start=start,
        high_watermark=high,
        last_stable_offset=high,
        floor=Floor(min(floor, high), draw(st.sampled_from(["group:a", "file:b"]))),
        lookups={THEN: LookUp(old, None, draw(stamps)), ANCIENT_MS: LookUp(draw(st.integers(0, start)))},
        size_bytes=draw(st.integers(0, 2**62)),
        leader_epoch=draw(st.none() | st.integers(0, 5)),
    )
    oddity = draw(st.sampled_from(["", "", *ODDITIES]))
    return one if not oddity else ODDITIES[oddity](one, draw)


def looked(one: PartitionFacts, time_ms: int, answer: Any) -> PartitionFacts:
    return one._replace(lookups={**one.lookups, time_ms: answer})


ODDITIES: dict[str, Callable[[PartitionFacts, Any], PartitionFacts]] = {
    "an open transaction": lambda one, draw: one._replace(last_stable_offset=draw(offsets)),
    "an unknown log start": lambda one, _: one._replace(log_start=WHY),
    "an unknown end": lambda one, _: one._replace(high_watermark=WHY),
    "an unknown stable offset": lambda one, _: one._replace(last_stable_offset=WHY),
    "no floor": lambda one, _: one._replace(floor=UNKNOWN),
    "a floor with a note": lambda one, _: one._replace(floor=Floor(1, "group:b", (ODD,))),
    "a floor beyond the end": lambda one, draw: one._replace(floor=Floor(draw(offsets), "group:c")),
    "a watermark": lambda one, _: one._replace(usage=Usage("disk", 95, Watermark(90, 0.5, HOUR))),
    "a clock that is wrong": lambda one, _: one._replace(clock=WHY),
    "no size": lambda one, _: one._replace(size_bytes=WHY),
    "no look-up": lambda one, _: one._replace(lookups={}),
    "a look-up that failed": lambda one, _: looked(one, THEN, WHY),
    "a look-up that stopped": lambda one, draw: looked(one, THEN, LookUp(draw(offsets), Reason("lookup", "stopped"))),
    "a record in the future": lambda one, draw: looked(one, THEN, LookUp(draw(offsets), None, NOW + 2 * HOUR)),
    "an old stamp": lambda one, draw: looked(one, ANCIENT_MS, LookUp(draw(offsets), None, 5, draw(offsets))),
    "an unknown first stamp": lambda one, _: looked(one, ANCIENT_MS, WHY),
    "no first stamp": lambda one, _: one._replace(lookups={THEN: one.lookups[THEN]}),
}


plain = [
    topic("plain"),
    topic("kept", retention_ms=7 * 24 * HOUR),
]
odd = [
    topic("nameless", topic_id=WHY),
    topic("short", retention_ms=HOUR),
    topic("unread", cleanup_policy=WHY),
    topic("compacted", cleanup_policy=frozenset({"compact"})),
    topic("_inner"),
    topic("__offsets", internal=True),
]
SETTINGS = [
    R1,
    replace(R1, allow_ancient=True),
    replace(R1, max_ahead_ms=3 * HOUR),
    replace(R1, hold="legal"),
    replace(R1, whole_segments=True),
    replace(R1, unsettled=WHY),
    replace(R1, min_wallclock_ms=HOUR),
    replace(R1, forced_age_ms=48 * HOUR),
    replace(R1, forced_age_ms=HOUR),
    replace(R1, event_time_ms=48 * HOUR),
    replace(R1, min_timestamp_ms=NOW - HOUR),
    replace(R1, max_bytes=10),
    replace(R1, consumed_after_ms=NOW),
    Settings(),
]
chosen = st.sampled_from([*[R1] * 12, *SETTINGS])


@st.composite
def slices(draw: st.DrawFn) -> tuple[list[PartitionFacts], dict[str, Settings]]:
    """Draw the partitions of some topics, and the topics' settings."""
    topics = draw(st.lists(st.sampled_from([*plain * 3, *odd]), max_size=4, unique_by=lambda one: one.name))
    facts = [draw(partitions(one, number)) for one in topics for number in range(draw(st.integers(1, 9)))]
    return facts, {one.name: draw(chosen) for one in topics}


def found(batch: Any) -> list[Decision]:
    return [decision_of(row) for row in batch.to_pylist()]


@given(slices())
@settings(max_examples=200)
def test_both_ways_come_to_the_same(drawn: tuple[list[PartitionFacts], dict[str, Settings]]) -> None:
    facts, by_topic = drawn
    one_by_one = [decide(one, by_topic[one.topic.name], NOW) for one in facts]
    assert found(decided_batch(facts, by_topic, NOW)) == one_by_one
    assert found(decisions_batch(one_by_one)) == one_by_one


BARE = PartitionFacts(
    topic("plain"), 0, 0, 10, 10, Floor(9, "group:a"), {THEN: LookUp(8), ANCIENT_MS: LookUp(0)}, size_bytes=100
)


@pytest.mark.parametrize("about", [*plain, *odd], ids=lambda one: one.name)
@pytest.mark.parametrize("chosen", SETTINGS)
def test_whatever_a_topic_and_its_policy_are(about: TopicFacts, chosen: Settings) -> None:
    one = BARE._replace(topic=about)
    assert found(decided_batch([one], {about.name: chosen}, NOW)) == [decide(one, chosen, NOW)]


@pytest.mark.parametrize("oddity", ODDITIES)
def test_whatever_is_odd_about_a_partition(oddity: str) -> None:
    one = ODDITIES[oddity](BARE, lambda _: 5)
    assert found(decided_batch([BARE, one], {"plain": R1}, NOW)) == [decide(BARE, R1, NOW), decide(one, R1, NOW)]


def test_what_is_plain_is_not_decided_one_by_one(monkeypatch: Any) -> None:
    """Else all of this would be for nothing: a trim, a floor at the log start, records too young, an empty partition."""
    young = {THEN: LookUp(0), ANCIENT_MS: LookUp(0)}
    facts = [
        BARE,
        BARE._replace(partition=1, floor=Floor(0, "group:a"), lookups={}),
        BARE._replace(partition=2, lookups=young),
        BARE._replace(partition=3, log_start=10, floor=UNKNOWN, lookups={}),
    ]
    expected = [decide(one, R1, NOW) for one in facts]
    monkeypatch.setattr(decided, "decide", None)
    assert found(decided_batch(facts, {"plain": R1}, NOW)) == expected
    assert [(one.action, one.trim_to, one.size_bytes) for one in expected] == [
        ("trim", 8, 80),
        ("keep", None, 0),
        ("keep", None, 0),
        ("keep", None, 0),
    ]
