"""Brokers that die, freeze and come back, on clusters of these tests' own (F3, F5, F9; trim's retries)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest

from retention_cli.brokers.deleter import Deleter
from retention_cli.brokers.log_offsets import Found, NotFound
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import TopicPartition
from retention_cli.trim.report import TrimRow
from tests.support.clusters import EmbeddedKafka, FaultyNode
from tests.support.leaders import SETTINGS, epoch_now, leaders, move_leader
from tests.support.plain import before
from tests.support.says import held, json_of, pick, says
from tests.support.trims import read_topic
from tests.support.world import (
    HOUR,
    OLD,
    World,
    codes,
    consumed,
    coordinator_of,
    now_ms,
    reader_for,
    wait_until,
    written,
)


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


def both_kinds(world: World) -> tuple[str, str, str]:
    """A topic that survives a broker's death, one that doesn't, and a policy for both."""
    safe, lone = (world.filled(OLD, None, 3, stem=stem, replicas=n) for stem, n in (("safe", 3), ("lone", 1)))
    for name in (safe, lone):
        world.commit("readers", name, {0: 8, 1: 8, 2: 8})
    return safe, lone, consumed(safe).replace(f'"{safe}"', f'["{safe}", "{lone}"]')


def check_both(rows: Sequence[TrimRow], safe: str, lone: str, lost: Collection[int], without: Collection[str]) -> None:
    """All is trimmed, but what lost its only replica: that ends in one of these outcomes."""
    by_place = {(row.tp.topic, row.tp.partition): row for row in rows}
    assert by_place.keys() == {(topic, n) for topic in (safe, lone) for n in range(3)}
    for (topic, n), row in by_place.items():
        if topic == lone and n in lost:
            assert row.outcome in without, row
        else:
            assert (row.outcome, row.log_start) == ("trimmed", 8), row


def killable(world: World, three: EmbeddedKafka, lone: str) -> tuple[FaultyNode, list[int]]:
    """A broker whose death spares the coordinator of the readers, and the partitions that it leads."""
    spared = coordinator_of(world.bootstrap, "readers")
    victim = next(node for node in three.nodes if node.node_id != spared)
    lost = [n for n, leader in leaders(world, lone).items() if leader == victim.node_id]
    assert lost, "every broker leads a partition of three"
    return victim, lost


def test_leader_lost_between_plan_and_trim_is_replaced(harmed: World, three: EmbeddedKafka) -> None:
    safe, lone, policy = both_kinds(harmed)
    plan = harmed.plan(policy)
    assert plan.totals.trim == 6
    victim, lost = killable(harmed, three, lone)
    victim.kill()
    check_both(harmed.trim(plan, policy).rows, safe, lone, lost, {"failed"})
    # A plan holds what has no leader, and goes on with the rest.
    without = harmed.plan(policy)
    says(
        *(note.text for note in without.notes if note.code == "size"),
        "not all sizes on disk are known: some partitions have no leader",
    )
    now = {one.tp: one for one in without.decisions}
    for partition in lost:
        decision = now[TopicPartition(lone, partition)]
        assert (decision.action, "has no leader" in decision.reasons[0].text) == ("hold", True), decision
    # Back again, the next run trims what was left.
    three.start_node(victim)
    three.wait_until_ready()
    harmed.await_leaders(lone, 3)
    assert {row.outcome for row in harmed.trim(harmed.plan(policy), policy).rows} <= {"trimmed", "unchanged"}
    assert all(harmed.ends(lone, partition)[0] == 8 for partition in range(3))


def test_leader_lost_between_recheck_and_request_fails_safely(
    harmed: World, three: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    safe, lone, policy = both_kinds(harmed)
    plan = harmed.plan(policy)
    victim, lost = killable(harmed, three, lone)
    sent = before(monkeypatch, Deleter, "delete", victim.kill)
    check_both(harmed.trim(plan, policy).rows, safe, lone, lost, {"failed", "unverified"})
    assert len(sent) > 1, "the partitions that moved were sent again, after another recheck"


def test_coordinator_lost_during_the_recheck_never_loosens_a_floor(
    harmed: World, three: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    safe = read_topic(harmed, 3, 2, replicas=3)
    harmed.commit("fast", safe, {0: 8, 1: 8, 2: 8})
    plan = harmed.plan(consumed(safe))
    before(
        monkeypatch, ClusterReader, "read_commits", three.node(coordinator_of(harmed.bootstrap, f"{safe}-group")).kill
    )
    for row in harmed.trim(plan, consumed(safe)).rows:
        assert row.outcome in ("trimmed", "held", "failed"), row
        assert row.log_start is None or row.log_start <= 2
    assert all(harmed.ends(safe, n)[0] <= 2 for n in range(3))


def test_offsets_partition_without_a_leader_makes_every_floor_unknown(tmp_path: Path) -> None:
    """Groups of an offline coordinator vanish from listings without an error: F9. The forced level goes on."""
    with EmbeddedKafka(3, settings={**SETTINGS, "offsets.topic.replication.factor": "1"}) as three:
        world = World(three.bootstrap, tmp_path / "state")
        safe = world.filled(OLD, stem="safe", replicas=3)
        for group, offset in {**{f"g{number}": 8 for number in range(12)}, "slowest": 2}.items():
            world.commit(group, safe, offset)
        victim = coordinator_of(world.bootstrap, "slowest")
        three.node(victim).kill()
        wait_until(lambda: None in leaders(world, "__consumer_offsets").values(), "an offline coordinator")
        wait_until(lambda: leaders(world, safe)[0] not in (None, victim), "a new leader")
        with reader_for(world.bootstrap) as reader:
            names = {group.name for group in reader.list_groups(reader.metadata().brokers)}
        assert "slowest" not in names, "the trap itself: the listing is short, and says nothing"
        assert "__consumer_offsets-" in held(world.decide(consumed(safe), safe), "F9")
        forced = world.decide(consumed(safe, retention__ms="20h"), safe)
        assert pick(forced, "action", "rule", "trim_to", "unconsumed") == ("trim", "forced-age", 10, 10)
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
    assert pick(world.decide(aged, still, at_ms=now_ms() + 3 * HOUR), "action", "trim_to") == ("trim", 4)


def test_frozen_broker_costs_one_timeout_and_its_partitions_hold(harmed: World, three: EmbeddedKafka) -> None:
    _safe, lone, policy = both_kinds(harmed)
    policy_file = written(harmed.state_dir.parent / "policy.yaml", policy)
    victim, _lost = killable(harmed, three, lone)
    alive = World(",".join(node.address for node in three.nodes if node is not victim), harmed.state_dir)
    victim.freeze()
    try:
        began = time.monotonic()
        done = alive.cli("plan", "-p", str(policy_file), "-o", "json", "--timeout", "2s")
        assert time.monotonic() - began < 60
    finally:
        victim.thaw()
    if done.code == 0:
        assert {pick(row, "action", "trim_to") for row in done.json()["partitions"]} <= {("hold", None), ("trim", 8)}
    else:
        assert (done.code, done.err.count("\n")) == (1, 1)


STUCK_TRIM = """
import os, signal, sys
from retention_cli.brokers.deleter import Deleter

sys.argv[0] = "kretain"
honest = Deleter.delete

def freeze_first(self, *arguments, **more):
    Deleter.delete = honest
    os.kill(int(os.environ["BROKER"]), signal.SIGSTOP)
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
    """Return a cluster, a new topic of which group ``TOPIC-a`` has read eight records, and a policy that trims them."""
    world = World(kafka.bootstrap, folder / "state")
    topic = world.filled(OLD, {"a": 8})
    return world, topic, written(folder / "policy.yaml", consumed(topic))


def trim_process(world: World, policy: Path, code: str, *more: str, **environ: str) -> subprocess.Popen[str]:
    """Start a real trim that something happens to."""
    named = ("trim", "-b", world.bootstrap, "-p", str(policy), "--state-dir", str(world.state_dir), "--yes", *more)
    return subprocess.Popen(
        [sys.executable, "-c", code, *named],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )


def test_resumed_trim_process_decides_again_and_sends_no_stale_delete(one: EmbeddedKafka, tmp_path: Path) -> None:
    """The group goes back while it is stopped. Its delete was written 42 s after its recheck; now it is decided anew."""
    world, topic, policy = eight_read(one, tmp_path)
    trim = trim_process(world, policy, STOPPED_TRIM, "-o", "json")
    state = Path(f"/proc/{trim.pid}/stat")
    wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "the trim to be stopped")
    world.commit(f"{topic}-a", topic, 3)
    time.sleep(5)
    trim.send_signal(signal.SIGCONT)
    out, err = trim.communicate(timeout=60)
    assert trim.returncode == 0, out + err
    [row] = json.loads(out)["partitions"]
    why = "went back to 3 since the plan" in row["reasons"][0]["text"]
    assert (row["outcome"], world.ends(topic)[0], why) == ("held", 0, True), out
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
    trim = trim_process(world, policy, STUCK_TRIM, BROKER=str(one.node(1).pid))
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
    [run] = json_of(world, "history")["runs"]
    assert run["records"] == 8, "what may have gone counts as gone"
    if end == signal.SIGKILL:
        assert run["exit"] is None
        assert "The run did not finish" in world.cli("history", "--run", run["run"], check=0).out
    else:
        told = ("Interrupted" in out, "Traceback" in err)
        assert (trim.returncode, run["exit"], *told) == (130, 130, True, False), out + err
    assert "unbroken since" in world.cli("history", "--verify", check=0).out
    again = json_of(world, "trim", "-p", str(policy), "--yes")
    assert (again["partitions"][0]["log_start"], again["audit_broken"]) == (8, None)
    assert "unbroken since" in world.cli("history", "--verify", check=0).out
