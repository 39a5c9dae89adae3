"""A forecast of a real cluster, with days made seconds: what it says is kept is what is kept later."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest

from retention_cli.core.model import Unknown
from retention_cli.forecast.value import Span
from tests.support.forecasting import A_SECOND, foretell, written_to
from tests.support.world import World, wait_until


def within(span: Any, value: float, slack: float) -> None:
    assert isinstance(span, Span), span
    assert span.low - slack <= value <= span.high + slack


@pytest.mark.thorough
def test_forecast_matches_what_is_kept_later(world: World) -> None:
    """R4 keeps five seconds of one topic, brokers keep 256 KiB of another, a third grows without end."""
    aged, sized, endless = world.topic("aged"), world.topic("sized", retention_bytes="262144"), world.topic("endless")
    world.configure(sized, {"segment.bytes": "1048576"})
    policy = f"""
version: 1
topics:
  - match: {aged}
    retention.ms: 5s
  - match: [{sized}, {endless}]
    retention.commitoffset.enable: true
    retention.commitoffset.ms: 1h
"""
    first = foretell(world, policy)
    assert all(isinstance(one.rate, Unknown) and isinstance(one.policy.records, Unknown) for one in first.topics)
    with written_to(world, aged, sized, endless):
        begun = time.monotonic()
        while time.monotonic() - begun < 6:
            world.plan(policy)
            time.sleep(1)
        world.commit("slow", aged, 100)
        made = foretell(world, policy)
        foretold = {one.name: one for one in made.topics}
        for name in (aged, sized, endless):
            rate = foretold[name].rate
            assert not isinstance(rate, Unknown)
            assert rate.mean * 1000 == pytest.approx(A_SECOND, rel=0.35)
        assert foretold[endless].alone.records == (math.inf, math.inf)
        assert foretold[endless].by == foretold[sized].by == "brokers"
        assert foretold[aged].by == "R4"
        group = next(one for one in made.groups if one.group == "slow")
        assert group.topic == aged
        assert not isinstance(group.loss, Unknown)
        assert group.loss.cause == "R4"
        assert group.loss.if_stopped_ms.low <= 5000
        for _ in range(2):
            world.trim(world.plan(policy), policy)
            time.sleep(2)
        wait_until(lambda: world.ends(sized)[0] > 0, "the brokers' own retention")
        world.trim(world.plan(policy), policy)
        kept = {name: world.ends(name)[1] - world.ends(name)[0] for name in (aged, sized)}
    for name, records in kept.items():
        within(foretold[name].policy.records, records, A_SECOND)
    assert world.ends(endless)[0] == 0
    end = world.ends(aged)
    assert end[0] > 100, "the group was foretold to lose records, and has"
    after = foretell(world, policy)
    assert next(one for one in after.groups if one.group == "slow").loss.cause == "gone"  # type: ignore[union-attr]


def test_deleted_group_holds_without_end_in_a_forecast(world: World) -> None:
    topic = world.topic("left")
    policy = f"""
version: 1
topics: [{{match: {topic}, retention.commitoffset.enable: true, retention.commitoffset.ms: 1s}}]
"""
    world.produce(topic, 30)
    world.commit("leaver", topic, 10)
    foretell(world, policy)
    world.delete_group("leaver")
    time.sleep(1.1)
    world.produce(topic, 30)
    (found,) = foretell(world, policy, least_ms=1000).topics
    assert found.policy.records == Span(50, math.inf)
    assert [reason.code for reason in found.reasons] == ["F6"]


def test_forecast_command_changes_nothing_and_names_unknowns(world: World, tmp_path: Path) -> None:
    topic = world.filled(50, stem="quiet")
    file, other = tmp_path / "policy.yaml", tmp_path / "other.yaml"
    file.write_text(f"version: 1\ntopics: [{{match: {topic}, retention.ms: 1d}}]\n", encoding="utf-8")
    other.write_text(f"version: 1\ntopics: [{{match: {topic}, retention.ms: 2d}}]\n", encoding="utf-8")
    common = ["-p", str(file)]
    found = world.cli("forecast", *common, "--compare", str(other), "-o", "json", check=0).json()
    assert found["format"] == "kretain.forecast/v1"
    assert found["compared"]["source"] == str(other)
    (row,) = found["topics"]
    assert (row["policy"], row["compared"], row["alone"], row["now_records"]) == (*["unknown"] * 3, 50)
    assert "samples cover" in row["reasons"][0]["text"]
    assert any(not one["full_policy_in_known"] and one["reasons"] for one in found["disks"])
    assert world.ends(topic) == (0, 50)
    assert "Unknown for 1 topic" in world.cli("forecast", *common, check=0).out
    csv = world.cli("forecast", *common, "-o", "csv", check=0).out.splitlines()
    assert csv[0].startswith("topic,partitions,now_records")
    assert csv[1].startswith(f"{topic},1,50,")


def test_forecast_with_a_price_shows_money_by_topic_label_and_consumer(world: World, tmp_path: Path) -> None:
    topic, file = world.filled(50, stem="dear"), tmp_path / "policy.yaml"
    text = f"""
version: 1
cost: {{per.gib.month: 1000000000, replication: REPLICATION, currency: EUR}}
topics:
  - match: {topic}
    retention.commitoffset.enable: true
    retention.commitoffset.ms: 1
    labels: {{team: payments}}
"""
    file.write_text(text.replace("REPLICATION", "included"), encoding="utf-8")
    world.commit("billing", topic, 20)
    world.cli("trim", "-p", str(file), "--yes", check=0)
    time.sleep(1.1)
    world.produce(topic, 30)
    command = ("forecast", "-p", str(file), "--least", "1s", "--every", "100ms")
    found = world.cli(*command, "-o", "json", check=0).json()
    [row], cost = found["topics"], found["cost"]
    assert row["labels"] == "team=payments"
    assert row["cost_now_low"] == pytest.approx(row["now_bytes"] * 1e9 / 2**30)
    assert row["cost_saved_so_far_low"] == 0 < row["cost_saved_so_far_high"]
    assert [(one["label"], one["cost_now_low"]) for one in cost["labels"]] == [("team=payments", row["cost_now_low"])]
    [consumer] = cost["consumers"]
    assert consumer["consumer"] == "group:billing"
    assert consumer["cost_unread_month_high"] >= consumer["cost_unread_month_low"] > 0
    file.write_text(text.replace("REPLICATION", "excluded"), encoding="utf-8")
    replicas = len(world.admin.list_topics(topic, 10).topics[topic].partitions[0].replicas)
    [each] = world.cli(*command, "-o", "json", check=0).json()["topics"]
    assert each["cost_now_low"] == pytest.approx(replicas * each["now_bytes"] * 1e9 / 2**30)
    out = world.cli(*command, check=0).out
    for part in (
        "1e+09 EUR per GiB and month, each replica",
        "team=payments",
        "group:billing",
        "Saved so far: at most ",
    ):
        assert part in out
