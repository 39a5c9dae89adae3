"""The lock and the journal: one trim at a time, and each step on the disk before the next (docs/architecture.md)."""

from __future__ import annotations

import errno
import json
import os
import pwd
import resource
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from retention_cli.audit.lock import LockedError, trim_lock, user_name
from retention_cli.audit.log import AuditLog, NamedLedger
from retention_cli.core.model import TopicPartition
from retention_cli.core.state_dir import StateError
from retention_cli.plan.reconcile import Target
from retention_cli.policy.settings import Limits
from retention_cli.trim.history import past_day
from retention_cli.trim.journal import AuditJournal, new_run_name
from retention_cli.trim.report import TrimReport, row_of
from tests.support.plans import plan, row

AT = 1_795_230_000_007
TP = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    "left", ['{"pid": 1, "host": "h", "user": "u", "since": "then"}\n', "garbage", "\x00" * 50, ""]
)
def test_stale_lock_file_does_not_block_a_trim(tmp_path: Path, left: str) -> None:
    """The kernel's lock counts, not the file: a stale one names a holder that is gone."""
    (tmp_path / "trim.lock").write_text(left)
    with trim_lock(tmp_path, "now"):
        holder = json.loads((tmp_path / "trim.lock").read_text())
        assert (holder["since"], set(holder)) == ("now", {"pid", "host", "user", "since"})
    assert (tmp_path / "trim.lock").read_text() == ""


def test_lock_without_a_holders_name_still_locks(tmp_path: Path) -> None:
    with trim_lock(tmp_path, "then"):
        (tmp_path / "trim.lock").write_text("not json")
        with pytest.raises(LockedError, match="its holder is unknown"), trim_lock(tmp_path, "now"):
            pytest.fail("two at a time")


def test_lock_waits_for_its_holder(tmp_path: Path) -> None:
    freed = threading.Event()

    def hold() -> None:
        with trim_lock(tmp_path, "then"):
            held.set()
            freed.wait(20)

    held = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(20)
    blamed = pytest.raises(LockedError, match=f"pid {os.getpid()} on .* since then")
    with blamed, trim_lock(tmp_path, "now", wait_s=0.3):
        pytest.fail("two at a time")
    threading.Timer(0.3, freed.set).start()
    with trim_lock(tmp_path, "now", wait_s=20):
        assert freed.is_set()
    holder.join()


def test_lock_is_released_after_an_error_and_of_one_cluster_alone(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), trim_lock(tmp_path / "c1", "then"):
        raise KeyboardInterrupt
    with trim_lock(tmp_path / "c1", "now"), trim_lock(tmp_path / "c2", "now"):
        pass


def test_lock_that_cannot_be_created_stops_the_trim(tmp_path: Path) -> None:
    (tmp_path / "trim.lock").mkdir()
    with pytest.raises(StateError, match=r"trim\.lock can't be opened"), trim_lock(tmp_path, "now"):
        pytest.fail("not locked")


def test_lock_with_an_unnamable_holder_stops_the_trim(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))  # no file may grow, as on a full disk
    try:
        with pytest.raises(StateError, match=r"trim\.lock can't be written"), trim_lock(tmp_path, "now"):
            pytest.fail("locked without a name")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_user_name_comes_from_the_uid_and_not_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    me = pwd.getpwuid(os.getuid()).pw_name
    with trim_lock(tmp_path, "now"):
        assert json.loads((tmp_path / "trim.lock").read_text())["user"] == me
    log = AuditLog(tmp_path)
    AuditJournal(log, "r1", lambda: AT).begin(plan(row()), None)
    assert written(log)[0]["user"] == me


def test_uid_without_a_name_is_shown_as_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 987_654)
    assert user_name() == "987654"


def written(log: AuditLog) -> list[dict[str, Any]]:
    """Return the log's lines without what chains them."""
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("seq", "prev")} for line in lines]


def test_run_writes_an_audit_line_for_each_step(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    clock = iter(range(AT, AT + 100))
    journal = AuditJournal(log, "r1", lambda: next(clock))
    journal.begin(plan(row(), row(partition=1)), "plan.json", NamedLedger("l1", 7))
    assert written(log)[0]["ledger"] == {"id": "l1", "revision": 7}
    assert [line["event"] for line in written(log)] == ["run"]
    assert written(log)[0]["plan"]["file"] == "plan.json"
    assert written(log)[0]["planned"] == {"partitions": 2, "records": 100, "bytes": 1000, "unconsumed": 0}
    journal.batch(1, {TP: Target(40, row(trim_to=50, min_commit=60, log_start=10, records=40, size_bytes=400))})
    assert written(log)[1] == {
        "event": "batch",
        "run": "r1",
        "at": "2026-11-21T03:00:00.008Z",
        "batch": 1,
        "partitions": [
            {
                "topic": "orders",
                "topic_id": "id-1",
                "partition": 0,
                "log_start": 10,
                "min_commit": 60,
                "target": 40,
                "records": 30,
                "bytes": 300,
                "unconsumed": 0,
                "rule": "consumed",
            }
        ],
    }
    done = row_of(TP, "trimmed", 40, 40, (), 30, 300)
    journal.result(1, [done])
    journal.end(TrimReport("r1", "c1", "b", [done]), 0)
    assert [line["event"] for line in written(log)] == ["run", "batch", "result", "end"]
    assert written(log)[3]["totals"] == {
        "records": 30,
        "bytes": 300,
        "trimmed": 1,
        "unchanged": 0,
        "held": 0,
        "failed": 0,
        "unverified": 0,
    }
    assert log.runs()["r1"].trimmed().records == 30, "what the journal writes the log can read"
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


def test_failed_run_logs_its_reason(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    journal = AuditJournal(log, "r1", lambda: AT)
    journal.begin(plan(row()), None)
    assert "ledger" not in written(log)[0]
    journal.end(None, 1, "no broker answered")
    assert written(log)[1] | {"at": ""} == {
        "event": "end",
        "run": "r1",
        "at": "",
        "exit": 1,
        "totals": {},
        "error": "no broker answered",
    }
    assert log.runs()["r1"].end is not None


def test_daily_limit_counts_the_24_hours_before_now(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "c1")
    day = 86_400_000
    for name, at in (("r1", AT - day - 1), ("r2", AT - day), ("r3", AT)):
        journal = AuditJournal(log, name, lambda at=at: at)  # type: ignore[misc]
        journal.begin(plan(row()), None)
        journal.batch(1, {TP: Target(50, row())})
    assert past_day(tmp_path, "c1", AT, Limits()).records == 100
    assert past_day(tmp_path, "c2", AT, Limits()).records == 0


def test_run_names_are_unique_and_sort_by_time(tmp_path: Path) -> None:
    names = [new_run_name(AT + n * 1000) for n in range(20)]
    assert names == sorted(names)
    assert names[0].startswith("20261121T030000Z-")
    assert len({new_run_name(AT) for _ in range(20)}) > 1


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """NFS without its lock daemon, say: nobody can know who else trims, and nobody is blamed."""

    def refused(_handle: int, _how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("retention_cli.audit.lock.fcntl.flock", refused)
    with pytest.raises(StateError, match=r"can't be locked.*--state-dir"), trim_lock(tmp_path, "now"):
        pytest.fail("it was not locked")
