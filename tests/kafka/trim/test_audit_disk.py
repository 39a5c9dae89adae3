"""A real disk under the audit log that fills between two batches: nothing goes that the log does not announce."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from retention_cli.audit.log import AuditLog
from tests.support.trims import read_topic
from tests.support.watching import ONE_A_BATCH, policy_of, watching
from tests.support.world import World

FULL = """
import os
from pathlib import Path
from retention_cli.brokers.deleter import Deleter
from retention_cli.trim.journal import AuditJournal
honest = WHERE
def filling(self, *arguments, **more):
    WHERE = honest
    honest(self, *arguments, **more)
    room = os.statvfs(os.environ["FILLED"])
    with open(os.environ["FILLED"] + "/filler", "ab") as filler:
        filler.write(bytes(room.f_bavail * room.f_frsize))
WHERE = filling
"""
"""Once, by others' hand, the disk is full: after records were deleted, or after that was written down, too."""
PLACES = [FULL.replace("WHERE", "Deleter.delete"), FULL.replace("WHERE", "AuditJournal.result")]


@pytest.fixture
def small(world: World, tmp_path: Path) -> Iterator[World]:
    """A state directory on a disk of 2 MiB. Each batch has one partition of each of three leaders."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "kretain-test", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield World(world.bootstrap, disk / "state")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def trim(world: World, topic: str, code: str = "") -> tuple[int, str, str]:
    """Run a trim whose batches have one partition of a leader each; return its exit code, its report and stderr."""
    disk = world.state_dir.parent
    policy = disk.parent / "policy.yaml"
    policy.write_text(
        f"version: 1\ntopics: [{{match: {topic}, retention.commitoffset.enable: true, retention.commitoffset.ms: 1h}}]\n"
    )
    run = f"{code}\nimport retention_cli.trim.reconcile as reconcile\nreconcile.PARTITIONS_A_LEADER = 1\n"
    run += "from kretain.__main__ import main\nmain()\n"
    arguments = [
        "trim",
        "-b",
        world.bootstrap,
        "-p",
        str(policy),
        "--state-dir",
        str(world.state_dir),
        "--yes",
        "-o",
        "json",
    ]
    done = subprocess.run(
        [sys.executable, "-c", run, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "FILLED": str(disk)},
    )
    return done.returncode, done.stdout, done.stderr


def log_of(world: World) -> AuditLog:
    return AuditLog(next(world.state_dir.glob("*/audit.jsonl")).parent)


@pytest.mark.parametrize("filled", PLACES, ids=["deleted", "written"])
def test_disk_filled_between_batches_stops_the_trim_before_the_next_batch(small: World, filled: str) -> None:
    topic = read_topic(small, partitions=4)
    code, out, err = trim(small, topic, filled)
    report = json.loads(out)
    gone = [small.ends(topic, partition)[0] for partition in range(4)]
    assert (set(gone), code) == ({0, 7}, 5), err
    outcomes = {row["partition"]: row["outcome"] for row in report["partitions"]}
    assert outcomes == {n: "trimmed" if start else "failed" for n, start in enumerate(gone)}
    assert report["totals"]["records"] == sum(gone)
    (told,) = [line for line in err.splitlines() if "audit log is incomplete" in line]
    assert "can't be written: No space left on device; nothing more is trimmed" in told
    chain = log_of(small).verify()
    assert chain.breaks == []
    (run,) = log_of(small).runs().values()
    assert run.trimmed().records >= sum(gone), "what is announced, and has no result, counts as gone"

    code, out, err = trim(small, topic)
    assert (code, out) == (1, ""), "the disk is full still: nothing is announced, and nothing goes"
    assert [small.ends(topic, partition)[0] for partition in range(4)] == gone
    assert [line for line in err.splitlines() if "audit.jsonl can't be written: No space left on device" in line], err
    assert "move it away" not in err, "a ledger is not to be given up for a full disk"

    (small.state_dir.parent / "filler").unlink()
    code, out, err = trim(small, topic)
    assert code == 0, err
    assert [small.ends(topic, partition)[0] for partition in range(4)] == [7] * 4
    assert log_of(small).verify().breaks == []


def test_watch_stops_at_a_full_audit_disk_and_continues_with_space(
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = read_topic(small, partitions=4)
    disk = small.state_dir.parent
    policy = disk.parent / "policy.yaml"
    policy.write_text(policy_of(small, topic).read_text())
    monkeypatch.setenv("FILLED", str(disk))
    with watching(
        small,
        policy,
        "--trim",
        "--interval",
        "1s",
        code=PLACES[1] + ONE_A_BATCH,
        state=small.state_dir,
    ) as watcher:
        watcher.wait_for("failed: ")
        gone = [small.ends(topic, partition)[0] for partition in range(4)]
        assert set(gone) == {0, 7}
        assert "No space left on device" in watcher.text
        assert watcher.metrics()["kretain_failures_total", "state"] >= 1
        (disk / "filler").unlink()
        watcher.wait_for(f"trimmed {28 - sum(gone)} records", 60)
        assert watcher.end() == 0
    assert [small.ends(topic, partition)[0] for partition in range(4)] == [7] * 4
    assert log_of(small).verify().breaks == []
