"""What a trim writes down: on a disk that fills, in a topic that takes a copy, and as evidence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retention_cli.audit import shipping
from retention_cli.audit.chain import Chain, event_of
from retention_cli.audit.log import AuditLog
from retention_cli.brokers.writer import ClusterWriter
from retention_cli.core.state_dir import cluster_folder
from retention_cli.policy.settings import AuditRules
from retention_cli.trim.report import TrimReport
from tests.support.says import rows_of
from tests.support.trims import read_topic
from tests.support.volumes import volume
from tests.support.world import OLD, World, consumed, written


def sent(world: World, topic: str) -> list[bytes]:
    """Return the lines that a topic has."""
    return [one.value() for one in world.messages(topic)]


def log_of(world: World) -> AuditLog:
    return AuditLog(next(world.state_dir.glob("*/audit.head")).parent)


def lines_of(world: World) -> list[bytes]:
    """Return all lines of the log: those of the current file are the last."""
    files = sorted(
        log_of(world).path.parent.glob("audit*.jsonl"), key=lambda one: (one.name == "audit.jsonl", one.name)
    )
    return [line for one in files for line in one.read_bytes().split(b"\n")[:-1]]


def trim(world: World, topic: str, upto: int, copy: str | None) -> TrimReport:
    """Trim once more, each run into a file of its own."""
    world.commit(f"{topic}-a", topic, upto)
    report = world.trim(world.plan(consumed(topic)), consumed(topic), audit=AuditRules(1, copy))
    assert [row.outcome for row in report.rows] == ["trimmed"]
    return report


def test_audit_topic_has_each_line_once_in_order_keyed_by_run(world: World, topic: str) -> None:
    copy = world.topic("audit", partitions=3)
    trim(world, topic, 3, None)
    reports = [trim(world, topic, upto, copy) for upto in (4, 5, 6)]
    assert [one.audit_unshipped for one in reports] == [None] * 3
    found = [(one.key().decode(), one.value()) for one in world.messages(copy)]
    assert [value for _key, value in found] == lines_of(world), "what was there before the topic, too"
    assert len(found) == 24, "six lines a run"
    assert [key for key, _value in found[6::6]] == [one.run for one in reports]
    assert all(json.loads(value)["run"] == key for key, value in found)
    chain = Chain()
    for number, (_key, value) in enumerate(found, start=1):
        chain.take(number, value, event_of(value))
    assert chain.breaks == []


def test_missing_or_compacted_audit_topic_gets_nothing_and_stops_nothing(world: World, topic: str) -> None:
    assert "topic not-there-yet does not exist" in (trim(world, topic, 3, "not-there-yet").audit_unshipped or "")
    compacted, copy = world.topic("audit", cleanup_policy="compact"), world.topic("audit")
    assert "is compacted" in (trim(world, topic, 4, compacted).audit_unshipped or "")
    assert world.ends(compacted)[1] == 0
    assert trim(world, topic, 5, copy).audit_unshipped is None
    assert sent(world, copy) == lines_of(world)


def test_undelivered_audit_lines_follow_with_the_next_trim(
    world: World, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic takes no message of that size for a while."""
    monkeypatch.setattr(shipping, "AT_ONCE", 3)
    copy = world.topic("audit")
    assert trim(world, topic, 3, copy).audit_unshipped is None
    world.configure(copy, {"max.message.bytes": "100"})
    honest = ClusterWriter
    monkeypatch.setattr(shipping, "ClusterWriter", lambda settings, topics, _s: honest(settings, topics, 3.0))
    why = trim(world, topic, 4, copy).audit_unshipped or ""
    assert re.search(f"topic {copy} could not be written to.*; the next trim sends the lines that it lacks$", why)
    assert world.ends(copy)[1] == 6
    world.configure(copy, {"max.message.bytes": "1000000"})
    monkeypatch.undo()
    assert trim(world, topic, 5, copy).audit_unshipped is None
    assert list(dict.fromkeys(sent(world, copy))) == lines_of(world)


def test_unknown_audit_position_sends_the_whole_log_again(world: World, topic: str) -> None:
    copy = world.topic("audit")
    trim(world, topic, 3, copy)
    trim(world, topic, 4, copy)
    place = log_of(world).path.with_name(shipping.SHIPPED_NAME)
    harms: tuple[Callable[[], object], ...] = (
        lambda: place.write_text('{"topic": 7'),
        lambda: place.write_text(json.dumps({**json.loads(place.read_text()), "hash": "0" * 64})),
        place.unlink,
    )
    for upto, harm in enumerate(harms, start=5):
        before = sent(world, copy)
        harm()
        assert trim(world, topic, upto, copy).audit_unshipped is None
        assert sent(world, copy) == before + lines_of(world)
    world.renew(copy)
    assert trim(world, topic, 8, copy).audit_unshipped is None
    assert sent(world, copy) == lines_of(world)


def test_long_first_audit_copy_continues_with_the_next_trim(
    world: World, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = world.topic("audit")
    monkeypatch.setattr(shipping, "MOST_S", 0.0)
    monkeypatch.setattr(shipping, "AT_ONCE", 2)
    assert "lacks lines after 0 s" in (trim(world, topic, 3, copy).audit_unshipped or "")
    monkeypatch.undo()
    assert world.ends(copy)[1] == 2
    trim(world, topic, 4, copy)
    assert sent(world, copy) == lines_of(world)


def copied_to(tmp_path: Path, copy: str, *topics: str) -> str:
    """Write a policy that trims all of these topics, and copies the audit log; return where it is."""
    rule = f"match: [{', '.join(topics)}], retention.ms: 1h, unconsumed: trim"
    return str(written(tmp_path / "policy.yaml", f"version: 1\naudit: {{topic: {copy}}}\ntopics: [{{{rule}}}]\n"))


def test_topic_of_the_audit_copy_is_trimmed_only_where_it_is_named_in_full(
    world: World, topic: str, tmp_path: Path
) -> None:
    copy = world.filled(OLD, stem="audit")
    own = rows_of(world, "plan", "-p", copied_to(tmp_path, copy, f"{copy[:-1]}*", topic))[copy]
    assert (own["action"], own["reasons"][0]["code"]) == ("skip", "G5")
    assert "the topic with the copy of the audit log" in own["reasons"][0]["text"]
    assert rows_of(world, "plan", "-p", copied_to(tmp_path, copy, copy))[copy]["action"] == "trim"


def test_failed_audit_copy_warns_once_and_keeps_the_exit_code(world: World, topic: str, tmp_path: Path) -> None:
    done = world.cli("trim", "-p", copied_to(tmp_path, "no-copy", topic), "--yes", "-q", "-o", "json", check=0)
    report = done.json()
    assert (report["totals"]["trimmed"], "does not exist" in report["audit_unshipped"]) == (1, True), report
    assert re.fullmatch("kretain: the audit log is complete, but its copy is not: topic no-.*\n", done.err)
    assert cluster_folder(world.state_dir, report["cluster"]["id"]).exists()


COPIED = """import sys
from retention_cli.trim import run
run.ship = lambda *_: print("here it is copied")
from kretain.__main__ import main
sys.exit(main())"""


def test_report_is_printed_before_the_audit_copy(world: World, topic: str, tmp_path: Path) -> None:
    """A copy that is long held back the report."""
    named = ("-p", copied_to(tmp_path, "copy", topic), "-b", world.bootstrap, "--state-dir", str(world.state_dir))
    said = subprocess.check_output([sys.executable, "-c", COPIED, "trim", "--yes", *named], text=True)
    assert 0 <= said.index("trimmed") < said.index("here it is copied")


ONE_A_BATCH = """
import retention_cli.trim.narrow as reconcile
reconcile.PARTITIONS_A_LEADER = 1
from kretain.__main__ import main
main()
"""
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
    with volume(tmp_path / "disk", 2) as disk:
        yield World(world.bootstrap, disk / "state")


def trim_on_a_disk(world: World, topic: str, code: str = "") -> tuple[int, str, str]:
    """Run a trim whose batches have one partition of a leader each; return its exit code, its report and stderr."""
    disk = world.state_dir.parent
    policy = written(disk.parent / "policy.yaml", consumed(topic))
    named = ("-b", world.bootstrap, "-p", str(policy), "--state-dir", str(world.state_dir), "--yes", "-o", "json")
    done = subprocess.run(
        [sys.executable, "-c", code + ONE_A_BATCH, "trim", *named],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "FILLED": str(disk)},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("filled", PLACES, ids=["deleted", "written"])
def test_disk_filled_between_batches_stops_the_trim_before_the_next_batch(small: World, filled: str) -> None:
    topic = read_topic(small, partitions=4)

    def starts() -> list[int]:
        return [small.ends(topic, partition)[0] for partition in range(4)]

    code, out, err = trim_on_a_disk(small, topic, filled)
    report, gone = json.loads(out), starts()
    assert (set(gone), code) == ({0, 7}, 5), err
    assert {row["partition"]: row["outcome"] for row in report["partitions"]} == {
        n: "trimmed" if start else "failed" for n, start in enumerate(gone)
    }
    assert report["totals"]["records"] == sum(gone)
    (told,) = [line for line in err.splitlines() if "audit log is incomplete" in line]
    assert "can't be written: No space left on device; nothing more is trimmed" in told
    log = log_of(small)
    (run,) = log.runs().values()
    assert (log.verify().breaks, run.trimmed().records >= sum(gone)) == ([], True), "what has no result counts as gone"

    code, out, err = trim_on_a_disk(small, topic)
    assert (code, out) == (1, ""), "the disk is full still: nothing is announced, and nothing goes"
    assert starts() == gone
    assert "audit.jsonl can't be written: No space left on device" in err
    assert "move it away" not in err, "a ledger is not to be given up for a full disk"

    (small.state_dir.parent / "filler").unlink()
    code, out, err = trim_on_a_disk(small, topic)
    assert (code, starts(), log_of(small).verify().breaks) == (0, [7] * 4, []), err
