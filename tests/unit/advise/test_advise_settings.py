"""Advised settings: they end the dangers they are for, are advised once, and are lines that tools take."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.advise.advice import Advice, advise, kafka_configs
from retention_cli.advise.facts import AtMost, Demand
from retention_cli.advise.format import DAY, HOUR, MINUTE, exact
from retention_cli.policy.load import parse_policy
from retention_cli.policy.settings import Settings
from tests.support.advised import GIB, NOW, UNREAD, part, topic

MIB = 1 << 20
BY_SETTINGS = {"broker-before-policy", "segment-above-retention", "size-before-time", "bytes-per-partition"}
"""The dangers that topic settings end. A stamp stays, groups' offsets are the brokers', R1's time the policy's too."""


def said(one: Advice) -> set[str]:
    return {danger.code for danger in one.dangers}


def test_healthy_topic_gets_no_advice() -> None:
    one = advise(topic(), Demand(), NOW)
    assert (one.dangers, one.changes, one.broker_properties, one.unknown) == ([], {}, {}, [])


@pytest.mark.parametrize(
    ("settings", "demand", "changes"),
    [
        ({"retention_ms": HOUR, "segment_ms": 7 * DAY}, Demand(), {"segment.ms": HOUR}),
        ({"retention_ms": HOUR, "segment_ms": 7 * DAY}, Demand(least_segment_ms=DAY), {"segment.ms": DAY}),
        ({"segment_ms": 7 * DAY}, Demand(), {"segment.ms": DAY}),
        ({}, Demand(keep_ms=12 * HOUR), {"retention.ms": 12 * HOUR, "segment.ms": 12 * HOUR}),
        ({"retention_ms": DAY}, Demand(policy=Settings(forced_age_ms=3 * DAY)), {"retention.ms": 3 * DAY}),
        ({"retention_ms": DAY}, Demand(policy=Settings(consumed_after_ms=2 * DAY)), {"retention.ms": 2 * DAY}),
        # a broker that keeps longer than the policy is a net, not a danger
        ({}, Demand(policy=Settings(forced_age_ms=DAY)), {}),
        ({"retention_ms": None}, Demand(policy=Settings(forced_age_ms=DAY, consumed_after_ms=HOUR)), {}),
        ({"retention_ms": None, "segment_ms": 99 * DAY}, Demand(), {}),
        ({"cleanup_policy": frozenset({"compact"}), "segment_ms": 99 * DAY}, Demand(keep_ms=DAY, topic_bytes=GIB), {}),
        ({"retention_bytes": GIB}, Demand(topic_bytes=4 * GIB), {}),
        ({}, Demand(topic_bytes=4 * GIB), {"retention.bytes": 3 * GIB}),
        (
            {"retention_bytes": 4 * GIB},
            Demand(topic_bytes=GIB),
            {"retention.bytes": 768 * MIB, "segment.bytes": 256 * MIB},
        ),
        ({"retention_bytes": 4 * GIB}, Demand(topic_bytes=MIB), {}),
    ],
)
def test_advised_changes_match_the_demand(settings: dict, demand: Demand, changes: dict) -> None:
    assert advise(topic(**settings), demand, NOW).changes == changes


def test_too_small_retention_bytes_is_raised_to_twice_the_busiest_partitions_need() -> None:
    one = advise(topic([part(0, GIB), part(1, MIB)], retention_bytes=GIB, retention_ms=DAY), Demand(), NOW)
    assert one.changes["retention.bytes"] == pytest.approx(48 * GIB, rel=1e-3)
    assert one.changes["retention.bytes"] % MIB == 0


def test_wanted_size_too_small_for_the_time_is_a_danger_before_it_is_set() -> None:
    one = advise(topic([part(0, GIB)]), Demand(topic_bytes=10 * GIB), NOW)
    assert said(one) == {"bytes-per-partition"}
    assert [danger.code for danger in one.then_dangers] == ["size-before-time"]
    assert "--want-bytes can't hold that: 7d come to 168 GiB" in (one.then_dangers[0].remedy or "")


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"after_max_ms": None}, {"message.timestamp.after.max.ms": HOUR}),
        ({"after_max_ms": HOUR}, {}),
        ({"after_max_ms": None, "timestamp_type": "LogAppendTime"}, {}),
    ],
)
def test_future_producer_timestamps_lead_to_advice_to_refuse_them(settings: dict, changes: dict) -> None:
    assert advise(topic([part(newest_ms=NOW + DAY)], **settings), Demand(), NOW).changes == changes
    assert advise(topic([part(newest_ms=NOW)], **settings), Demand(), NOW).changes == {}


def test_offsets_retention_is_advised_to_match_the_longer_retention() -> None:
    assert advise(topic(retention_ms=30 * DAY), Demand(), NOW).broker_properties == {
        "offsets.retention.minutes": 43_200
    }
    assert advise(topic(retention_ms=30 * DAY + 1), Demand(), NOW).broker_properties == {
        "offsets.retention.minutes": 43_201
    }
    longer = advise(topic(), Demand(policy=Settings(forced_age_ms=10 * DAY)), NOW)
    assert longer.changes == {"retention.ms": 10 * DAY}
    assert longer.broker_properties == {"offsets.retention.minutes": 14_400}
    assert advise(topic(retention_ms=None), Demand(), NOW).broker_properties == {}, "no number is as long as for ever"


@pytest.mark.parametrize("name", ["retention_ms", "segment_ms", "cleanup_policy", "segment_bytes", "retention_bytes"])
def test_advice_never_changes_an_unknown_setting(name: str) -> None:
    settings: dict[str, Any] = {"retention_bytes": GIB, name: UNREAD}
    changes = advise(topic(**settings), Demand(keep_ms=HOUR, topic_bytes=GIB), NOW).changes
    assert name.replace("_", ".") not in changes
    assert name != "cleanup_policy" or changes == {}


@pytest.mark.parametrize(
    ("settings", "demand", "entry"),
    [
        ({}, Demand(), {"retention.ms": "7d"}),
        ({}, Demand(keep_ms=90 * MINUTE), {"retention.ms": "90m"}),
        ({}, Demand(policy=Settings(forced_age_ms=DAY)), {}),
        ({"retention_ms": DAY}, Demand(policy=Settings(consumed_after_ms=2 * DAY)), {"retention.ms": "2d"}),
        ({}, Demand(policy=Settings(consumed_after_ms=2 * DAY, forced_age_ms=DAY)), {"retention.ms": "2d"}),
        (
            {},
            Demand(keep_ms=DAY, policy=Settings(consumed_after_ms=2 * DAY)),
            {"retention.commitoffset.ms": "1d", "retention.ms": "1d"},
        ),
        ({"retention_ms": None}, Demand(), {}),
        ({"retention_ms": UNREAD}, Demand(), {}),
        ({"cleanup_policy": frozenset({"compact"})}, Demand(), {}),
        ({"cleanup_policy": frozenset({"compact", "delete"})}, Demand(), {}),
        ({"name": "_orders"}, Demand(), {}),
        ({"name": "app-repartition"}, Demand(), {}),
    ],
)
def test_advised_policy_entry_parses_as_a_policy(settings: dict, demand: Demand, entry: dict) -> None:
    """R4 in the place of the broker's retention; never for what kretain doesn't touch by itself (G5)."""
    one = advise(topic(**settings), demand, NOW)
    assert {key: exact(value) for key, value in one.policy_entry.items()} == entry
    if entry:
        rules = {
            "match": one.topic.name,
            "retention.commitoffset.enable": "retention.commitoffset.ms" in entry,
            **entry,
        }
        policy = parse_policy(yaml.safe_dump({"version": 1, "topics": [rules]}), "advice", "sha256:x")
        taken = policy.settings_for(one.topic.name)
        assert taken is not None
        assert taken.forced_age_ms == one.policy_at_most_ms


def test_kafka_configs_line_is_quoted_for_a_shell() -> None:
    line = kafka_configs("orders", {"segment.ms": 5, "retention.ms": 7}, "b1:9092,b2:9092", "my client.properties")
    assert shlex.split(line) == [
        *("kafka-configs.sh", "--bootstrap-server", "b1:9092,b2:9092", "--command-config", "my client.properties"),
        *("--alter", "--entity-type", "topics", "--entity-name", "orders"),
        *("--add-config", "retention.ms=7,segment.ms=5"),
    ]


times = st.integers(MINUTE, 40 * DAY)
sizes = st.integers(MIB, 20 * GIB)
topics = st.builds(
    topic,
    st.lists(st.integers(0, 2 * GIB), min_size=1, max_size=4).map(
        lambda rates: [part(n, r) for n, r in enumerate(rates)]
    ),
    retention_ms=st.none() | times,
    retention_bytes=st.none() | sizes,
    segment_ms=times,
    segment_bytes=sizes,
)
policies = st.builds(Settings, consumed_after_ms=st.none() | times, forced_age_ms=st.none() | times)
wishes = st.builds(
    Demand,
    keep_ms=st.none() | times,
    topic_bytes=st.none() | st.integers(10 * MIB, 90 * GIB),
    policy=st.none() | policies,
)


@given(topics, wishes)
def test_followed_advice_is_not_repeated_and_removes_its_dangers(about: object, demand: Demand) -> None:
    """What stays is what topic settings can't mend, a size among them that was wanted too small for the time."""
    first = advise(about, demand, NOW)  # type: ignore[arg-type]
    after = advise(first.topic.changed(first.changes), demand, NOW)
    assert after.changes == {}
    assert said(after) == {danger.code for danger in first.then_dangers}
    left = said(after) & BY_SETTINGS
    if demand.topic_bytes is None:
        left.discard("bytes-per-partition")  # only the operator knows whether it was meant for the topic
    else:
        left.discard("size-before-time")
    assert left == set()


@given(topics, wishes)
def test_advice_without_operator_wishes_never_shortens_retention(about: object, demand: Demand) -> None:
    quiet = replace(demand, keep_ms=None, topic_bytes=None)
    one = advise(about, quiet, NOW)  # type: ignore[arg-type]
    live, changed = one.topic.settings, one.topic.changed(one.changes).settings
    for before, after in ((live.retention_ms, changed.retention_ms), (live.retention_bytes, changed.retention_bytes)):
        assert after == before or (isinstance(before, int) and isinstance(after, int) and after > before)


@given(topics, wishes)
def test_advised_maximum_grows_only_by_a_longer_retention(about: object, demand: Demand) -> None:
    one = advise(about, demand, NOW)  # type: ignore[arg-type]
    if isinstance(one.at_most, AtMost) and isinstance(one.then_at_most, AtMost):
        longer = max(0, one.then_at_most.retention_ms - one.at_most.retention_ms)
        assert one.then_at_most.settings_ms <= one.at_most.settings_ms + longer
