"""What a ``kretain watch`` does not trim though a plan would: its memory, its log, its clock or its policy is in doubt."""

from __future__ import annotations

import resource
import shutil
import time

import pytest

from tests.support.trims import read_topic
from tests.support.watching import PLAIN, SLOW, batches_of, policy_of, trimming, watching
from tests.support.world import World, wait_until

pytestmark = pytest.mark.timeout(300)

JUMPS = f"""
import os, time
honest = time.time_ns
time.time_ns = lambda: honest() + (40 * 86400 * 10**9 if os.path.exists(os.environ["JUMP"]) else 0)
{PLAIN}"""


def test_hold_written_between_batches_stops_the_watch(here: World) -> None:
    topic = read_topic(here, partitions=14)
    policy = policy_of(here, topic)
    with watching(here, policy, "--trim", "--listen", "off", code=SLOW) as watcher:
        wait_until(lambda: batches_of(here.state_dir) >= 3, "a third batch")
        policy.write_text(policy.read_text() + '    hold: "legal"\n')
        sent = batches_of(here.state_dir)
        watcher.wait_for("pass 1:")
        assert batches_of(here.state_dir) <= sent + 1
        watcher.end()


def test_unwritable_ledger_stops_the_watch(here: World) -> None:
    topic = read_topic(here, upto=4)
    with trimming(here, topic) as watcher:
        watcher.wait_for("trimmed 4 records")
        watcher.wait_passes(2)
        resource.prlimit(watcher.process.pid, resource.RLIMIT_FSIZE, (12_288, resource.RLIM_INFINITY))
        here.commit(f"{topic}-slow", topic, 5)
        watcher.wait_passes(2)
        here.commit(f"{topic}-group", topic, 9)
        watcher.wait_passes(2)
        here.delete_group(f"{topic}-slow")
        watcher.wait_passes(2)
        assert here.ends(topic)[0] <= 5
        assert watcher.metrics()["kretain_failures_total", "state"] >= 2
        watcher.end()


def test_clock_set_ahead_forgets_no_group(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    flag = here.state_dir.parent / "jump"
    monkeypatch.setenv("JUMP", str(flag))
    topic = read_topic(here, upto=9)
    here.commit(f"{topic}-slow", topic, 4)
    with trimming(here, topic, code=JUMPS) as watcher:
        watcher.wait_for("trimmed 4 records")
        here.delete_group(f"{topic}-slow")
        watcher.wait_passes(2)
        assert here.ends(topic)[0] == 4
        flag.touch()
        watcher.wait_for("this machine's clock was set ahead by 3,456,000 s")
        assert here.ends(topic)[0] == 4
        flag.unlink()
        watcher.wait_passes(1)
        assert here.ends(topic)[0] == 4
        watcher.end()


@pytest.mark.parametrize("names", [("audit.jsonl",), ("audit.jsonl", "audit.head")])
def test_deleted_audit_log_does_not_reset_the_daily_limit(here: World, names: tuple[str, ...]) -> None:
    topic = read_topic(here)
    with trimming(here, topic, "--standby-group", topic, more="limits: {max.records: 8}\n") as watcher:
        watcher.wait_for("trimmed 7 records")
        watcher.wait_passes(1)
        for name in names:
            next(here.state_dir.glob(f"*/{name}")).unlink()
        here.commit(f"{topic}-group", topic, 10)
        time.sleep(3)
        assert here.ends(topic)[0] <= 8
        watcher.end()


def test_deleted_state_directory_does_not_reset_the_daily_limit(electing: World) -> None:
    topic = read_topic(electing)
    with trimming(
        electing, topic, "--standby-group", topic, more="state: cluster\nlimits: {max.records: 8}\n"
    ) as watcher:
        watcher.wait_for("trimmed 7 records")
        watcher.wait_passes(1)
        shutil.rmtree(electing.state_dir)
        watcher.wait_passes(1)
        electing.commit(f"{topic}-group", topic, 10)
        watcher.wait_passes(3)
        assert electing.ends(topic)[0] <= 8
        watcher.end()
