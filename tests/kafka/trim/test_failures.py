"""Brokers that die, freeze and come back, on clusters of these tests' own (F3, F5, F9; trim's retries)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from retention_cli.brokers.deleter import Deleter
from retention_cli.brokers.groups import find_coordinators
from retention_cli.brokers.log_offsets import Found, NotFound
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import TopicPartition
from tests.support.clusters import EmbeddedKafka
from tests.support.leaders import SETTINGS, epoch_now, leaders, move_leader
from tests.support.trims import read_topic
from tests.support.world import HOUR, OLD, World, codes, consumed, now_ms, reader_for, wait_until, written


@pytest.fixture(scope="module")
def three(archived_classes: None) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(3, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def harmed(three: EmbeddedKafka, tmp_path: Path) -> Iterator[World]:
    """A cluster whose brokers a test may kill; afterwards they are started again."""
    yield World(three.bootstrap, tmp_path / "state")
    for node in three.nodes:
        if node.pid is None:
            three.start_node(node)
    three.wait_until_ready()


@pytest.fixture(scope="module")
def one(archived_classes: None) -> Iterator[EmbeddedKafka]:
    """A single broker, which a test may freeze."""
    with EmbeddedKafka(1, settings=SETTINGS) as cluster:
        yield cluster


def coordinator_of(world: World, group: str) -> int:
    found: dict[str, int] = {}

    def known() -> bool:
        with reader_for(world.bootstrap) as reader:
            found.update(reader.wire.run(find_coordinators, reader.wire, [group], time.monotonic() + 30)[0])
        return group in found

    wait_until(known, f"the coordinator of {group}")
    return found[group]


def both_kinds(world: World) -> tuple[str, str, str]:
    """A topic that survives a broker's death, one that doesn't, and a policy for both."""
    safe, lone = (world.filled(OLD, None, 3, stem=stem, replicas=n) for stem, n in (("safe", 3), ("lone", 1)))
    for name in (safe, lone):
        world.commit("readers", name, {0: 8, 1: 8, 2: 8})
    rules = "retention.commitoffset.enable: true, retention.commitoffset.ms: 1h"
    return safe, lone, f"version: 1\ntopics: [{{match: [{safe}, {lone}], {rules}}}]"


def killable(world: World, three: EmbeddedKafka, group: str) -> int:
    """A broker whose death spares the group's coordinator."""
    return next(node.node_id for node in three.nodes if node.node_id != coordinator_of(world, group))


def test_leader_lost_between_plan_and_trim_is_replaced(harmed: World, three: EmbeddedKafka) -> None:
    safe, lone, policy = both_kinds(harmed)
    plan = harmed.plan(policy)
    assert plan.totals.trim == 6
    victim = killable(harmed, three, "readers")
    lost = [n for n, leader in leaders(harmed, lone).items() if leader == victim]
    assert lost, "every broker leads a partition of three"
    three.node(victim).kill()
    rows = {row.tp: row for row in harmed.trim(plan, policy).rows}
    for partition in range(3):
        row = rows[TopicPartition(safe, partition)]
        assert (row.outcome, row.log_start) == ("trimmed", 8), row
        row = rows[TopicPartition(lone, partition)]
        assert row.outcome == ("failed" if partition in lost else "trimmed"), row
    # A plan holds what has no leader, and goes on with the rest.
    now = {one.tp: one for one in harmed.plan(policy).decisions}
    for partition in lost:
        assert now[TopicPartition(lone, partition)].action == "hold"
        assert "has no leader" in now[TopicPartition(lone, partition)].reasons[0].text
    # Back again, the next run trims what was left.
    three.start_node(three.node(victim))
    three.wait_until_ready()
    harmed.await_leaders(lone, 3)
    assert {row.outcome for row in harmed.trim(harmed.plan(policy), policy).rows} <= {"trimmed", "unchanged"}
    assert all(harmed.ends(lone, partition)[0] == 8 for partition in range(3))


def test_leader_lost_between_recheck_and_request_fails_safely(
    harmed: World, three: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    safe, lone, policy = both_kinds(harmed)
    plan = harmed.plan(policy)
    victim = killable(harmed, three, "readers")
    lost = [n for n, leader in leaders(harmed, lone).items() if leader == victim]
    honest = Deleter.delete
    sent: list[dict[int, Mapping[TopicPartition, int]]] = []

    def kill_first(self: Deleter, by_leader: Any, on_outcome: Any, **times: float) -> None:
        if not sent:
            three.node(victim).kill()
        sent.append(dict(by_leader))
        honest(self, by_leader, on_outcome, **times)

    monkeypatch.setattr(Deleter, "delete", kill_first)
    rows = {row.tp: row for row in harmed.trim(plan, policy).rows}
    for partition in range(3):
        row = rows[TopicPartition(safe, partition)]
        assert (row.outcome, row.log_start) == ("trimmed", 8), row
        row = rows[TopicPartition(lone, partition)]
        if partition in lost:
            assert row.outcome in ("failed", "unverified"), row
        else:
            assert (row.outcome, row.log_start) == ("trimmed", 8), row
    assert len(sent) > 1, "the partitions that moved were sent again, after another recheck"


def test_coordinator_lost_during_the_recheck_never_loosens_a_floor(
    harmed: World, three: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    safe = read_topic(harmed, 3, 2, replicas=3)
    harmed.commit("fast", safe, {0: 8, 1: 8, 2: 8})
    plan = harmed.plan(consumed(safe))
    victim = coordinator_of(harmed, f"{safe}-group")
    honest = ClusterReader.read_commits
    killed: list[int] = []

    def kill_first(self: ClusterReader, *arguments: Any) -> None:
        if not killed:
            killed.append(victim)
            three.node(victim).kill()
        honest(self, *arguments)

    monkeypatch.setattr(ClusterReader, "read_commits", kill_first)
    for row in harmed.trim(plan, consumed(safe)).rows:
        assert row.outcome in ("trimmed", "held", "failed"), row
        assert row.log_start is None or row.log_start <= 2
    assert all(harmed.ends(safe, n)[0] <= 2 for n in range(3))


def test_offsets_partition_without_a_leader_makes_every_floor_unknown(tmp_path: Path) -> None:
    """Groups of an offline coordinator vanish from listings without an error: F9. The forced level goes on."""
    with EmbeddedKafka(3, settings={**SETTINGS, "offsets.topic.replication.factor": "1"}) as three:
        world = World(three.bootstrap, tmp_path / "state")
        safe = world.filled(OLD, stem="safe", replicas=3)
        for number in range(12):
            world.commit(f"g{number}", safe, 8)
        world.commit("slowest", safe, 2)
        victim = coordinator_of(world, "slowest")
        three.node(victim).kill()
        wait_until(lambda: None in leaders(world, "__consumer_offsets").values(), "an offline coordinator")
        wait_until(lambda: leaders(world, safe)[0] not in (None, victim), "a new leader")
        with reader_for(world.bootstrap) as reader:
            names = {group.name for group in reader.list_groups(reader.metadata().brokers)}
        assert "slowest" not in names, "the trap itself: the listing is short, and says nothing"
        decision = world.decide(consumed(safe), safe)
        assert (decision.action, codes(decision)) == ("hold", {"F9"})
        assert "__consumer_offsets-" in decision.reasons[0].text
        forced = world.decide(consumed(safe, retention__ms="20h"), safe)
        assert (forced.action, forced.rule, forced.trim_to, forced.unconsumed) == ("trim", "forced-age", 10, 10)
        assert codes(forced) == {"F9"}


def test_leader_epoch_without_records_leaves_no_trace(world: World) -> None:
    """A partition that stands still is remembered through any number of elections: by its last record's epoch (M1)."""
    still = world.filled([30 * HOUR] * 4, stem="still", replicas=2)
    aged = f"version: 1\ntopics: [{{match: {still}, retention.ms: 24h, retention.min.wallclock.ms: 2h}}]"
    first = epoch_now(world, still)
    move_leader(world, still)  # kretain looks for the first time in an epoch in which nothing is written
    assert world.decide(aged, still).trim_to is None
    for _ in range(2):
        move_leader(world, still)
    tp = TopicPartition(still, 0)
    with reader_for(world.bootstrap) as reader:
        there = {tp: reader.metadata([still]).topics[still].partitions[0]}
        ends = reader.epoch_ends([(tp, first), (tp, first + 1), (tp, first + 3)], there)
    assert ends == {(tp, first): Found(4), (tp, first + 1): NotFound(), (tp, first + 3): Found(4)}
    decision = world.decide(aged, still, at_ms=now_ms() + 3 * HOUR)
    assert (decision.action, decision.trim_to) == ("trim", 4)


def test_frozen_broker_costs_one_timeout_and_its_partitions_hold(harmed: World, three: EmbeddedKafka) -> None:
    _safe, _lone, policy = both_kinds(harmed)
    policy_file = written(harmed.state_dir.parent / "policy.yaml", policy)
    victim = killable(harmed, three, "readers")
    alive = World(",".join(node.address for node in three.nodes if node.node_id != victim), harmed.state_dir)
    three.node(victim).freeze()
    try:
        began = time.monotonic()
        done = alive.cli("plan", "-p", str(policy_file), "-o", "json", "--timeout", "2s")
        assert time.monotonic() - began < 60
    finally:
        three.node(victim).thaw()
    if done.code == 0:
        rows = done.json()["partitions"]
        assert {row["action"] for row in rows} <= {"hold", "trim"}
        assert {row["trim_to"] for row in rows} <= {None, 8}
    else:
        assert (done.code, done.err.count("\n")) == (1, 1)


STUCK_TRIM = """
import os, signal, sys
from retention_cli.brokers.deleter import Deleter

broker, sys.argv = int(sys.argv[1]), ["kretain", *sys.argv[2:]]
honest = Deleter.delete

def freeze_first(self, *arguments, **more):
    Deleter.delete = honest
    os.kill(broker, signal.SIGSTOP)
    print("sending", flush=True)
    honest(self, *arguments, **more)

Deleter.delete = freeze_first
from kretain.__main__ import main
main()
"""
"""A real trim whose only broker freezes right before its first request goes out."""


STOPPED_TRIM = """
import os, signal, sys
from retention_cli.brokers.deleter import Deleter
from retention_cli.brokers.wire.connections import Wire
from retention_cli.trim import batches

batches.RECHECK_SECONDS = 4.0
sys.argv[0] = "kretain"
honest = Wire.send
stopped = False

def stop_first(self, request, *more):
    global stopped
    if type(request).__name__ == "DeleteRecordsRequest" and not stopped:
        stopped = True
        signal.raise_signal(signal.SIGSTOP)  # this thread, at once
    return honest(self, request, *more)

Wire.send = stop_first
from kretain.__main__ import main
main()
"""
"""A real trim that is stopped between computing how long its recheck is good and writing its request."""


def eight_read(kafka: EmbeddedKafka, folder: Path) -> tuple[World, str, Path]:
    """Return a cluster, a new topic of which a group has read eight records, and a policy that trims them."""
    world = World(kafka.bootstrap, folder / "state")
    topic = world.filled(OLD)
    world.commit("a", topic, 8)
    return world, topic, written(folder / "policy.yaml", consumed(topic))


def test_resumed_trim_process_decides_again_and_sends_no_stale_delete(one: EmbeddedKafka, tmp_path: Path) -> None:
    """The group goes back while it is stopped. Its delete was written 42 s after its recheck; now it is decided anew."""
    world, topic, policy = eight_read(one, tmp_path)
    named = ["-b", world.bootstrap, "-p", str(policy), "--state-dir", str(world.state_dir)]
    asked = [sys.executable, "-c", STOPPED_TRIM, "trim", *named, "--yes", "-o", "json"]
    trim = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    state = Path(f"/proc/{trim.pid}/stat")
    wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "the trim to be stopped")
    world.commit("a", topic, 3)
    time.sleep(5)
    trim.send_signal(signal.SIGCONT)
    out, err = trim.communicate(timeout=60)
    assert trim.returncode == 0, out + err
    row = json.loads(out)["partitions"][0]
    assert (row["outcome"], world.ends(topic)[0]) == ("held", 0), out
    assert "went back to 3 since the plan" in row["reasons"][0]["text"]
    assert "not sent: its recheck was too old" in next(world.state_dir.rglob("audit.jsonl")).read_text()
    assert "unbroken since" in world.cli("history", "--verify", check=0).out


@pytest.mark.parametrize(
    "end",
    [signal.SIGTERM, signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.long)],
)
def test_trim_ended_while_waiting_for_an_answer_reports_it(
    one: EmbeddedKafka, tmp_path: Path, end: signal.Signals
) -> None:
    """Interrupted: exit 130, and whatever may have been deleted is in the audit log. Killed: the log still announces it."""
    world, _topic, policy = eight_read(one, tmp_path)
    trim = subprocess.Popen(
        [
            sys.executable,
            "-c",
            STUCK_TRIM,
            str(one.node(1).pid),
            "trim",
            "-b",
            world.bootstrap,
            "-p",
            str(policy),
            "--yes",
            "--state-dir",
            str(world.state_dir),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert trim.stdout is not None
        assert trim.stdout.readline() == "sending\n"
        trim.send_signal(end)
        if end != signal.SIGKILL:
            time.sleep(0.2)  # it now reads back what it sent, from a broker that …
    finally:
        one.node(1).thaw()  # … answers again
    try:
        out, err = trim.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        trim.send_signal(signal.SIGABRT)  # faulthandler tells where each thread is
        pytest.fail(f"it has not ended: {trim.communicate(timeout=60)}")
    history = world.cli("history", "-o", "json", check=0).json()["runs"]
    assert len(history) == 1
    assert history[0]["records"] == 8, "what may have gone counts as gone"
    if end == signal.SIGKILL:
        assert history[0]["exit"] is None
        assert "cut off" in world.cli("history", "--run", history[0]["run"], check=0).out
    else:
        assert trim.returncode == 130, err
        assert history[0]["exit"] == 130
        assert "Interrupted" in out
        assert "Traceback" not in err
    assert "unbroken since" in world.cli("history", "--verify", check=0).out
    again = world.cli("trim", "-p", str(policy), "--yes", "-o", "json", check=0).json()
    assert again["partitions"][0]["log_start"] == 8
    assert again["audit_broken"] is None
    assert "unbroken since" in world.cli("history", "--verify", check=0).out
