"""The audit log names everything that was deleted, after any crash; and the lock of a trim."""

from __future__ import annotations

import errno
import json
import os
import pwd
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retention_cli.audit.log import AuditLog, NamedLedger
from retention_cli.core.model import TopicPartition
from retention_cli.core.state_dir import LockedError, StateError, cluster_folder, trim_lock, user_name
from retention_cli.decide.guards.limits import Amount
from retention_cli.plan.reconcile import Target
from retention_cli.policy.settings import Limits
from retention_cli.trim.history import Choice, find_run, past_day, read_history, select
from retention_cli.trim.journal import AuditJournal, new_run_name
from retention_cli.trim.report import TrimReport, TrimRow
from tests.support.audit_logs import AT, BEGUN, append, append_bytes, batch, history, result
from tests.support.plans import plan, row
from tests.support.processes import no_room
from tests.support.says import refusal, says


def changed_row(number: int = 1, **changes: Any) -> dict[str, Any]:
    event = batch(number, 0)
    event["partitions"][0].update(changes)
    return event


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "c1")


def test_audit_line_is_synced_before_the_append_returns(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fsynced, whole: a request that is sent next is announced, whatever happens to the machine."""
    synced: list[bytes] = []

    def fsync(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink() == log.path:
            synced.append(log.path.read_bytes())

    monkeypatch.setattr("os.fsync", fsync)
    append(log, BEGUN, batch(1, 0))
    assert (len(synced), synced[-1].count(b"\n"), synced[-1]) == (2, 2, log.path.read_bytes())


@pytest.mark.parametrize(
    ("events", "records"),
    [
        ((), 0),
        ((batch(1, 0, 1),), 20),  # no result: what was announced may be gone
        ((batch(1, 0), result(1, {0: "unverified"})), 10),
        ((batch(1, 0), result(1, {0: "unverified"}), batch(2, 0), result(2, {0: "trimmed"})), 10),
        ((batch(1, 0, 1), result(1, {0: "unchanged", 1: "trimmed"})), 10),
        ((batch(1, 0, at="2026-11-19T00:00:00.000Z"), batch(2, 1)), 10),  # of another day
        *(  # of two requests that overlap, the larger one counts
            (
                (
                    *(batch(1, 0), result(1, {0: "unverified"})),
                    *(changed_row(2, target=5, records=5, bytes=50), result(2, {0: outcome})),
                ),
                records,
            )
            for outcome, records in (("trimmed", 10), ("unverified", 10), ("failed", 0), ("unchanged", 0))
        ),
    ],
)
def test_day_counts_what_is_trimmed_or_may_be(log: AuditLog, events: tuple[dict[str, Any], ...], records: int) -> None:
    append(log, *([BEGUN, *events] if events else []))
    assert log.trimmed_since("2026-11-20T03:00:00.000Z")[0] == Amount(records, 10 * records)


@pytest.mark.parametrize(
    ("before", "torn"),
    [
        pytest.param([BEGUN, batch(1, 0)], b'{"event":"result","run":"r1","at":"2026', id="of three"),
        pytest.param([], b"{" * 200_000, id="the only one"),
    ],
)
def test_torn_last_line_is_ignored_and_removed_by_the_next_append(
    log: AuditLog, before: list[dict[str, Any]], torn: bytes
) -> None:
    log.path.parent.mkdir()
    append(log, *before)
    append_bytes(log, torn)
    for added in ([], [BEGUN | {"run": "r2"}]):
        append(log, *added)
        found = [(one["event"], one["run"]) for one in log.events()]
        assert (found, log.verify().breaks) == ([(one["event"], one["run"]) for one in (*before, *added)], [])


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"[1]\n",
        b"{}\n",
        b'{"event":"batch","run":"r1","at":1,"batch":1,"partitions":[]}\n',
        b"\xff\n",
        b'{"event":"batch","run":"r1","at":"x","batch":1,"partitions":[{"topic":"t","partition":0,"records":"9","bytes":1}]}\n',
        b'{"event":"run","run":"r2"}\n',
        b'{"event":"run","run":"r2","at":"x","cluster":"c1"}\n',
        b'{"event":"end","run":"r1","at":"x"}\n',
        b'{"event":"end","run":"r1","at":"x","exit":0,"totals":[]}\n',
        json.dumps({**BEGUN, "run": "r2", "planned": {}}).encode() + b"\n",
        json.dumps(changed_row(records=-5)).encode() + b"\n",
        json.dumps(changed_row(bytes=-5)).encode() + b"\n",
        json.dumps(changed_row(records=True)).encode() + b"\n",
        json.dumps(changed_row(target=None)).encode() + b"\n",
        json.dumps(changed_row(log_start="0")).encode() + b"\n",
        json.dumps(batch(1, 0, run="r9")).encode() + b"\n",  # of a run that never began
        json.dumps({"event": "result", "run": "r1", "at": AT, "batch": 1, "partitions": [{"topic": "t"}]}).encode()
        + b"\n",
    ],
)
def test_broken_line_is_named_and_stops_the_read(log: AuditLog, line: bytes) -> None:
    append(log, BEGUN)
    append_bytes(log, line)
    append(log, batch(1, 0))
    assert "audit.jsonl:2" in refusal(StateError, log.trimmed_since, "")
    assert "audit.jsonl:2" in refusal(StateError, read_history, log.path.parent.parent)


@pytest.mark.parametrize("arguments", [[], ["--run", "r1", "-o", "json"]])
def test_history_names_a_broken_line_and_exits_1(log: AuditLog, arguments: list[str]) -> None:
    append(log, BEGUN, batch(1, 0))
    append_bytes(log, b'{"event":"run","run":"r2"}\n')
    said = history(log, *arguments, check=1)
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(f"kretain: {log.path}:3: a broken line")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        pytest.param(lambda path: path.parent.write_text("a file"), "state directory", id="a file for its folder"),
        pytest.param(
            lambda path: (path.parent.mkdir(), path.symlink_to("/dev/full")),
            "nothing more is trimmed",
            id="a full disk",
        ),
    ],
)
def test_log_that_cannot_be_written_ends_the_trim(log: AuditLog, harm: Callable[[Path], object], said: str) -> None:
    harm(log.path)
    assert said in refusal(StateError, log.append, BEGUN)


def test_cluster_id_cannot_escape_the_state_directory(tmp_path: Path) -> None:
    assert cluster_folder(tmp_path, "../../etc").parent == tmp_path
    refusal(StateError, cluster_folder, tmp_path, "..")


def test_history_lists_all_clusters_and_suggests_the_nearest_run(tmp_path: Path) -> None:
    for cluster, run in (("c2", "r2"), ("c1", "r1")):
        AuditLog(tmp_path / cluster).append({**BEGUN, "run": run, "at": f"{run}"})
    runs = read_history(tmp_path)
    assert [run.run for run in runs] == ["r1", "r2"]
    assert find_run(runs, "r2").begun["run"] == "r2"
    said = refusal(StateError, find_run, runs, "r22")  # a run of about that name is another one
    says(said, "kretain explain TOPIC:PARTITION --run ID shows a recorded plan", never=["did you mean"])


TOTALS = dict.fromkeys(("trimmed", "unchanged", "held", "failed", "unverified", "records", "bytes"), 0)


def some_runs(log: AuditLog, outcomes: list[str]) -> None:
    """Write a run a day; one that did nothing, or ended, or is cut off."""
    for number, outcome in enumerate(outcomes):
        about = {"run": f"run-{number}", "at": f"2026-11-{number + 1:02d}T03:00:00.000Z"}
        totals = TOTALS | ({} if outcome == "nothing" else {outcome: 1})
        end = {"event": "end", **about, "exit": 5 if outcome == "failed" else 0, "totals": totals}
        tried = batch(1, 0, **about)
        all_of_it = [tried, result(1, {0: outcome}, about["run"]), end]
        append(log, BEGUN | about, *{"nothing": [end], "cut off": [tried]}.get(outcome, all_of_it))


SECOND, THIRD = 1_793_588_400_000, 1_793_674_800_000
"""2026-11-02T03:00:00Z and a day later: when the second and the third run began."""


@pytest.mark.parametrize(
    ("choice", "runs"),
    [
        (Choice(), "0123456"),
        (Choice(since_ms=THIRD), "23456"),
        (Choice(until_ms=SECOND), "0"),
        (Choice(since_ms=SECOND, until_ms=SECOND + 1), "1"),
        (Choice(outcome="trimmed"), "05"),
        (Choice(outcome="failed"), "3"),
        (Choice(outcome="unverified"), "4"),  # what was cut off may have deleted
        (Choice(limit=2), "56"),
        (Choice(THIRD, None, "trimmed", (), 5), "5"),
        (Choice(topics=("t*",)), "0345"),
        (Choice(topics=("elsewhere",)), ""),
    ],
)
def test_history_filters_by_time_outcome_run_and_topic(log: AuditLog, choice: Choice, runs: str) -> None:
    some_runs(log, ["trimmed", "nothing", "nothing", "failed", "cut off", "trimmed", "nothing"])
    found = select(read_history(log.path.parent.parent), choice)
    assert [one.run for one in found] == [f"run-{number}" for number in runs]


def test_history_without_a_match_says_of_how_many_runs(log: AuditLog) -> None:
    assert history(log).out == "No trims yet. kretain plan shows what a trim would delete.\n"
    some_runs(log, ["trimmed", "nothing", "trimmed"])
    for arguments, said in (
        (("--outcome", "failed"), "None of 3 runs had a failed partition.\n"),
        (("--outcome", "unverified"), "None of 3 runs had an unverified partition.\n"),
        (("--until", "2020-01-01T00:00:00Z"), "None of 3 runs matches.\n"),
        (("nowhere",), "None of 3 runs matches.\n"),
    ):
        assert history(log, *arguments).out == said
    assert history(log, "nowhere", "-o", "json").json()["runs"] == []


def test_history_shows_settings_that_protect_changed(log: AuditLog) -> None:
    """One was done, one failed, and one may have been either."""
    for number, outcome in enumerate(("done", "failed", None)):
        at = f"2026-11-{number + 1:02d}T03:00:00.000Z"
        about = {"run": f"p{number}", "at": at, "topic": f"orders-{number}", "setting": "retention.ms"}
        append(log, {"event": "protect", **about, "from": None, "to": "90000", "original": None})
        if outcome is not None:
            append(log, {"event": "protected", **about, "outcome": outcome, "reason": "denied"})
    shown = history(log).out
    words = ("No trims", "default → 90000", "3 changes of settings by protect.")
    assert [one in shown for one in words] == [False, True, True], shown
    for arguments, runs in (
        ((), ["p0", "p1", "p2"]),
        (("--outcome", "failed"), ["p1"]),
        (("--outcome", "unverified"), ["p2"]),
        (("--since", "2026-11-02T00:00:00Z", "--limit", "1"), ["p2"]),
        (("orders-0", "orders-1:3"), ["p0", "p1"]),
        (("--run", "p1"), ["p1"]),
    ):
        assert [row["run"] for row in history(log, *arguments, "-o", "json").json()["settings"]] == runs
    assert "denied" in history(log, "--run", "p1").out


def test_history_table_folds_idle_runs(log: AuditLog) -> None:
    some_runs(log, ["trimmed", "nothing", "nothing", "failed", "nothing"])
    folded = history(log).out
    assert "… 2 runs" in folded
    assert [f"run-{number}" in folded for number in range(5)] == [True, False, False, True, True]
    assert "… 2 runs" not in history(log, "--all").out
    assert len(history(log, "-o", "csv").out.splitlines()) == 6
    assert "omit TOPIC, --run" in history(log, "--verify", "--limit", "1", check=2).err


def test_unknown_events_and_keys_of_a_newer_version_are_skipped(log: AuditLog) -> None:
    """Also before any run has begun."""
    unknown = {"event": "weighed", "run": "r9", "at": AT}
    new = {"new": 1}
    append(log, unknown, BEGUN | new, unknown, {"event": "note", "run": "r1", "at": AT}, changed_row(**new) | new)
    assert (list(log.runs()), log.trimmed_since("")[0]) == (["r1"], Amount(10, 100))
    append(log, result(1, {0: "trimmed"}))
    assert log.trimmed_since("")[0] == Amount(10, 100)


# -- the lock and the journal: one trim at a time, and each step on the disk before the next (docs/architecture.md) --


AT_MS = 1_795_230_000_007
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


def no_lock(folder: Path, wait_s: float = 0.0) -> None:
    with trim_lock(folder, "now", wait_s):
        pytest.fail("two at a time, or without a lock")


def test_lock_without_a_holders_name_still_locks(tmp_path: Path) -> None:
    with trim_lock(tmp_path, "then"):
        (tmp_path / "trim.lock").write_text("not json")
        assert "its holder is unknown" in refusal(LockedError, no_lock, tmp_path)


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
    says(refusal(LockedError, no_lock, tmp_path, 0.3), f"pid {os.getpid()} on ", " since then")
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
    assert "trim.lock can't be opened" in refusal(StateError, no_lock, tmp_path)


def test_lock_with_an_unnamable_holder_stops_the_trim(tmp_path: Path) -> None:
    with no_room(0):
        assert "trim.lock can't be written" in refusal(StateError, no_lock, tmp_path)


def test_uid_without_a_name_is_shown_as_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 987_654)
    assert user_name() == "987654"


def test_user_name_comes_from_the_uid_and_not_the_environment(
    log: AuditLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    with trim_lock(tmp_path, "now"):
        of_lock = json.loads((tmp_path / "trim.lock").read_text())["user"]
    AuditJournal(log, "r1", lambda: AT_MS).begin(plan(row()), None)
    assert of_lock == written(log)[0]["user"] == pwd.getpwuid(os.getuid()).pw_name


def written(log: AuditLog) -> list[dict[str, Any]]:
    """Return the log's events without what chains them."""
    return [{key: value for key, value in one.items() if key not in ("seq", "prev")} for one in log.events()]


def test_run_writes_an_audit_line_for_each_step(log: AuditLog) -> None:
    clock = iter(range(AT_MS, AT_MS + 100))
    journal = AuditJournal(log, "r1", lambda: next(clock))
    journal.begin(plan(row(), row(partition=1)), "plan.json", NamedLedger("l1", 7))
    [begun] = written(log)
    assert (begun["event"], begun["plan"]["file"]) == ("run", "plan.json")
    assert begun["ledger"] == {"id": "l1", "revision": 7}
    assert begun["planned"] == {"partitions": 2, "records": 100, "bytes": 1000, "unconsumed": 0}
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
    done = TrimRow(TP, "trimmed", 40, 40, (), 30, 300)
    journal.result(1, [done])
    journal.end(TrimReport("r1", "c1", "b", [done]), 0)
    assert [line["event"] for line in written(log)] == ["run", "batch", "result", "end"]
    assert written(log)[3]["totals"] == TOTALS | {"records": 30, "bytes": 300, "trimmed": 1}
    assert log.runs()["r1"].trimmed().records == 30, "what the journal writes the log can read"
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


def test_failed_run_logs_its_reason(log: AuditLog) -> None:
    journal = AuditJournal(log, "r1", lambda: AT_MS)
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


def test_daily_limit_counts_the_24_hours_before_now(log: AuditLog, tmp_path: Path) -> None:
    for name, at in (("r1", AT_MS - 86_400_001), ("r2", AT_MS - 86_400_000), ("r3", AT_MS)):
        journal = AuditJournal(log, name, lambda at=at: at)  # type: ignore[misc]
        journal.begin(plan(row()), None)
        journal.batch(1, {TP: Target(50, row())})
    assert [past_day(tmp_path, name, AT_MS, Limits()).records for name in ("c1", "c2")] == [100, 0]


def test_run_names_are_unique_and_sort_by_time(tmp_path: Path) -> None:
    names = [new_run_name(AT_MS + n * 1000) for n in range(20)]
    assert names == sorted(names)
    assert names[0].startswith("20261121T030000Z-")
    assert len({new_run_name(AT_MS) for _ in range(20)}) > 1


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """NFS without its lock daemon: kretain can't know who else trims, and blames no other process."""

    def refused(_handle: int, _how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("retention_cli.core.state_dir.fcntl.flock", refused)
    says(refusal(StateError, no_lock, tmp_path), "can't be locked", "--state-dir")
