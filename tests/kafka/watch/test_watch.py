"""``kretain watch`` (docs/watch.md): passes for years, unattended, and nothing trimmed that nobody allowed."""

from __future__ import annotations

import itertools
import json
import platform
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from retention_cli import __version__
from retention_cli.brokers.election import Candidate
from retention_cli.brokers.security.settings import ConnectionSettings
from tests.conftest import QUICK
from tests.support.clusters import EmbeddedKafka
from tests.support.doors import Door
from tests.support.says import json_of, pick, rows_of, says
from tests.support.trims import audit_of, read_topic
from tests.support.watching import PLAIN, SLOW, Watcher, batches_of, policy_of, trimming, watching
from tests.support.world import HOUR, OLD, World, now_ms, wait_until, written


def test_dry_watch_deletes_nothing_and_exports_a_plans_metrics(here: World) -> None:
    topic = here.filled(OLD, {"billing": {0: 7, 1: 4, 2: 0}, "stray": {0: 9}}, 2, stem="watched", partitions=3)
    policy = policy_of(here, topic)
    with watching(here, policy, "--interval", "1s") as watcher:
        assert watcher.get("/healthz") == (200, "ok\n")
        watcher.wait_passes(2)
        assert watcher.get("/readyz") == (200, "ok\n")
        found = watcher.metrics()
        plan = json_of(here, "plan", "-p", str(policy))
    rows = plan["partitions"]
    codes = Counter(code for row in rows if row["action"] == "hold" for code in {one["code"] for one in row["reasons"]})
    lag = Counter[str]()
    for row in rows:
        if row["min_commit"] is not None:
            lag[row["min_commit_by"]] += row["high_watermark"] - max(row["min_commit"], row["log_start"])
    assert codes
    assert lag

    def labelled(name: str) -> dict[str, float]:
        return {key[1]: number for key, number in found.items() if key[0] == name}

    assert (
        labelled("kretain_partitions").items()
        >= {action: plan["totals"][action] for action in ("trim", "keep", "hold", "skip")}.items()
    )
    assert (labelled("kretain_holds"), labelled("kretain_group_lag_records")) == (codes, lag)
    expected: dict[tuple[str, ...], float] = {
        ("kretain_trimmable_records",): 7,
        ("kretain_trimmable_bytes",): plan["totals"]["bytes"],
        ("kretain_build_info", platform.python_version(), __version__): 1,
        ("kretain_leader",): 0,
        ("kretain_policy_valid",): 1,
        ("kretain_trimmed_records_total",): 0,
    }
    assert {key: found[key] for key in expected} == expected
    assert time.time() - found["kretain_last_success_timestamp_seconds",] < 20
    assert (here.ends(topic), audit_of(here.state_dir)) == ((0, 10), [])
    says(watcher.text, "would trim 7 records", "dry run (pass --trim to delete)")


def test_single_watch_trims_and_writes_a_textfile(here: World) -> None:
    topic = read_topic(here)
    textfile = here.state_dir.parent / "kretain.prom"
    with trimming(here, topic, "--textfile", str(textfile)) as watcher:
        watcher.wait_for("trimmed 7 records")
        watcher.wait_for("nothing to trim")
        assert (here.ends(topic)[0], watcher.metrics()["kretain_trimmed_records_total",]) == (7, 7)
        here.produce(topic, OLD)
        here.commit(f"{topic}-group", topic, 12)
        watcher.wait_for("trimmed 5 records")
        wait_until(lambda: "kretain_trimmed_records_total" in textfile.read_text(), "a textfile")
        assert watcher.end(signal.SIGINT) == 0
    assert (here.ends(topic)[0], textfile.stat().st_mode & 0o777) == (12, 0o644)
    assert [one["exit"] for one in audit_of(here.state_dir) if one["event"] == "end"] == [0, 0], "only what trimmed"
    assert "no election: this cluster has no topic _kretain_policy" in watcher.text
    assert watcher.text.rstrip().endswith(" received, stopped")
    assert "Traceback" not in watcher.text


def test_changed_policy_trims_nothing_until_it_has_settled(here: World) -> None:
    """The new text may have been meant to hold, or be half of what an editor writes."""
    topic = read_topic(here)
    policy = policy_of(here, topic)
    good = policy.read_text()
    with watching(here, policy, "--trim", "--interval", "1s") as watcher:
        watcher.wait_for("trimmed 7 records")
        policy.write_text(good + "    hold: [\n")
        watcher.wait_for("failed: ")
        here.commit(f"{topic}-group", topic, 9)
        says(
            watcher.wait_passes(2)[-1],
            "did not trim 2 records",
            "the policy file is broken: planning with the last valid one",
        )
        assert watcher.metrics()["kretain_failures_total", "policy"] >= 2
        assert (watcher.metrics()["kretain_policy_valid",], here.ends(topic)[0]) == (0, 7)
        policy.write_text(good + '    hold: "legal"\n')
        watcher.wait_for("the policy file has changed")
        assert "1 on hold (G7 1)" in watcher.wait_passes(2)[-1]
        policy.write_text(good)
        watcher.wait_for("trimmed 2 records")
        pairs = itertools.pairwise(watcher.passes())
        before = next(earlier for earlier, line in pairs if "trimmed 2 records" in line)
        says(before, "did not trim 2 records", "trimming once it has stayed unchanged")
        assert watcher.metrics()["kretain_policy_valid",] == 1
    assert here.ends(topic)[0] == 9


@pytest.mark.thorough
def test_live_setting_counts_with_the_next_pass(electing: World) -> None:
    """The file does not change: an application moves its own minimum (R3, docs/live-settings.md)."""
    topic = electing.filled([30 * HOUR] * 4 + [20 * HOUR] * 3 + [HOUR] * 3, stem="journal")
    rules = "log.retention.min.timestamp: cluster, unconsumed: trim"
    policy = written(policy_of(electing), f"version: 1\ntopics: [{{match: {topic}, {rules}}}]\n")
    by = (topic, "-p", str(policy))
    with watching(electing, policy, "--trim", "--interval", "1s", "--standby-group", topic) as watcher:
        watcher.wait_passes(2)
        assert electing.ends(topic)[0] == 0
        for hours, records in ((25, 4), (2, 3)):
            electing.cli("policy", "set", *by, f"log.retention.min.timestamp={now_ms() - hours * HOUR}", check=0)
            watcher.wait_for(f"trimmed {records} records")
        electing.cli("policy", "unset", *by, check=0)
        watcher.wait_passes(2)
    assert electing.ends(topic) == (7, 10)


def test_lost_ledger_trims_nothing_until_a_restart(here: World) -> None:
    """Groups that are gone count only as long as they are remembered (F6)."""
    topic = read_topic(here, upto=9)
    here.commit(f"{topic}-slow", topic, 4)
    with trimming(here, topic) as watcher:
        watcher.wait_for("trimmed 4 records")
        here.delete_group(f"{topic}-slow")
        watcher.wait_passes(2)
        assert here.ends(topic)[0] == 4
        for file in here.state_dir.glob("*/ledger.sqlite*"):
            file.unlink()
        watcher.wait_for("did not trim 5 records")
        assert "the ledger was replaced" in watcher.wait_passes(2)[-1]
        assert here.ends(topic)[0] == 4
    with trimming(here, topic) as watcher:
        watcher.wait_for("trimmed 5 records")


@pytest.mark.long
def test_address_that_now_leads_to_another_cluster_is_refused(here: World, tmp_path: Path) -> None:
    """The policy was given for the first one; the other's topic of that name may be anybody's."""
    topic = read_topic(here)
    with EmbeddedKafka(1, settings=QUICK) as cluster, Door(here.bootstrap) as door:
        there = World(cluster.bootstrap, tmp_path / "there")
        there.filled(OLD, {"group": 9}, name=topic)
        with trimming(World(door.address, here.state_dir), topic) as watcher:
            watcher.wait_for("trimmed 7 records")
            door.leads_to = there.bootstrap
            watcher.wait_for("failed: the address now leads to cluster")
            watcher.wait_for("times in a row")
            assert watcher.metrics()["kretain_failures_total", "refused"] >= 2
        assert (there.ends(topic)[0], here.ends(topic)[0]) == (0, 7)


@pytest.mark.thorough
def test_ceiling_trims_in_turns_and_a_limit_refuses_the_plan(here: World) -> None:
    """A plan past a limit is refused entirely, or a ceiling would carry it out in slices (G6)."""
    topic, other = (read_topic(here, partitions=2) for _ in range(2))
    with trimming(here, topic, "--max-records", "5") as watcher:
        watcher.wait_for("trimmed 4 records")
    assert re.findall(r"trimmed (\S+)", "\n".join(watcher.passes())) == ["5", "5", "4"]
    limit, fresh = "limits: {max.records: 13}\n", here.state_dir.parent / "fresh"
    with trimming(here, other, "--max-records", "1", more=limit, state=fresh) as watcher:
        watcher.wait_for("failed: 14 records are more than limits.max.records, 13")
        assert watcher.metrics()["kretain_failures_total", "refused"] >= 1
        assert watcher.get("/readyz")[0] == 503
    assert [here.ends(name, partition)[0] for name in (topic, other) for partition in (0, 1)] == [7, 7, 0, 0]


STUCK = f"""
import threading
import retention_cli.watch.board as board
import retention_cli.watch.one_pass as one_pass
board.STUCK_S = 3.0
one_pass.Passes.make = lambda self: threading.Event().wait()
{PLAIN}"""


@pytest.mark.thorough
def test_hanging_loop_becomes_unhealthy_and_exits(here: World) -> None:
    """So that a supervisor starts it again."""
    with watching(here, policy_of(here, "any"), "--interval", "1s", code=STUCK) as watcher:
        assert (watcher.get("/healthz")[0], watcher.get("/readyz")) == (200, (503, "no pass has succeeded yet\n"))
        assert watcher.end(None, 60) == 1
    assert "stuck for too long" in watcher.text


@pytest.mark.thorough
def test_sigterm_finishes_the_current_batch_and_exits_0(here: World) -> None:
    topic = read_topic(here, partitions=12)
    with watching(here, policy_of(here, topic), "--trim", "--listen", "off", code=SLOW) as watcher:
        wait_until(lambda: batches_of(here.state_dir) >= 3, "a third batch")
    lines = audit_of(here.state_dir)
    sent = batches_of(here.state_dir)
    assert 3 <= sent < 12
    assert [one["event"] for one in lines] == ["run", *["batch", "result"] * sent, "end"], "each batch has its result"
    assert [one["partitions"][0]["outcome"] for one in lines if one["event"] == "result"] == ["trimmed"] * sent
    assert sum(here.ends(topic, one)[0] == 7 for one in range(12)) == sent
    assert "interrupted; the rest is left" in watcher.text


@contextmanager
def two(
    world: World, policy: Path, group: str, *, interval: str = "1s", code: str = PLAIN
) -> Iterator[tuple[Watcher, Watcher]]:
    """Two instances, each with a state of its own; the first leads."""
    arguments = ("--trim", "--interval", interval, "--standby-group", group)
    with watching(world, policy, *arguments, code=code) as first:
        first.wait_for("elects the instance that trims")
        wait_until(lambda: first.metrics().get(("kretain_leader",)) == 1, "a leader")
        with watching(world, policy, *arguments, state=world.state_dir.with_name("other")) as second:
            second.wait_for("stands by: another instance leads")
            yield first, second


@pytest.mark.thorough
def test_killed_leader_is_replaced_within_15_seconds(electing: World) -> None:
    """Also where the next pass is a minute away."""
    topic = read_topic(electing)
    with two(electing, policy_of(electing, topic), topic, interval="10m") as (leader, standby):
        leader.wait_for("trimmed 7 records")
        assert (standby.metrics()["kretain_leader",], standby.get("/readyz")[0]) == (0, 200)
        electing.commit(f"{topic}-group", topic, 9)
        leader.end(signal.SIGKILL)
        standby.wait_for("trimmed 2 records", 15)
        assert standby.metrics()["kretain_leader",] == 1
    assert electing.ends(topic)[0] == 9


@pytest.mark.thorough
def test_frozen_leader_sends_at_most_one_more_batch(electing: World) -> None:
    topic = read_topic(electing, partitions=60)
    state = electing.state_dir
    with two(electing, policy_of(electing, topic), topic, code=SLOW) as (zombie, other):
        wait_until(lambda: batches_of(state) >= 3, "a third batch")
        zombie.send(signal.SIGSTOP)
        sent = batches_of(state)
        try:
            other.wait_for("leads now", 40)
            other.wait_for("trimmed ", 40)
        finally:
            zombie.send(signal.SIGCONT)
        zombie.wait_for("stopped: this instance may no longer lead", 40)
        assert batches_of(state) <= sent + 1
        assert zombie.wait_passes(1)
        assert zombie.metrics()["kretain_leader",] == 0
        assert other.end() == 0  # and leaves the group, so that it is replaced at once
        zombie.wait_for("leads now", 10)
    assert {electing.ends(topic, one)[0] for one in range(60)} == {7}


@pytest.mark.thorough
def test_election_group_counts_for_no_floor(electing: World) -> None:
    """Not even while it is the only group there is (F4)."""
    topic = electing.filled(OLD, stem="alone")
    with trimming(electing, topic, "--standby-group", topic) as watcher:
        watcher.wait_passes(2)
        [group] = json_of(electing, "groups", "--group", topic)["groups"]
        assert pick(group, "group", "counts") == (topic, "listed only: it commits no offsets")
        row = rows_of(electing, "plan", "-p", str(policy_of(electing, topic)))[topic]
        assert (row["action"], {one["code"] for one in row["reasons"]}) == ("hold", {"F4"})
    assert electing.ends(topic)[0] == 0


@pytest.mark.thorough
def test_cluster_that_takes_over_an_address_does_not_join_the_election(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a session, so that nothing else makes the candidate look which cluster it is."""
    monkeypatch.setattr("retention_cli.brokers.election.SESSION_S", 60.0)
    with EmbeddedKafka(1, settings=QUICK) as first:
        port = int(first.bootstrap.rpartition(":")[2])
        candidate = Candidate(ConnectionSettings(first.bootstrap), "kretain-watch", first.cluster_id)
        candidate.start()
        with closing(candidate):
            wait_until(lambda: candidate.term() is not None, "that it leads")
            first.node(1).kill()
            with EmbeddedKafka(1, settings=QUICK, ports=[port]) as second:
                wait_until(lambda: second.cluster_id in (candidate.problem or ""), "the candidate's problem")
                assert (candidate.term(), candidate.confirm(1) is None) == (None, False)
                assert "kretain-watch" not in World(second.bootstrap, Path()).groups()


def test_consumer_group_is_never_joined(electing: World) -> None:
    """An empty one would take our protocol, and its own consumers could not come back."""
    topic = read_topic(electing)
    with trimming(electing, topic, "--standby-group", f"{topic}-group") as watcher:
        watcher.wait_for(f"failed: group {topic}-group has committed offsets, so it is a consumer's")
        watcher.wait_for("times in a row")
    assert electing.ends(topic)[0] == 0
    [group] = json_of(electing, "groups", "--group", f"{topic}-group")["groups"]
    assert pick(group, "state", "counts") == ("Empty", "counts")


COUNTED = f"""
import array, json, os, signal, sys
import retention_cli.watch.loop as loop
wanted, out = int(os.environ["PASSES"]), os.environ["OUT"]
honest, seen = loop.Loop._publish, array.array("q")  # what is noted must not grow by what is noted
def counted(self):
    honest(self)
    if self._number % 25 == 0:
        with open("/proc/self/statm") as stream:
            rss = int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        seen.extend((self._number, rss, len(os.listdir("/proc/self/fd")), sys.getallocatedblocks()))
    if self._number >= wanted:
        with open(out, "w") as stream:
            json.dump([seen[at:at + 4].tolist() for at in range(0, len(seen), 4)], stream)
        os.kill(os.getpid(), signal.SIGTERM)
loop.Loop._publish = counted
{PLAIN.replace("interval_s / 5", "0.0")}"""
ARENA = 1 << 20
"""Python gets its memory in pieces of this size (bytes)."""


@pytest.mark.parametrize(
    "passes",
    [
        pytest.param(150, marks=pytest.mark.long),
        pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(14_400)]),
    ],
)
def test_watch_memory_and_descriptors_stay_flat(electing: World, passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All the while a record becomes old enough every second, and is trimmed."""
    topic = electing.filled([30 * HOUR] * passes, {"group": dict.fromkeys(range(4), 0)}, stem="watched", partitions=4)
    policy = policy_of(electing, topic)
    out = electing.state_dir.parent / "seen.json"
    monkeypatch.setenv("PASSES", str(passes))
    monkeypatch.setenv("OUT", str(out))
    began = time.monotonic()
    arguments = ("--trim", "--standby-group", topic, "--textfile", str(electing.state_dir.parent / "x.prom"))
    with watching(electing, policy, *arguments, code=COUNTED) as watcher:
        for read in itertools.count(1):
            if watcher.process.poll() is not None or time.monotonic() - began > passes:
                break
            electing.commit(f"{topic}-group", topic, min(read, passes))
            time.sleep(1)
        assert watcher.end(None, 60) == 0, watcher.text
    seconds = time.monotonic() - began
    settled = [one for one in json.loads(out.read_text()) if one[0] >= 100]
    grown, more = (settled[-1][at] - settled[0][at] for at in (1, 3))
    told = (
        f"{passes} passes in {seconds:.0f} s, {watcher.text.count(': trimmed ')} of them trimmed; RSS from "
        f"{settled[0][1]:,} to {settled[-1][1]:,}, allocated blocks from {settled[0][3]:,} to {settled[-1][3]:,}"
    )
    sys.stdout.write(f"{told}\n{[one for one in settled if one[0] % (passes // 20) == 0]}\n")
    assert watcher.text.count(": trimmed ") > passes / 100, told
    assert grown <= ARENA + ARENA // 2, told
    assert more < 2_000, told
    assert max(one[2] for one in settled) - min(one[2] for one in settled) <= 2, settled
