"""R3, G3, the remembered floors, and our clock beside the brokers' on a real cluster (R3, G3, F5, F6, G8)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from retention_cli.core.clock import SYSTEM, Clock
from retention_cli.core.model import Decision, TopicPartition, Unknown
from retention_cli.core.units import format_time
from retention_cli.decide.guards.limits import Amount
from retention_cli.plan.make import LocalPlanner, PlanJob
from retention_cli.state.own_topics import STATE_TOPIC, look_at, read_stored
from retention_cli.trim.history import PastDay
from retention_cli.trim.recheck import Rechecks
from retention_cli.trim.report import TrimReport, report_as_json
from retention_cli.trim.run import TrimJob, carry_out
from tests.support.clusters import EmbeddedKafka
from tests.support.ledger_stores import memories_of, renew_state_topic
from tests.support.world import DAY, HOUR, World, consumed, now_ms, reader_for, wait_until, written

NOW = now_ms()


def set_config(world: World, topic: str, key: str, value: str) -> None:
    world.configure(topic, {key: value})
    wait_until(lambda: world.settings(topic)[key].value == value, f"{key}={value}")
    time.sleep(0.3)  # a broker tells a new setting a moment before its logs go by it


def minimum(topic: str, moment: object, **more: str) -> str:
    lines = [f"    {key.replace('__', '.')}: {value}" for key, value in more.items()]
    return "\n".join(
        ["version: 1", "topics:", f"  - match: {topic}", f"    log.retention.min.timestamp: {moment}", *lines]
    )


def texts(decision: Decision) -> str:
    return " | ".join(f"{reason.code} {reason.text}" for reason in decision.reasons)


# -- R3 ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_records_stamped_before_the_minimum_are_trimmed(world: World, kind: str) -> None:
    topic = world.filled([72 * HOUR, 48 * HOUR, 2 * HOUR], stem="minimum", message_timestamp_type=kind)
    wait_until(lambda: now_ms() > world.records(topic)[-1][1] + 1, "the last record's millisecond to pass")
    stamps = [stamp for _, stamp in world.records(topic)]
    at = stamps[2] if kind == "CreateTime" else max(stamps) + 1
    decision = world.decide(minimum(topic, at, unconsumed="trim"), topic)
    assert (decision.trim_to, decision.rule) == (2 if kind == "CreateTime" else 3, "min-timestamp")


def test_flags_alone_make_a_plan_without_a_file(world: World) -> None:
    topic = world.filled([72 * HOUR, 48 * HOUR, 2 * HOUR], stem="minimum")
    world.commit("reader", topic, 3)
    for flag, value, rule in (
        ("--before", format_time(NOW - 24 * HOUR), "min-timestamp"),
        ("--before", str(NOW - 24 * HOUR), "min-timestamp"),
        ("--event-time", "24h", "event-time"),
        ("--older-than", "24h", "forced-age"),
    ):
        plan = world.cli("plan", topic, flag, value, "-o", "json", check=0).json()
        row = plan["partitions"][0]
        assert (row["trim_to"], row["rule"]) == (2, rule)
        assert plan["policy"]["flags"].keys() == {flag}
    assert world.cli("plan", topic, "--before", "2026-11-01", "-o", "json").code == 2
    assert world.cli("plan", topic, "--before", "2026-11-01T00:00:00", "-o", "json").code == 2


# -- G3 ------------------------------------------------------------------------------------


def aged(topic: str, wait: str) -> str:
    return f"version: 1\ntopics: [{{match: {topic}, retention.ms: 24h, retention.min.wallclock.ms: {wait}}}]"


def at(world: World, policy: str, topic: str, clock_ms: int) -> Decision:
    """Plan as if it were another time: the memory's clock moves with the plan's."""
    return world.decide(policy, topic, at_ms=clock_ms)


def test_recently_written_record_stays_whatever_its_timestamp(world: World) -> None:
    """Backfilled data: stamped a year ago, written now. Only the ledger's samples know when it came."""
    topic = world.filled([365 * DAY, 364 * DAY], stem="wall")
    first = at(world, aged(topic, "2h"), topic, NOW)
    assert first.action == "hold"
    assert "G3" in texts(first)
    assert at(world, aged(topic, "2h"), topic, NOW + HOUR).action == "hold"
    world.produce(topic, [300 * DAY])
    later = at(world, aged(topic, "2h"), topic, NOW + 2 * HOUR)
    assert (later.trim_to, later.limited_by) == (2, "G3")
    assert at(world, aged(topic, "2h"), topic, NOW + 4 * HOUR).trim_to == 3
    shutil.rmtree(world.state_dir)  # the remembered fact decided
    assert at(world, aged(topic, "2h"), topic, NOW + 4 * HOUR).action == "hold"


def test_log_append_time_topic_needs_no_memory(world: World) -> None:
    topic = world.filled(3, stem="wall", message_timestamp_type="LogAppendTime")
    policy = f"version: 1\ntopics: [{{match: {topic}, retention.ms: 0, retention.min.wallclock.ms: 1h}}]"
    young = at(world, policy, topic, now_ms() + 5000)
    assert (young.action, young.trim_to) == ("keep", None)
    assert "G3" in texts(young)
    assert at(world, policy, topic, now_ms() + 2 * HOUR).trim_to == 3


def test_create_time_stamps_from_before_a_switch_are_no_append_times(world: World) -> None:
    """G3: written just now, stamped 48 h ago by their producer, in a topic that was switched since."""
    unseen, watched = world.topic("wall"), world.topic("wall")
    policy = "version: 1\ntopics:" + "".join(
        f"\n  - {{match: {topic}, retention.ms: 24h, retention.min.wallclock.ms: 2h}}" for topic in (unseen, watched)
    )
    path = written(world.state_dir.parent / "policy.yaml", policy)
    for topic in (unseen, watched):
        world.produce(topic, [48 * HOUR] * 10)
    world.cli("plan", watched, "-p", str(path), check=0)
    for topic in (unseen, watched):
        set_config(world, topic, "message.timestamp.type", "LogAppendTime")
        world.produce(topic, 5)
    rows = world.cli("trim", "-p", str(path), "--yes", "-o", "json", check=0).json()["partitions"]
    assert [row["outcome"] for row in rows] == ["held", "held"]
    for topic in (unseen, watched):
        assert world.ends(topic) == (0, 15)
        world.delete_records(topic, 4)  # the front is another by now, and was stamped by its producer, too
    rows = world.cli("trim", "-p", str(path), "--yes", "-o", "json", check=0).json()["partitions"]
    assert [(row["outcome"], world.ends(row["topic"])[0]) for row in rows] == [("held", 4)] * 2
    # What was watched for long enough goes, whoever stamped it.
    plan = world.plan(policy, at_ms=now_ms() + 3 * HOUR)
    assert {one.topic: one.trim_to for one in plan.decisions} == {unseen: 10, watched: 10}


# -- F6 and F5, remembered -----------------------------------------------------------------------


def test_deleted_group_counts_until_forgotten_or_too_old(world: World) -> None:
    topic = world.filled([72 * HOUR] * 10, stem="gone")
    world.commit(f"slow-{topic}", topic, 3)
    world.commit(f"fast-{topic}", topic, 8)
    assert world.decide(consumed(topic), topic).trim_to == 3
    world.delete_group(f"slow-{topic}")
    still = world.decide(consumed(topic), topic)
    assert (still.trim_to, still.min_commit_by) == (3, f"group:slow-{topic}")
    assert "F6" in texts(still)
    assert world.decide(consumed(topic) + '\ngroups: {ignore: ["slow-*"]}', topic).trim_to == 8
    assert at(world, consumed(topic) + "\ngroups: {remember: 0}", topic, now_ms() + 1000).trim_to == 8
    shutil.rmtree(world.state_dir)  # the remembered fact decided
    assert world.decide(consumed(topic), topic).trim_to == 8


def test_unreadable_ledger_holds_every_floor_and_names_the_remedy(world: World) -> None:
    topic = world.filled([72 * HOUR] * 5, stem="broken")
    world.commit("reader", topic, 5)
    assert world.decide(consumed(topic), topic).trim_to == 5
    ledger = next(Path(world.state_dir).rglob("ledger.sqlite"))
    ledger.write_bytes(b"nonsense" * 1000)
    held = world.decide(consumed(topic), topic)
    assert held.action == "hold"
    assert "F6" in texts(held)
    assert "move it away" in texts(held)
    assert ledger.read_bytes() == b"nonsense" * 1000


def test_unwritable_state_directory_is_a_note(world: World) -> None:
    topic = world.filled([72 * HOUR] * 5, stem="unwritable")
    world.commit("reader", topic, 5)
    world.state_dir = Path("/dev/null/state")
    plan = world.plan(consumed(topic))
    assert [one.trim_to for one in plan.decisions] == [5]
    assert any(note.code == "ledger" for note in plan.notes)


OLD = [30 * HOUR] * 10
MINUTE = 60_000


@pytest.fixture(scope="module", autouse=True)
def _kretain_topics(kafka: EmbeddedKafka) -> None:
    renew_state_topic(kafka.bootstrap)


def nothing() -> None:
    """Happens between a plan and its trim."""


def trim(
    world: World,
    policy: str,
    *,
    ahead_ms: int = 0,
    dry_run: bool = False,
    meanwhile: Callable[[], object] = nothing,
) -> TrimReport:
    """Plan with the right clock, and trim with one that is wrong by so much."""
    chosen = world.selection(policy)
    with reader_for(world.bootstrap) as reader:
        memories = memories_of(world.state_dir, chosen.policy.state, reader)
        plan = LocalPlanner().plan(PlanJob(reader, chosen, now_ms(), past_day=lambda _: Amount(), memories=memories))
        assert plan.totals.trim == 1
        meanwhile()
        job = TrimJob(
            reader=reader,
            plan=plan,
            exit_code_for=lambda _report: 0,
            selection=lambda: chosen,
            state_dir=world.state_dir,
            clock_ms=lambda: now_ms() + ahead_ms,
            dry_run=dry_run,
            memories=memories,
        )
        return carry_out(job)


def stamps(world: World) -> int:
    with reader_for(world.bootstrap) as reader:
        stored = read_stored(reader, look_at(reader, STATE_TOPIC)[1])
    return sum(one.key == b"clock" for one in stored)


def ready(world: World, state: str = "cluster", **more: str) -> tuple[str, str]:
    topic = world.filled(OLD, {"a": 7})
    return topic, f"state: {state}\n{consumed(topic, **more)}"


@pytest.mark.parametrize("ahead_ms", [0, 50_000, -50_000])
def test_clock_within_a_minute_of_the_brokers_trims_and_is_reported_as_checked(world: World, ahead_ms: int) -> None:
    topic, policy = ready(world)
    report = trim(world, policy, ahead_ms=ahead_ms)
    assert [row.outcome for row in report.rows] == ["trimmed"]
    assert world.ends(topic)[0] == 7
    assert report_as_json(report)["clock"] == "checked"


@pytest.mark.parametrize(("ahead_ms", "which"), [(5 * MINUTE, "ahead of"), (-5 * MINUTE, "behind")])
def test_clock_minutes_off_holds_every_rule_by_time(world: World, ahead_ms: int, which: str) -> None:
    topic, policy = ready(world, retention__ms="1d")
    report = trim(world, policy, ahead_ms=ahead_ms)
    assert [row.outcome for row in report.rows] == ["held"]
    assert world.ends(topic)[0] == 0
    said = {reason.text for reason in report.rows[0].reasons if reason.code == "G8"}
    assert len(said) == 1
    assert f"s {which} the brokers': correct it (NTP) before trimming" in said.pop()
    assert report.clock == "checked"


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
            again = Rechecks(reader, lambda: chosen, now_ms, {}, PastDay(Amount()), memories, clock=compared)
            found = again.recheck([TopicPartition(topic, 0)])
            if wrong is None:
                memories.save(clock.wall_ms())
        return found.decisions[TopicPartition(topic, 0)].min_commit

    assert floor(SYSTEM, None) == 4
    world.delete_group(f"{topic}-gone")
    assert floor(SYSTEM, None) == 4
    assert floor(AheadClock(), None) == 7, "it was gone for 40 days"
    assert floor(AheadClock(), Unknown.because("G8", "this machine's clock is ahead")) == 4


def test_local_state_leaves_the_clock_unchecked_and_reports_it(world: World) -> None:
    _, policy = ready(world, "local")
    report = trim(world, policy, ahead_ms=5 * MINUTE)
    assert [row.outcome for row in report.rows] == ["trimmed"]
    assert report_as_json(report)["clock"] == "unchecked"


def test_dry_run_writes_no_clock_message(world: World) -> None:
    _, policy = ready(world)
    before = stamps(world)
    report = trim(world, policy, dry_run=True)
    assert [row.outcome for row in report.rows] == ["would-trim"]
    assert report.clock == "unchecked"
    assert stamps(world) == before
    assert trim(world, policy).clock == "checked"
    assert stamps(world) == before + 1


def test_brokers_without_a_timestamp_hold_rules_by_time(world: World) -> None:
    """Where they can be asked and don't answer, nothing is known of our clock: held, not trusted."""
    topic, policy = ready(world, retention__ms="1d")
    try:
        report = trim(world, policy, meanwhile=lambda: world.delete(STATE_TOPIC))
    finally:
        renew_state_topic(world.bootstrap)
    assert [row.outcome for row in report.rows] == ["held"]
    told = next(reason.text for reason in report.rows[0].reasons if reason.code == "G8")
    assert told == (
        "the brokers' time could not be read (state: cluster): topic _kretain_state could not be written to: it does not "
        "exist: kretain cluster init creates it"
    )
    assert world.ends(topic)[0] == 0
    assert report.clock == "unchecked"
