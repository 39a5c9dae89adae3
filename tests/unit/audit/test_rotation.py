"""Files of the audit log: one chain over all of them, and nothing is lost where one ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retention_cli.audit.chain import hash_of
from retention_cli.audit.files import FILE_NAME, HEAD_NAME, closed_files, closed_name, folders_with_log, read_head
from retention_cli.audit.log import AuditLog, NamedLedger
from retention_cli.core.state_dir import StateError
from retention_cli.decide.guards.limits import Amount
from retention_cli.policy.settings import Limits
from retention_cli.trim.history import past_day, read_history
from tests.support.audit_logs import BEGUN, END, append, append_bytes, batch, day, history, result, run
from tests.support.says import refusal


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    """Four files of a run each, on four days; the last one is open."""
    made = AuditLog(tmp_path / "c1")
    for number in range(1, 5):
        run(made, f"r{number}", day(number))
    return made


def file(log: AuditLog, number: int) -> Path:
    """The log's file with the run ``number``."""
    return log.path if number == 4 else log.path.with_name(closed_name(4 * number))


def first_line(log: AuditLog) -> dict[str, Any]:
    return json.loads(log.path.read_bytes().splitlines()[0])  # type: ignore[no-any-return]


def told(log: AuditLog) -> list[tuple[str | None, int | None, str]]:
    return [(one.file, one.line, one.text) for one in log.verify().breaks]


def test_large_audit_file_is_rotated_at_the_next_run_and_the_chain_continues(log: AuditLog) -> None:
    assert closed_files(log.path.parent) == (closed_name(4), closed_name(8), closed_name(12))
    before = hash_of(file(log, 3).read_bytes().splitlines()[-1])
    assert [first_line(log)[name] for name in ("seq", "after", "prev")] == [13, closed_name(12), before]
    chain = log.verify()
    assert (chain.lines, chain.breaks, chain.removed) == (16, [], 0)
    assert list(log.runs()) == ["r1", "r2", "r3", "r4"]
    assert log.trimmed_since("")[:2] == (Amount(40, 400), None)


def test_audit_file_below_the_size_is_not_rotated(log: AuditLog) -> None:
    size = log.path.stat().st_size
    for limit, is_open in ((size + 1, True), (size, False), (size, False)):  # at last there is none to close
        log.rotate(limit)
        assert (log.path.exists(), told(log), len(log.runs())) == (is_open, [], 4)
    run(log, "r5")
    assert (told(log), len(log.runs())) == ([], 5)


def test_last_ledger_is_found_in_any_file(log: AuditLog) -> None:
    assert log.last_ledger() is None
    log.append({**BEGUN, "run": "r5", "ledger": {"id": "l1", "revision": 7}})
    run(log, "r6")
    run(log, "r7")
    assert log.last_ledger() == NamedLedger("l1", 7)


def test_daily_count_spans_files_and_skips_old_ones(log: AuditLog) -> None:
    assert log.trimmed_since(day(3))[:2] == (Amount(20, 200), None)
    file(log, 1).write_bytes(b"not a line\n")
    assert log.trimmed_since(day(3))[:2] == (Amount(20, 200), None)
    with pytest.raises(StateError, match=f"{closed_name(4)}:1: a broken line"):
        log.trimmed_since(day(1))
    file(log, 2).write_bytes(file(log, 2).read_bytes()[:-1] + b" \n")
    assert "edited, or line 1 of" in (log.trimmed_since(day(3))[1] or "")


def test_removed_old_audit_files_are_mentioned_without_a_break(log: AuditLog) -> None:
    file(log, 1).unlink()
    file(log, 2).unlink()
    chain = log.verify()
    assert (chain.breaks, chain.removed, chain.lines, list(log.runs())) == ([], 8, 8, ["r3", "r4"])
    run(log, "r5")
    assert told(log) == []
    assert "the files before it, with 8 lines, were removed" in history(log, "--verify").out


@pytest.mark.parametrize(("gone", "first", "named"), [((1,), 2, closed_name(8)), ((1, 2, 3), 4, FILE_NAME)])
def test_daily_count_is_unknown_when_its_files_were_removed(
    log: AuditLog, gone: tuple[int, ...], first: int, named: str
) -> None:
    """Or the limits per day would begin anew by moving a file away (G6). A trim without such a limit goes on."""
    for number in gone:
        file(log, number).unlink()
    amount, broken, _alone = log.trimmed_since(day(first))
    assert amount == Amount(10 * (5 - first), 100 * (5 - first))
    assert f"{named}: the files before it were removed, and may list trims since" in str(broken)
    assert first == 4 or log.trimmed_since(day(3))[:2] == (Amount(20, 200), None)
    now = 1_793_588_400_000 + 3_600_000  # 2026-11-02T03:00:00Z, an hour later
    assert "were removed" in refusal(StateError, past_day, log.path.parent.parent, "c1", now, Limits(max_records=100))


@pytest.mark.parametrize("days", [(10, 5, 5), (10, 5, 10), (5, 10, 5, 5), (10, 10, 5, 5, 12), (12, 5, 5, 10)])
def test_daily_count_is_complete_after_the_clock_was_set_back(tmp_path: Path, days: tuple[int, ...]) -> None:
    """A file that ends long ago, by a wrong clock, says nothing of those before it (G6)."""
    log = AuditLog(tmp_path / "c1")
    for number, one in enumerate(days):
        run(log, f"r{number}", day(one))
    recent = sum(one >= 9 for one in days)
    wanted = Amount(10 * recent, 100 * recent), None
    assert log.trimmed_since(day(9))[:2] == wanted
    log.rotate(1)  # the next file is not begun yet
    assert log.trimmed_since(day(9))[:2] == wanted
    of_today = days.index(max(days)) + 1
    for name in closed_files(log.path.parent)[: min(of_today, len(days) - 1)]:
        log.path.with_name(name).unlink()
    assert log.trimmed_since(day(9))[1] is not None, "moved away, however old what is left looks"


def test_pending_request_counts_after_the_clock_was_set_back(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "c1")
    append(
        log,
        *({**BEGUN, "at": day(10)}, batch(1, 0, at=day(10)), result(1, {0: "unverified"})),
        *(batch(2, 0, at=day(5)), result(2, {0: "trimmed"}), {**END, "run": "r1", "at": day(5)}),
    )
    assert log.trimmed_since(day(9))[:2] == (Amount(10, 100), None)


def rewrite(log: AuditLog, number: int, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path = file(log, number)
    path.write_bytes(b"".join(line + b"\n" for line in change(path.read_bytes().splitlines())))


Harm = Callable[[AuditLog], object]


@pytest.mark.parametrize(
    ("harm", "where", "line", "words"),
    [
        (
            lambda log: file(log, 2).unlink(),
            3,
            1,
            f"a file is missing before it: {closed_name(8)}, and with it 4 lines",
        ),
        (lambda log: rewrite(log, 2, lambda ls: ls[:2]), 3, 1, f"{closed_name(8)}, the file before it, was cut at the"),
        (lambda log: rewrite(log, 2, lambda _: []), 3, 1, f"{closed_name(8)}, the file before it, was cut at the end"),
        (lambda log: rewrite(log, 1, lambda _: []), 2, 1, f"{closed_name(4)}, the file before it, was cut at the end"),
        (lambda log: rewrite(log, 2, lambda ls: ls[1:]), 2, 1, "a line is missing before it (number 5 was due)"),
        (lambda log: rewrite(log, 1, lambda ls: ls[1:]), 1, 1, "cut at the front: a line is missing"),
        (lambda log: rewrite(log, 2, lambda ls: [ls[0], *ls[2:]]), 2, 2, "a line is missing before it"),
        (
            lambda log: rewrite(log, 2, lambda ls: [*ls[:3], ls[3] + b" "]),
            2,
            4,
            f"edited, or line 1 of {closed_name(12)} was",
        ),
        (lambda log: rewrite(log, 2, lambda ls: [ls[0], ls[1] + b" ", *ls[2:]]), 2, 2, "edited, or line 3 was"),
        (lambda log: file(log, 4).unlink(), None, None, "cut at the end: 4 lines are missing"),
        (lambda log: rewrite(log, 4, lambda ls: ls[:3]), None, None, "cut at the end: a line is missing"),
    ],
)
def test_damage_to_a_rotated_file_is_named_once_with_the_file(
    log: AuditLog, harm: Harm, where: int | None, line: int | None, words: str
) -> None:
    harm(log)
    ((name, at, text),) = told(log)
    assert (name, at, words in text) == (None if where is None else file(log, where).name, line, True), text
    shown = log.shown(log.verify().breaks[0])
    assert shown.startswith(f"{log.path if where is None else file(log, where)}{'' if line is None else f':{line}'}: ")


def test_missing_open_file_stays_reported(log: AuditLog) -> None:
    """The numbers go on behind the closed files, and the first line keeps that some are gone."""
    log.path.unlink()
    run(log, "r5")
    assert first_line(log)["seq"] == 17
    ((name, line, text),) = told(log)
    assert (name, line, "the head knew of 16: lines were gone" in text) == (FILE_NAME, 1, True), text


def test_file_with_a_broken_end_is_not_rotated_before_a_line_records_it(log: AuditLog) -> None:
    (log.path.parent / HEAD_NAME).unlink()
    for name, last in (("r5", 12), ("r6", 20)):
        run(log, name)
        assert closed_files(log.path.parent)[-1] == closed_name(last)
    assert ["there was no head" in text for _name, _line, text in told(log)] == [True]


def test_existing_target_of_a_rotation_stops_the_trim(log: AuditLog) -> None:
    other = log.path.with_name(closed_name(16))
    other.write_text("evidence")
    with pytest.raises(StateError, match=f"renamed to {closed_name(16)}, which exists"):
        log.rotate(1)
    assert (other.read_text(), log.path.exists()) == ("evidence", True)


def test_torn_line_is_not_carried_into_a_rotated_file(log: AuditLog) -> None:
    append_bytes(log, b'{"seq":17,"prev')
    run(log, "r5")
    assert file(log, 3).with_name(closed_name(16)).read_bytes().endswith(b"\n")
    assert (told(log), len(log.runs())) == ([], 5)


def test_log_rotated_during_a_read_is_read_completely(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever plans or looks at history holds no lock: the file may be closed between any two steps."""
    reads = "retention_cli.audit.log.read_head"
    left = ["r5", "r6", "r7"]

    def meanwhile(folder: Path) -> object:
        monkeypatch.setattr(reads, read_head)
        if left:
            run(log, left.pop(0))
        found = read_head(folder)
        monkeypatch.setattr(reads, meanwhile)
        return found

    monkeypatch.setattr(reads, meanwhile)
    assert told(log) == []
    monkeypatch.setattr(reads, read_head)
    assert log.verify().lines == 28
    events = log.events()
    assert next(events)["run"] == "r1"
    run(log, "r8")  # while the events are read
    assert [event["run"] for event in events if event["event"] == "run"] == [f"r{n}" for n in range(2, 8)]


def test_history_reads_all_files_without_the_open_one(log: AuditLog) -> None:
    state = log.path.parent.parent
    (log.path.parent / HEAD_NAME).unlink()
    log.path.unlink()
    (state / "c2").mkdir()
    (state / "c2" / "audit-notes.jsonl").touch()
    assert folders_with_log(state) == [log.path.parent]
    assert [one.run for one in read_history(state)] == ["r1", "r2", "r3"]


def dies(step: int, work: Callable[[], object]) -> bool:
    """Do this in a process that is killed at that step, a write half done; return whether it came to its end."""
    child = os.fork()
    if child == 0:
        left = step

        def dying(name: str) -> None:
            honest = getattr(os, name)

            def call(*arguments: Any, **more: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    if name == "write":
                        honest(arguments[0], arguments[1][:9])
                    os.kill(os.getpid(), signal.SIGKILL)
                return honest(*arguments, **more)

            setattr(os, name, call)

        try:
            for name in ("open", "write", "fsync", "rename", "replace", "close", "ftruncate", "mkdir", "pread"):
                dying(name)
            work()
            os._exit(7)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (7, -signal.SIGKILL)
    return code == 7


@pytest.mark.parametrize("lines", [0, 1, 16], ids=["first line", "next line", "first line of the next file"])
def test_writer_killed_at_any_step_leaves_a_valid_log(log: AuditLog, tmp_path: Path, lines: int) -> None:
    before = log.path.parent if lines == 16 else tmp_path / "before"
    if lines == 1:
        AuditLog(before).append(BEGUN)
    seen = set()
    for step in range(200):
        here = AuditLog(tmp_path / str(step))
        if before.exists():
            shutil.copytree(before, here.path.parent)

        def work(here: AuditLog = here) -> None:
            if lines == 16:
                here.rotate(1)
            here.append({**BEGUN, "run": "r5"})

        ended = dies(step, work)
        chain = here.verify()
        assert (chain.breaks, chain.removed) == ([], 0), step
        assert chain.lines in (lines, lines + 1), step
        states = {
            "torn": here.path.exists() and not here.path.read_bytes().endswith(b"\n"),
            "between the rename and the first line": here.path.with_name(closed_name(16)).exists()
            and not here.path.exists(),
            "between the two writes": chain.behind,
        }
        seen |= {name for name, is_so in states.items() if is_so}
        run(here, "r9")
        after = here.verify()
        assert (after.breaks, after.behind, after.lines) == ([], False, chain.lines + 4), step
        if ended:
            break
    assert step > 10
    assert {*states} - seen <= ({"between the rename and the first line"} if lines < 16 else set())
