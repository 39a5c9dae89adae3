"""R3, G3, G8 and the remembered floors on a real cluster (F5, F6)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from retention_cli.core.clock import SYSTEM, Clock
from retention_cli.core.model import TopicPartition, Unknown
from retention_cli.core.units import format_time
from retention_cli.decide.guards.limits import Amount
from retention_cli.plan.make import LocalPlanner, PlanJob
from retention_cli.state.own_topics import STATE_TOPIC, read_stored, topic_ranges
from retention_cli.trim.history import PastDay
from retention_cli.trim.recheck import Rechecks
from retention_cli.trim.report import TrimReport, report_as_json
from retention_cli.trim.run import TrimJob, carry_out
from tests.support.clusters import EmbeddedKafka
from tests.support.ledger_stores import memories_of, renew_state_topic
from tests.support.says import json_of, pick, rows_of, says
from tests.support.trims import only
from tests.support.world import DAY, HOUR, MINUTE, OLD, World, consumed, now_ms, reader_for, texts, wait_until, written

NOW = now_ms()


def ruled(topic: str, *rules: str) -> str:
    return f"version: 1\ntopics: [{{match: {topic}, {', '.join(rules)}}}]"


# -- R3 ----------------------------------------------------------------------------------


def test_records_appended_before_the_minimum_are_trimmed(world: World) -> None:
    """By the producer's stamp: ``test_scenarios.py``."""
    topic = world.filled([72 * HOUR, 48 * HOUR, 2 * HOUR], stem="minimum", message_timestamp_type="LogAppendTime")
    at = max(stamp for _, stamp in world.records(topic)) + 1
    wait_until(lambda: now_ms() > at, "the last record's millisecond to pass")
    policy = ruled(topic, f"log.retention.min.timestamp: {at}", "unconsumed: trim")
    assert pick(world.decide(policy, topic), "trim_to", "rule") == (3, "min-timestamp")


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
    key, now = "message.timestamp.type", "LogAppendTime"
    for topic in (unseen, watched):
        world.configure(topic, {key: now})
        wait_until(lambda topic=topic: world.settings(topic)[key].value == now, f"{key}={now}")  # type: ignore[misc]
        time.sleep(0.3)  # a broker tells a new setting a moment before its logs go by it
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
    assert world.decide(consumed(topic) + "\ngroups: {remember: 0}", topic, at_ms=now_ms() + 1000).trim_to == 8
    shutil.rmtree(world.state_dir)  # the remembered fact decided
    assert world.decide(consumed(topic), topic).trim_to == 8


def test_unreadable_ledger_holds_every_floor_and_names_the_remedy(world: World) -> None:
    topic = world.filled([72 * HOUR] * 5, {"reader": 5}, stem="broken")
    assert world.decide(consumed(topic), topic).trim_to == 5
    ledger = written(next(world.state_dir.rglob("ledger.sqlite")), b"nonsense" * 1000)
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


# -- G8: our clock beside the brokers' ---------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def _kretain_topics(kafka: EmbeddedKafka) -> None:
    renew_state_topic(kafka.bootstrap)


def trim(
    world: World,
    policy: str,
    *,
    ahead_ms: int = 0,
    dry_run: bool = False,
    meanwhile: Callable[[], object] = lambda: None,
) -> TrimReport:
    """Plan with the right clock, and trim with one that is wrong by so much."""
    chosen = world.selection(policy)
    with reader_for(world.bootstrap) as reader:
        memories = memories_of(world.state_dir, chosen.policy.state, reader)
        plan = LocalPlanner().plan(PlanJob(reader, chosen, now_ms(), past_day=lambda _: Amount(), memories=memories))
        assert plan.totals.trim == 1
        meanwhile()
        return carry_out(
            TrimJob(
                reader=reader,
                plan=plan,
                exit_code_for=lambda _report: 0,
                selection=lambda: chosen,
                state_dir=world.state_dir,
                clock_ms=lambda: now_ms() + ahead_ms,
                dry_run=dry_run,
                memories=memories,
            )
        )


def g8_of(report: TrimReport) -> list[str]:
    """Return what the only row says of the clock."""
    return sorted({reason.text for reason in only(report).reasons if reason.code == "G8"})


def stamps(world: World) -> int:
    with reader_for(world.bootstrap) as reader:
        stored = read_stored(reader, topic_ranges(reader, STATE_TOPIC)[1])
    return sum(one.key == b"clock" for one in stored)


def ready(world: World, state: str = "cluster", **more: str) -> tuple[str, str]:
    topic = world.filled(OLD, {"a": 7})
    return topic, f"state: {state}\n{consumed(topic, **more)}"


@pytest.mark.parametrize(
    ("ahead_ms", "outcome", "start", "which"),
    [
        (50_000, "trimmed", 10, ""),
        (-50_000, "trimmed", 10, ""),
        (5 * MINUTE, "held", 0, "ahead of"),
        (-5 * MINUTE, "held", 0, "behind"),
    ],
    ids=["a little ahead", "a little behind", "minutes ahead", "minutes behind"],
)
def test_clock_that_is_minutes_off_holds_every_rule_by_time(
    world: World, ahead_ms: int, outcome: str, start: int, which: str
) -> None:
    topic, policy = ready(world, retention__ms="1d")
    report = trim(world, policy, ahead_ms=ahead_ms)
    assert (only(report).outcome, world.ends(topic)[0]) == (outcome, start)
    assert report_as_json(report)["clock"] == "checked"
    remedy = f"s {which} the brokers': correct it (NTP) before trimming"
    assert [remedy in text for text in g8_of(report)] == [True] * (outcome == "held")


class AheadClock(Clock):
    def wall_ms(self) -> int:
        return super().wall_ms() + 40 * 24 * HOUR


def test_wrong_clock_forgets_no_group(world: World) -> None:
    """R5 and R6 have no now, but a group that is gone counts for 30 days by our clock (F6)."""
    topic, policy = ready(world)
    world.commit(f"{topic}-gone", topic, 4)
    chosen = world.selection(policy)

    def floor(clock: Clock, wrong: Unknown | None) -> int | None:
        with reader_for(world.bootstrap, clock=clock) as reader:
            memories = memories_of(world.state_dir, "cluster", reader, clock.wall_ms)
            compared: Any = SimpleNamespace(compare=lambda: wrong)
            again = Rechecks(reader, lambda: chosen, clock.wall_ms, {}, PastDay(Amount()), memories, clock=compared)
            found = again.recheck([TopicPartition(topic, 0)])
            if wrong is None:
                memories.save(clock.wall_ms())
        return found.decisions[TopicPartition(topic, 0)].min_commit

    assert floor(SYSTEM, None) == 4
    world.delete_group(f"{topic}-gone")
    assert floor(SYSTEM, None) == 4
    assert floor(AheadClock(), None) == 7, "it was gone for 40 days"
    assert floor(AheadClock(), Unknown.because("G8", "this machine's clock is ahead")) == 4


def test_only_a_trim_with_shared_state_asks_the_brokers_for_the_time(world: World) -> None:
    """Elsewhere the report says that our clock was not checked."""
    _, policy = ready(world)
    before = stamps(world)
    report = trim(world, policy, dry_run=True)
    assert (only(report).outcome, report.clock, stamps(world)) == ("would-trim", "unchecked", before)
    assert (trim(world, policy).clock, stamps(world)) == ("checked", before + 1)
    report = trim(world, ready(world, "local")[1], ahead_ms=5 * MINUTE)
    assert (only(report).outcome, report_as_json(report)["clock"]) == ("trimmed", "unchecked")


def test_brokers_without_a_timestamp_hold_rules_by_time(world: World) -> None:
    """Where they can be asked and don't answer, nothing is known of our clock: held, not trusted."""
    topic, policy = ready(world, retention__ms="1d")
    try:
        report = trim(world, policy, meanwhile=lambda: world.delete(STATE_TOPIC))
    finally:
        renew_state_topic(world.bootstrap)
    [said] = g8_of(report)
    assert said == (
        "the brokers' time could not be read (state: cluster): topic _kretain_state could not be written to: it does not "
        "exist: kretain cluster init creates it"
    )
    assert (only(report).outcome, world.ends(topic)[0], report.clock) == ("held", 0, "unchecked")
