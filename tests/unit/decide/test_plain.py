"""A partition that R1 alone decides is decided as any other: the whole decision, with its reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_cli.core.model import LookUp, PartitionFacts, TopicFacts
from retention_cli.decide import plain as module
from retention_cli.decide.decision import decide
from retention_cli.decide.plain import Decider
from retention_cli.policy.settings import Settings
from tests.support.facts import NOW, UNKNOWN, topic
from tests.support.plain_partitions import BARE, ODDITIES, PLAIN, R1, SETTINGS, odd, plain, slices

TP = BARE.tp


@given(slices(), st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_any_partition_in_any_order(drawn: tuple[list[PartitionFacts], dict[str, Settings]], order: Any) -> None:
    facts, by_topic = drawn
    shuffled = order.sample(facts, len(facts))
    decider = Decider(NOW)
    for one in order.sample(facts, len(facts) // 2):
        decider.ahead(one.tp, one, by_topic[one.topic.name])
    found = {one.tp: decider.decide(one.tp, one, by_topic[one.topic.name]) for one in shuffled}
    assert found == {one.tp: decide(one, by_topic[one.topic.name], NOW) for one in facts}


@pytest.mark.parametrize("about", [*plain, *odd], ids=lambda one: one.name)
@pytest.mark.parametrize("chosen", SETTINGS)
def test_whatever_a_topic_and_its_policy_are(about: TopicFacts, chosen: Settings) -> None:
    one = BARE._replace(topic=about)
    assert Decider(NOW).decide(TP, one, chosen) == decide(one, chosen, NOW)


@pytest.mark.parametrize("oddity", ODDITIES)
def test_whatever_is_odd_about_a_partition(oddity: str) -> None:
    one = ODDITIES[oddity](BARE, lambda _: 5)
    assert Decider(NOW).decide(TP, one, R1) == decide(one, R1, NOW)


@pytest.mark.parametrize("oddity", ODDITIES)
def test_what_was_decided_ahead_counts_for_the_very_same_facts_alone(oddity: str) -> None:
    """What was found to have changed since, or was read again, is decided by what is known of it then."""
    later = ODDITIES[oddity](BARE, lambda _: 5)
    decider = Decider(NOW)
    decider.ahead(TP, BARE, R1)
    assert decider.decide(TP, later, R1) == decide(later, R1, NOW)
    assert decider.decide(TP, BARE, R1) == decide(BARE, R1, NOW)


@pytest.mark.parametrize("chosen", SETTINGS)
def test_what_was_decided_ahead_counts_for_the_very_same_settings_alone(chosen: Settings) -> None:
    decider = Decider(NOW)
    decider.ahead(TP, BARE, R1)
    assert decider.decide(TP, BARE, chosen) == decide(BARE, chosen, NOW)


@pytest.mark.parametrize("cutoff", [0, -5])
def test_no_record_is_older_than_1970(cutoff: int) -> None:
    """To a broker −1 is the end of the log: an answer at such a time is none of a record's time."""
    chosen = replace(R1, consumed_after_ms=NOW - cutoff)
    one = BARE._replace(lookups={**BARE.lookups, cutoff: LookUp(8)})
    assert Decider(NOW).decide(TP, one, chosen) == decide(one, chosen, NOW)
    assert decide(one, chosen, NOW).action == "keep"


def test_a_topic_whose_facts_differ_has_a_rule_of_its_own() -> None:
    decider = Decider(NOW)
    for about in (topic("plain"), topic("plain", cleanup_policy=frozenset({"compact"})), topic("plain")):
        one = BARE._replace(topic=about)
        assert decider.decide(TP, one, R1) == decide(one, R1, NOW)


def test_what_is_plain_or_was_decided_ahead_is_not_decided_again(monkeypatch: Any) -> None:
    """Else all of this would be for nothing."""
    held = BARE._replace(partition=4, floor=UNKNOWN)
    expected = [decide(one, R1, NOW) for one in [*PLAIN, held]]
    decider = Decider(NOW)
    decider.ahead(held.tp, held, R1)
    monkeypatch.setattr(module, "decide", None)
    assert [decider.decide(one.tp, one, R1) for one in [*PLAIN, held]] == expected
    assert [one.action for one in expected] == ["trim", "keep", "keep", "keep", "hold"]
