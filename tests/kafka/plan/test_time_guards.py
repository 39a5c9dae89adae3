"""R3, G3 and the remembered floors on a real cluster (R3, G3, F5, F6)."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from retention_cli.core.units import format_time
from tests.support.says import json_of, pick, rows_of, says
from tests.support.world import DAY, HOUR, World, consumed, now_ms, texts, wait_until, written

NOW = now_ms()


def set_config(world: World, topic: str, key: str, value: str) -> None:
    world.configure(topic, {key: value})
    wait_until(lambda: world.settings(topic)[key].value == value, f"{key}={value}")
    time.sleep(0.3)  # a broker tells a new setting a moment before its logs go by it


def ruled(topic: str, *rules: str) -> str:
    return f"version: 1\ntopics: [{{match: {topic}, {', '.join(rules)}}}]"


# -- R3 ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_records_stamped_before_the_minimum_are_trimmed(world: World, kind: str) -> None:
    topic = world.filled([72 * HOUR, 48 * HOUR, 2 * HOUR], stem="minimum", message_timestamp_type=kind)
    wait_until(lambda: now_ms() > world.records(topic)[-1][1] + 1, "the last record's millisecond to pass")
    stamps = [stamp for _, stamp in world.records(topic)]
    at = stamps[2] if kind == "CreateTime" else max(stamps) + 1
    policy = ruled(topic, f"log.retention.min.timestamp: {at}", "unconsumed: trim")
    assert pick(world.decide(policy, topic), "trim_to", "rule") == (2 if kind == "CreateTime" else 3, "min-timestamp")


def test_flags_alone_make_a_plan_without_a_file(world: World) -> None:
    topic = world.filled([72 * HOUR, 48 * HOUR, 2 * HOUR], {"reader": 3}, stem="minimum")
    for flag, value, rule in (
        ("--before", format_time(NOW - 24 * HOUR), "min-timestamp"),
        ("--before", str(NOW - 24 * HOUR), "min-timestamp"),
        ("--event-time", "24h", "event-time"),
        ("--older-than", "24h", "forced-age"),
    ):
        plan = json_of(world, "plan", topic, flag, value)
        assert pick(plan["partitions"][0], "trim_to", "rule") == (2, rule)
        assert plan["policy"]["flags"].keys() == {flag}
    for value in ("2026-11-01", "2026-11-01T00:00:00"):
        world.cli("plan", topic, "--before", value, "-o", "json", check=2)


# -- G3 ------------------------------------------------------------------------------------


def aged(topic: str, wait: str, age: str = "24h") -> str:
    return ruled(topic, f"retention.ms: {age}", f"retention.min.wallclock.ms: {wait}")


def test_recently_written_record_stays_whatever_its_timestamp(world: World) -> None:
    """Backfilled data: stamped a year ago, written now. Only the ledger's samples know when it came."""
    topic = world.filled([365 * DAY, 364 * DAY], stem="wall")
    policy = aged(topic, "2h")
    first = world.decide(policy, topic, at_ms=NOW)
    assert (first.action, "G3" in texts(first)) == ("hold", True), first
    assert world.decide(policy, topic, at_ms=NOW + HOUR).action == "hold"
    world.produce(topic, [300 * DAY])
    assert pick(world.decide(policy, topic, at_ms=NOW + 2 * HOUR), "trim_to", "limited_by") == (2, "G3")
    assert world.decide(policy, topic, at_ms=NOW + 4 * HOUR).trim_to == 3
    shutil.rmtree(world.state_dir)  # the remembered fact decided
    assert world.decide(policy, topic, at_ms=NOW + 4 * HOUR).action == "hold"


def test_log_append_time_topic_needs_no_memory(world: World) -> None:
    topic = world.filled(3, stem="wall", message_timestamp_type="LogAppendTime")
    policy = aged(topic, "1h", "0")
    young = world.decide(policy, topic, at_ms=now_ms() + 5000)
    assert (young.action, young.trim_to, "G3" in texts(young)) == ("keep", None, True), young
    assert world.decide(policy, topic, at_ms=now_ms() + 2 * HOUR).trim_to == 3


def test_create_time_stamps_from_before_a_switch_are_no_append_times(world: World, tmp_path: Path) -> None:
    """G3: written just now, stamped 48 h ago by their producer, in a topic that was switched since."""
    unseen, watched = world.topic("wall"), world.topic("wall")
    policy = aged(f"[{unseen}, {watched}]", "2h")
    path = written(tmp_path / "policy.yaml", policy)
    for topic in (unseen, watched):
        world.produce(topic, [48 * HOUR] * 10)
    world.cli("plan", watched, "-p", str(path), check=0)
    for topic in (unseen, watched):
        set_config(world, topic, "message.timestamp.type", "LogAppendTime")
        world.produce(topic, 5)
    # The plan itself, not only the second look before a deletion.
    assert [one.action for one in world.plan(policy).decisions] == ["hold", "hold"]
    for topic, row in rows_of(world, "trim", "-p", str(path), "--yes").items():
        assert (row["outcome"], world.ends(topic)) == ("held", (0, 15))
        world.delete_records(topic, 4)  # the front is another by now, and was stamped by its producer, too
    outcomes = {topic: row["outcome"] for topic, row in rows_of(world, "trim", "-p", str(path), "--yes").items()}
    assert outcomes == {unseen: "held", watched: "held"}
    assert [world.ends(topic)[0] for topic in (unseen, watched)] == [4, 4]
    # What was watched for long enough goes, whoever stamped it.
    plan = world.plan(policy, at_ms=now_ms() + 3 * HOUR)
    assert {one.topic: one.trim_to for one in plan.decisions} == {unseen: 10, watched: 10}


# -- F6 and F5, remembered -----------------------------------------------------------------------


def test_deleted_group_counts_until_forgotten_or_too_old(world: World) -> None:
    topic = world.filled([72 * HOUR] * 10, {"slow": 3, "fast": 8}, stem="gone")
    assert world.decide(consumed(topic), topic).trim_to == 3
    world.delete_group(f"{topic}-slow")
    still = world.decide(consumed(topic), topic)
    assert (still.trim_to, still.min_commit_by, "F6" in texts(still)) == (3, f"group:{topic}-slow", True), still
    assert world.decide(consumed(topic) + '\ngroups: {ignore: ["*-slow"]}', topic).trim_to == 8
    forgetful = consumed(topic) + "\ngroups: {remember: 0}"
    assert world.decide(forgetful, topic, at_ms=now_ms() + 1000).trim_to == 8
    shutil.rmtree(world.state_dir)  # the remembered fact decided
    assert world.decide(consumed(topic), topic).trim_to == 8


def test_unreadable_ledger_holds_every_floor_and_names_the_remedy(world: World) -> None:
    topic = world.filled([72 * HOUR] * 5, {"reader": 5}, stem="broken")
    assert world.decide(consumed(topic), topic).trim_to == 5
    ledger = next(Path(world.state_dir).rglob("ledger.sqlite"))
    ledger.write_bytes(b"nonsense" * 1000)
    decision = world.decide(consumed(topic), topic)
    assert decision.action == "hold"
    says(texts(decision), "F6", "move it away")
    assert ledger.read_bytes() == b"nonsense" * 1000


def test_unwritable_state_directory_is_a_note(world: World) -> None:
    topic = world.filled([72 * HOUR] * 5, {"reader": 5}, stem="unwritable")
    world.state_dir = Path("/dev/null/state")
    plan = world.plan(consumed(topic))
    assert [one.trim_to for one in plan.decisions] == [5]
    assert any(note.code == "ledger" for note in plan.notes)
