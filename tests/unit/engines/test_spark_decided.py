"""Partitions decided in columns are decided as they are one by one: the whole decision, with its reasons."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from retention_cli.core.model import Decision, PartitionFacts, TopicFacts
from retention_cli.decide.decision import decide
from retention_cli.engines.spark import decided
from retention_cli.engines.spark.decided import decided_batch, decisions_batch
from retention_cli.plan.columns import decision_of
from retention_cli.policy.settings import Settings
from tests.unit.facts import NOW
from tests.unit.plain_partitions import BARE, ODDITIES, PLAIN, R1, SETTINGS, odd, plain, slices


def found(batch: Any) -> list[Decision]:
    return [decision_of(row) for row in batch.to_pylist()]


@given(slices())
@settings(max_examples=200)
def test_both_ways_come_to_the_same(drawn: tuple[list[PartitionFacts], dict[str, Settings]]) -> None:
    facts, by_topic = drawn
    one_by_one = [decide(one, by_topic[one.topic.name], NOW) for one in facts]
    assert found(decided_batch(facts, by_topic, NOW)) == one_by_one
    assert found(decisions_batch(one_by_one)) == one_by_one


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
    """Else all of this would be for nothing."""
    expected = [decide(one, R1, NOW) for one in PLAIN]
    monkeypatch.setattr(decided, "decide", None)
    assert found(decided_batch(PLAIN, {"plain": R1}, NOW)) == expected
    assert [(one.action, one.trim_to, one.size_bytes) for one in expected] == [
        ("trim", 8, 80),
        ("keep", None, 0),
        ("keep", None, 0),
        ("keep", None, 0),
    ]
