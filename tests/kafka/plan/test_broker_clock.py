"""Our clock beside the brokers' (G8): with state: cluster a trim asks them, and believes no clock that differs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from retention_cli.core.clock import SYSTEM, Clock
from retention_cli.core.model import TopicPartition, Unknown
from retention_cli.decide.guards.limits import Amount
from retention_cli.plan.make import LocalPlanner, PlanJob
from retention_cli.state.own_topics import STATE_TOPIC, read_stored, topic_ranges
from retention_cli.trim.history import PastDay
from retention_cli.trim.recheck import Rechecks
from retention_cli.trim.report import TrimReport, report_as_json
from retention_cli.trim.run import TrimJob, carry_out
from tests.support.clusters import EmbeddedKafka
from tests.support.ledger_stores import memories_of, renew_state_topic
from tests.support.trims import only
from tests.support.world import HOUR, MINUTE, OLD, World, consumed, now_ms, reader_for


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


def g8_of(report: TrimReport) -> list[str]:
    """Return what the only row, which is held, says of the clock."""
    row = only(report)
    assert row.outcome == "held", row
    return sorted({reason.text for reason in row.reasons if reason.code == "G8"})


def stamps(world: World) -> int:
    with reader_for(world.bootstrap) as reader:
        stored = read_stored(reader, topic_ranges(reader, STATE_TOPIC)[1])
    return sum(one.key == b"clock" for one in stored)


def ready(world: World, state: str = "cluster", **more: str) -> tuple[str, str]:
    topic = world.filled(OLD, {"a": 7})
    return topic, f"state: {state}\n{consumed(topic, **more)}"


@pytest.mark.parametrize("ahead_ms", [0, 50_000, -50_000])
def test_clock_within_a_minute_of_the_brokers_trims_and_is_reported_as_checked(world: World, ahead_ms: int) -> None:
    topic, policy = ready(world)
    report = trim(world, policy, ahead_ms=ahead_ms)
    assert (only(report).outcome, world.ends(topic)[0]) == ("trimmed", 7)
    assert report_as_json(report)["clock"] == "checked"


@pytest.mark.parametrize(("ahead_ms", "which"), [(5 * MINUTE, "ahead of"), (-5 * MINUTE, "behind")])
def test_clock_minutes_off_holds_every_rule_by_time(world: World, ahead_ms: int, which: str) -> None:
    topic, policy = ready(world, retention__ms="1d")
    report = trim(world, policy, ahead_ms=ahead_ms)
    [said] = g8_of(report)
    assert f"s {which} the brokers': correct it (NTP) before trimming" in said
    assert (world.ends(topic)[0], report.clock) == (0, "checked")


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
    assert (only(report).outcome, report_as_json(report)["clock"]) == ("trimmed", "unchecked")


def test_dry_run_writes_no_clock_message(world: World) -> None:
    _, policy = ready(world)
    before = stamps(world)
    report = trim(world, policy, dry_run=True)
    assert (only(report).outcome, report.clock, stamps(world)) == ("would-trim", "unchecked", before)
    assert (trim(world, policy).clock, stamps(world)) == ("checked", before + 1)


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
    assert (world.ends(topic)[0], report.clock) == (0, "unchecked")
