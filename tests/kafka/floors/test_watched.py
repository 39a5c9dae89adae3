"""R1 waits until groups have been watched for long enough, in this state directory or by anybody (F10)."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from kretain.embedded import EmbeddedKafka
from retention_cli.core.model import Decision
from tests.support.ledger_stores import Store, memories_of, renew_state_topic
from tests.support.world import HOUR, World, codes, consumed, now_ms, reader_for

DAY = 24 * HOUR
OLD = [30 * HOUR] * 10


def watching(topic: str, first: str = "3d", **more: str) -> str:
    return f"groups:\n  watch.first: {first}\n{consumed(topic, **more)}"


@pytest.mark.parametrize("days", [(0, 1, 2, 3), (0, 0.5, 3.2, 4, 5, 6.3)], ids=["daily", "a pause"])
def test_r1_holds_until_groups_were_watched_without_a_pause(world: World, days: tuple[float, ...]) -> None:
    topic, began = world.filled(OLD, {"reader": 7}), now_ms()
    seen = [world.decide(watching(topic), topic, at_ms=began + int(day * DAY)) for day in days]
    assert [(one.action, one.trim_to, codes(one)) for one in seen[:-1]] == [("hold", None, {"F10"})] * (len(days) - 1)
    assert (seen[-1].action, seen[-1].trim_to, seen[-1].rule) == ("trim", 7, "consumed")


def test_new_state_directory_holds_r1_again_also_in_the_recheck_of_a_saved_plan(world: World) -> None:
    topic, began = world.filled(OLD, {"reader": 7}), now_ms()
    policy = watching(topic, "1d")
    world.decide(policy, topic, at_ms=began - DAY)
    plan = world.plan(policy)
    assert [one.action for one in plan.decisions] == ["trim"]
    shutil.rmtree(world.state_dir)
    [row] = world.trim(plan, policy).rows
    assert row.outcome == "held"
    assert {one.code for one in row.reasons} == {"F10"}
    assert world.ends(topic)[0] == 0


def test_other_rules_go_on_while_r1_waits(world: World) -> None:
    topic = world.filled(OLD, {"reader": 7})
    found: Decision = world.decide(watching(topic, retention__ms="24h"), topic)
    assert (found.action, found.rule, codes(found)) == ("trim", "forced-age", {"F10"})


def test_plan_says_until_when_r1_waits_and_nothing_where_there_is_nothing_to_trim(world: World, tmp_path: Path) -> None:
    topic = world.filled(OLD, {"reader": 0})
    policy = tmp_path / "policy.yaml"
    policy.write_text(watching(topic))
    assert "F10" not in world.cli("plan", "-p", str(policy), check=0).out
    world.commit(f"{topic}-reader", topic, 5)
    said = " ".join(world.cli("plan", "-p", str(policy), check=0).out.split())
    assert "R1 holds until 20" in said
    assert "(groups.watch.first: 3 d)" in said


def test_looks_of_all_operators_add_up_with_state_cluster(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    renew_state_topic(kafka.bootstrap)
    first, second = (Store("cluster", kafka.bootstrap, tmp_path / name) for name in ("first", "second"))
    now = now_ms()
    for store, hours in ((first, 30), (second, 10), (first, 0)):
        with store.opened() as (ledger, memories):
            ledger.begin({})
            ledger.saw_all("", (), now - hours * HOUR)
            store.save(memories)
    with second.opened() as (ledger, _):
        assert ledger.watched_since("", (), now) == now - 30 * HOUR
    off = DAY  # a machine whose clock is ahead: its looks are not believed
    with (
        reader_for(kafka.bootstrap) as reader,
        closing(memories_of(tmp_path / "third", "cluster", reader, lambda: now_ms() + off)) as memories,
    ):
        ledger = memories("the-cluster")
        ledger.saw_all("", (), now + off)
        memories.save(now + off)
    with second.opened() as (ledger, _):
        assert ledger.watched_since("", (), now + off + 30 * HOUR) is None
