"""The audit log's chain over its files: what is done to a line shows, a crash does not look like it, and no line is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import assume, given, strategies as st

from retention_cli.audit.chain import ZEROS, Chain, Link, Resumed, event_of, hash_of, is_signed, next_line, resume
from retention_cli.audit.files import (
    FILE_NAME,
    HEAD_NAME,
    closed_files,
    closed_name,
    folders_with_log,
    read_head,
    write_head,
)
from retention_cli.audit.log import AuditLog, NamedLedger
from retention_cli.core.state_dir import StateError
from retention_cli.decide.guards.limits import Amount
from retention_cli.policy.settings import Limits
from retention_cli.trim.history import past_day, read_history, read_past_day
from retention_cli.trim.journal import AuditJournal
from tests.support.audit_logs import AT, BEGUN, END, FOUR, append, append_bytes, batch, day, history, result, run
from tests.support.says import refusal, says
from tests.support.world import run_cli

SECOND = (BEGUN | {"run": "r2"}, batch(1, 0, run="r2"))
UNCHAINED = b'{"event":"end","run":"r0","at":"2026-11-20T03:00:00.000Z","exit":0,"totals":{}}'


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    """Four chained lines."""
    made = AuditLog(tmp_path / "c1")
    append(made, *FOUR)
    return made


def lines_of(log: AuditLog) -> list[bytes]:
    return log.path.read_bytes().splitlines()


def put(log: AuditLog, *lines: bytes) -> None:
    log.path.parent.mkdir(parents=True, exist_ok=True)
    log.path.write_bytes(b"".join(line + b"\n" for line in lines))


def told(log: AuditLog) -> list[tuple[int | None, str]]:
    return [(one.line, one.text) for one in log.verify().breaks]


def chain_of(lines: list[bytes], head: Link | None) -> Chain:
    chain = Chain()
    for number, line in enumerate(lines, start=1):
        chain.take(number, line, event_of(line))
    chain.end(head)
    return chain


def written(count: int) -> tuple[list[bytes], Link]:
    lines: list[bytes] = []
    head = Link()
    for number in range(count):
        line, head = next_line({"event": "batch", "batch": number, "at": AT}, Resumed(head))
        lines.append(line)
    return lines, head


def test_each_audit_line_has_its_number_and_the_previous_hash(log: AuditLog) -> None:
    hashes = list(map(hash_of, lines_of(log)))
    events = [json.loads(line) for line in lines_of(log)]
    assert [(event["seq"], event["prev"]) for event in events] == [*enumerate([ZEROS, *hashes[:3]], start=1)]
    assert read_head(log.path.parent) == (Link(4, hashes[3]), None)
    chain = log.verify()
    assert (chain.lines, chain.since, chain.behind, chain.breaks) == (4, AT, False, [])


@pytest.mark.parametrize(
    ("harm", "line", "words"),
    [
        (lambda ls: [ls[0], ls[1].replace(b'"records":10', b'"records":1'), *ls[2:]], 2, "edited, or line 3 was"),
        (lambda ls: [*ls[:3], ls[3].replace(b'"exit":0', b'"exit":4')], 4, "edited: audit.head has another hash"),
        (lambda ls: [ls[0], ls[1].replace(b'"seq":2', b'"seq":7'), *ls[2:]], 2, "edited: its number is 7, 2 was due"),
        (lambda ls: [ls[0], b"{", *ls[2:]], 2, "can't be read as a line"),
        (lambda ls: [ls[0], b"", *ls[2:]], 2, "can't be read as a line"),
        (lambda ls: [ls[0], *ls[2:]], 2, "a line is missing before it (number 2 was due)"),
        (lambda ls: [ls[0], ls[3]], 2, "2 lines are missing before it"),
        (lambda ls: ls[1:], 1, "cut at the front: a line is missing"),
        (lambda ls: ls[:2], None, "cut at the end: 2 lines are missing (audit.head knows of number 4)"),
        (lambda _: [], None, "cut at the end: 4 lines are missing"),
        (lambda ls: [ls[0], ls[2], ls[1], ls[3]], 3, "out of order: its number is 2"),
        (lambda ls: [*ls, ls[3]], 5, "out of order: its number is 4"),
        (lambda ls: [*ls[:3], UNCHAINED, ls[3]], 4, "not chained: not written by kretain"),
        (lambda ls: [UNCHAINED, *ls], 1, "not chained: not written by kretain"),
        (lambda ls: [b"{", *ls[1:]], 1, "can't be read as a line"),
    ],
)
def test_break_in_the_chain_is_named_once_with_its_meaning(
    log: AuditLog, harm: Callable[[list[bytes]], list[bytes]], line: int | None, words: str
) -> None:
    put(log, *harm(lines_of(log)))
    ((at, text),) = told(log)
    assert (at, words in text) == (line, True), text


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        *(
            (lambda head, text=text: head.write_text(text), words)
            for text, words in (
                ("{", "audit.head is damaged: whether lines at the end are gone is unknown"),
                ('{"seq": -1, "hash": "x"}', "audit.head is damaged"),
                (json.dumps({"seq": 1, "hash": ZEROS}), "of another log, or an older one: it ends at number 1"),
                (json.dumps({"seq": 3, "hash": ZEROS}), "of another log, or an older one"),
                (json.dumps({"seq": 4, "hash": ZEROS}), "edited: audit.head has another hash"),
            )
        ),
        (Path.unlink, "audit.head is missing"),
        (lambda head: (head.unlink(), head.mkdir()), "audit.head can't be read (Is a directory)"),
    ],
)
def test_missing_damaged_or_foreign_head_is_a_break(log: AuditLog, harm: Callable[[Path], object], words: str) -> None:
    harm(log.path.parent / HEAD_NAME)
    assert words in told(log)[0][1]


def test_head_one_line_behind_counts_as_a_crash_and_not_as_a_break(log: AuditLog) -> None:
    write_head(log.path.parent, Link(3, hash_of(lines_of(log)[2])))
    assert (told(log), log.verify().behind) == ([], True)
    log.append({**BEGUN, "run": "r2"})
    assert (told(log), len(lines_of(log))) == ([], 5)


@given(count=st.integers(1, 30), data=st.data())
def test_any_single_edit_drop_swap_or_cut_is_found(count: int, data: st.DataObject) -> None:
    lines, head = written(count)
    assert chain_of(lines, head).breaks == []
    at = data.draw(st.integers(0, count - 1))
    harmed = list(lines)
    match data.draw(st.sampled_from(["edit", "field", "drop", "swap", "cut", "front"])):
        case "edit":
            place = data.draw(st.integers(0, len(lines[at]) - 1))
            byte = data.draw(st.binary(min_size=0, max_size=3).filter(lambda some: b"\n" not in some))
            harmed[at] = lines[at][:place] + byte + lines[at][place + 1 :]
        case "field":
            event = json.loads(lines[at])
            key = data.draw(st.sampled_from(["seq", "prev", "batch", "at", "new"]))
            event[key] = data.draw(
                st.one_of(st.integers(-1, 40), st.sampled_from([ZEROS, "x", None, hash_of(lines[0])]))
            )
            harmed[at] = json.dumps(event, separators=(",", ":")).encode()
        case "drop":
            del harmed[at]
        case "swap":
            other = data.draw(st.integers(0, count - 1))
            harmed[at], harmed[other] = harmed[other], harmed[at]
        case "cut":
            del harmed[at:]
        case "front":
            del harmed[: at + 1]
    assume(harmed != lines)
    assert chain_of(harmed, head).breaks


@given(count=st.integers(0, 12), lines=st.lists(st.one_of(st.binary(max_size=40), st.just(UNCHAINED)), max_size=12))
def test_any_file_content_can_be_verified_and_appended_to(count: int, lines: list[bytes]) -> None:
    good, head = written(count)
    log = [*good, *(line.replace(b"\n", b"") for line in lines)]
    for known in (head, None, Link(3, ZEROS)):
        chain_of(log, known)
        line, link = next_line({"event": "end"}, resume(log[-1] if log else None, known))
        after = chain_of([*log, line], link)
        assert known is None or not [one for one in after.breaks if one.line is None], "the end is sound again"
        if not lines and known == head:
            assert after.breaks == []


def test_log_continues_after_a_broken_end_and_records_it(log: AuditLog) -> None:
    """A cut does not heal by the next trim: its line tells of it, and numbers are not used twice."""
    put(log, *lines_of(log)[:2])
    append(log, *SECOND)
    last = [json.loads(line) for line in lines_of(log)]
    assert [line["seq"] for line in last] == [1, 2, 5, 6]
    assert (last[2]["prev"], "broken" in last[3]) == (hash_of(lines_of(log)[1]), False)
    ((line, text),) = told(log)
    words = "the last line before had number 2, and the head knew of 4: lines were gone"
    assert (line, words in text) == (3, True), text


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda log: (log.path.parent / HEAD_NAME).unlink(), "there was no head"),
        (lambda log: (log.path.parent / HEAD_NAME).write_text("{"), "audit.head is damaged"),
        (lambda log: log.path.unlink(), "the log was empty, and its head knew of 4 lines"),
        (lambda log: put(log, *lines_of(log), UNCHAINED), "the line before can't be read, or is not chained"),
        (lambda log: put(log, *lines_of(log), b"garbage"), "the line before can't be read"),
        (lambda log: put(log, *lines_of(log)[:3], lines_of(log)[3] + b" "), "another hash of the line before"),
        (lambda log: write_head(log.path.parent, Link(1, ZEROS)), "another log's, or an older one"),
    ],
)
def test_damage_at_the_end_stays_reported_after_an_append(
    log: AuditLog, harm: Callable[[AuditLog], object], words: str
) -> None:
    harm(log)
    append(log, *SECOND)
    assert [text for _line, text in told(log) if words in text]


def test_surrogate_in_a_path_is_written_as_json(log: AuditLog) -> None:
    log.append({**BEGUN, "run": "r2", "policy": {"source": "\udcff.yaml"}})
    assert log.runs()["r2"].begun["policy"]["source"] == "\udcff.yaml"
    assert told(log) == []


LIMITED = Limits(max_records=100)


def test_daily_limits_refuse_a_broken_log(log: AuditLog) -> None:
    """G6: what the log tells of the day is not to be relied on. Without such limits it stops nothing."""
    state, now = log.path.parent.parent, 1_795_230_000_000
    assert past_day(state, "c1", now, LIMITED).records == 10
    lines = lines_of(log)
    put(log, lines[0], lines[1].replace(b'"records":10', b'"records":1'), *lines[2:])
    for limits in (LIMITED, Limits(max_bytes=1)):
        says(
            refusal(StateError, past_day, state, "c1", now, limits),
            "c1/audit.jsonl:2: edited",
            "kretain history --verify",
        )
    for limits in (Limits(), Limits(max_percent=50)):
        assert past_day(state, "c1", now, limits).records == 1
    assert "audit.jsonl:2: edited" in (read_past_day(state, "c1", now).broken or "")


def beside(log: AuditLog, cluster: str) -> AuditLog:
    return AuditLog(log.path.parent.parent / cluster)


def test_history_verify_of_an_intact_log_exits_0(log: AuditLog) -> None:
    put(beside(log, "c0"))
    behind = beside(log, "c2")
    behind.append(BEGUN)
    write_head(behind.path.parent, Link())
    done = history(log, "--verify")
    assert not done.err
    assert done.out == (
        "c0: no lines: the next trim begins the chain.\n"
        f"c1: 4 lines, unbroken since {AT}.\n"
        f"c2: 1 line, unbroken since {AT}; the head is one line behind, as after a crash: no line is missing.\n"
    )


def test_history_verify_names_each_break_and_exits_1(log: AuditLog) -> None:
    cut = beside(log, "c2")
    cut.append(BEGUN)
    cut.path.unlink()
    put(log, lines_of(log)[0], *lines_of(log)[2:])
    done = history(log, "--verify", check=1)
    assert done.out == (
        f"{log.path}:2: a line is missing before it (number 2 was due)\n"
        f"{cut.path}: cut at the end: a line is missing (audit.head knows of number 1)\n"
    )
    assert done.err.startswith("kretain: 2 audit logs of 2 are broken: restore missing or edited lines")
    assert done.err.count("\n") == 1
    logs = history(log, "--verify", "-o", "json", check=1).json()["logs"]
    assert [(one["cluster"], one["lines"], one["breaks"][0]["line"]) for one in logs] == [("c1", 3, 2), ("c2", 0, None)]
    assert f"{log.path}:2: a line is missing" in history(log, "--verify", "-o", "csv", check=1).out


def test_history_verify_accepts_an_empty_log_and_refuses_a_single_run(tmp_path: Path) -> None:
    assert "No audit log yet" in run_cli("history", "--verify", "--state-dir", str(tmp_path), check=0).out
    run_cli("history", "--verify", "--run", "r1", "--state-dir", str(tmp_path), check=2)


KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)


def test_signature_covers_the_chain_before_it(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "c1")
    log.append(BEGUN)
    AuditJournal(log, "r1", lambda: 1_795_000_000_000, KEY).end(None, 1, "failed")
    assert (told(log), list(log.runs())) == ([], ["r1"])
    line = json.loads(lines_of(log)[-1])
    assert (line["event"], line["run"]) == ("signature", "r1")
    assert [is_signed(line, key.public_key()) for key in (KEY, OTHER)] == [True, False]
    for name, value in {"event": "end", "run": "r2", "prev": "0" * 64, "seq": 4, "key": "", "signature": 7}.items():
        assert not is_signed({**line, name: value}, KEY.public_key()), name


# -- files: one chain over all of them, and nothing is lost where one ends --


@pytest.fixture
def rotated(tmp_path: Path) -> AuditLog:
    """Four files of a run each, on four days; the last one is open."""
    made = AuditLog(tmp_path / "c1")
    for number in range(1, 5):
        run(made, f"r{number}", day(number))
    return made


def file(rotated: AuditLog, number: int) -> Path:
    """The log's file with the run ``number``."""
    return rotated.path if number == 4 else rotated.path.with_name(closed_name(4 * number))


def first_line(rotated: AuditLog) -> dict[str, Any]:
    return json.loads(rotated.path.read_bytes().splitlines()[0])  # type: ignore[no-any-return]


def breaks(rotated: AuditLog) -> list[tuple[str | None, int | None, str]]:
    return [(one.file, one.line, one.text) for one in rotated.verify().breaks]


def test_large_audit_file_is_rotated_at_the_next_run_and_the_chain_continues(rotated: AuditLog) -> None:
    assert closed_files(rotated.path.parent) == (closed_name(4), closed_name(8), closed_name(12))
    before = hash_of(file(rotated, 3).read_bytes().splitlines()[-1])
    assert [first_line(rotated)[name] for name in ("seq", "after", "prev")] == [13, closed_name(12), before]
    chain = rotated.verify()
    assert (chain.lines, chain.breaks, chain.removed) == (16, [], 0)
    assert list(rotated.runs()) == ["r1", "r2", "r3", "r4"]
    assert rotated.trimmed_since("")[:2] == (Amount(40, 400), None)


def test_audit_file_below_the_size_is_not_rotated(rotated: AuditLog) -> None:
    size = rotated.path.stat().st_size
    for limit, is_open in ((size + 1, True), (size, False), (size, False)):  # at last there is none to close
        rotated.rotate(limit)
        assert (rotated.path.exists(), breaks(rotated), len(rotated.runs())) == (is_open, [], 4)
    run(rotated, "r5")
    assert (breaks(rotated), len(rotated.runs())) == ([], 5)


def test_last_ledger_is_found_in_any_file(rotated: AuditLog) -> None:
    assert rotated.last_ledger() is None
    rotated.append({**BEGUN, "run": "r5", "ledger": {"id": "l1", "revision": 7}})
    run(rotated, "r6")
    run(rotated, "r7")
    assert rotated.last_ledger() == NamedLedger("l1", 7)


def test_daily_count_spans_files_and_skips_old_ones(rotated: AuditLog) -> None:
    assert rotated.trimmed_since(day(3))[:2] == (Amount(20, 200), None)
    file(rotated, 1).write_bytes(b"not a line\n")
    assert rotated.trimmed_since(day(3))[:2] == (Amount(20, 200), None)
    assert f"{closed_name(4)}:1: a broken line" in refusal(StateError, rotated.trimmed_since, day(1))
    file(rotated, 2).write_bytes(file(rotated, 2).read_bytes()[:-1] + b" \n")
    assert "edited, or line 1 of" in (rotated.trimmed_since(day(3))[1] or "")


def test_removed_old_audit_files_are_mentioned_without_a_break(rotated: AuditLog) -> None:
    file(rotated, 1).unlink()
    file(rotated, 2).unlink()
    chain = rotated.verify()
    assert (chain.breaks, chain.removed, chain.lines, list(rotated.runs())) == ([], 8, 8, ["r3", "r4"])
    run(rotated, "r5")
    assert breaks(rotated) == []
    assert "the files before it, with 8 lines, were removed" in history(rotated, "--verify").out


@pytest.mark.parametrize(("gone", "first", "named"), [((1,), 2, closed_name(8)), ((1, 2, 3), 4, FILE_NAME)])
def test_daily_count_is_unknown_when_its_files_were_removed(
    rotated: AuditLog, gone: tuple[int, ...], first: int, named: str
) -> None:
    """Or the limits per day would begin anew by moving a file away (G6). A trim without such a limit goes on."""
    for number in gone:
        file(rotated, number).unlink()
    amount, broken, _alone = rotated.trimmed_since(day(first))
    assert amount == Amount(10 * (5 - first), 100 * (5 - first))
    assert f"{named}: the files before it were removed, and may list trims since" in str(broken)
    assert first == 4 or rotated.trimmed_since(day(3))[:2] == (Amount(20, 200), None)
    now = 1_793_588_400_000 + 3_600_000  # 2026-11-02T03:00:00Z, an hour later
    assert "were removed" in refusal(
        StateError, past_day, rotated.path.parent.parent, "c1", now, Limits(max_records=100)
    )


@pytest.mark.parametrize("days", [(10, 5, 5), (10, 5, 10), (5, 10, 5, 5), (10, 10, 5, 5, 12), (12, 5, 5, 10)])
def test_daily_count_is_complete_after_the_clock_was_set_back(tmp_path: Path, days: tuple[int, ...]) -> None:
    """A file that ends long ago, by a wrong clock, says nothing of those before it (G6)."""
    rotated = AuditLog(tmp_path / "c1")
    for number, one in enumerate(days):
        run(rotated, f"r{number}", day(one))
    recent = sum(one >= 9 for one in days)
    wanted = Amount(10 * recent, 100 * recent), None
    assert rotated.trimmed_since(day(9))[:2] == wanted
    rotated.rotate(1)  # the next file is not begun yet
    assert rotated.trimmed_since(day(9))[:2] == wanted
    of_today = days.index(max(days)) + 1
    for name in closed_files(rotated.path.parent)[: min(of_today, len(days) - 1)]:
        rotated.path.with_name(name).unlink()
    assert rotated.trimmed_since(day(9))[1] is not None, "moved away, however old what is left looks"


def test_pending_request_counts_after_the_clock_was_set_back(tmp_path: Path) -> None:
    rotated = AuditLog(tmp_path / "c1")
    append(
        rotated,
        *({**BEGUN, "at": day(10)}, batch(1, 0, at=day(10)), result(1, {0: "unverified"})),
        *(batch(2, 0, at=day(5)), result(2, {0: "trimmed"}), {**END, "run": "r1", "at": day(5)}),
    )
    assert rotated.trimmed_since(day(9))[:2] == (Amount(10, 100), None)


def rewrite(rotated: AuditLog, number: int, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path = file(rotated, number)
    path.write_bytes(b"".join(line + b"\n" for line in change(path.read_bytes().splitlines())))


@pytest.mark.parametrize(
    ("harm", "where", "line", "words"),
    [
        (
            lambda rotated: file(rotated, 2).unlink(),
            3,
            1,
            f"a file is missing before it: {closed_name(8)}, and with it 4 lines",
        ),
        (
            lambda rotated: rewrite(rotated, 2, lambda ls: ls[:2]),
            3,
            1,
            f"{closed_name(8)}, the file before it, was cut at the",
        ),
        (
            lambda rotated: rewrite(rotated, 2, lambda _: []),
            3,
            1,
            f"{closed_name(8)}, the file before it, was cut at the end",
        ),
        (
            lambda rotated: rewrite(rotated, 1, lambda _: []),
            2,
            1,
            f"{closed_name(4)}, the file before it, was cut at the end",
        ),
        (
            lambda rotated: rewrite(rotated, 2, lambda ls: ls[1:]),
            2,
            1,
            "a line is missing before it (number 5 was due)",
        ),
        (lambda rotated: rewrite(rotated, 1, lambda ls: ls[1:]), 1, 1, "cut at the front: a line is missing"),
        (lambda rotated: rewrite(rotated, 2, lambda ls: [ls[0], *ls[2:]]), 2, 2, "a line is missing before it"),
        (
            lambda rotated: rewrite(rotated, 2, lambda ls: [*ls[:3], ls[3] + b" "]),
            2,
            4,
            f"edited, or line 1 of {closed_name(12)} was",
        ),
        (lambda rotated: rewrite(rotated, 2, lambda ls: [ls[0], ls[1] + b" ", *ls[2:]]), 2, 2, "edited, or line 3 was"),
        (lambda rotated: file(rotated, 4).unlink(), None, None, "cut at the end: 4 lines are missing"),
        (lambda rotated: rewrite(rotated, 4, lambda ls: ls[:3]), None, None, "cut at the end: a line is missing"),
    ],
)
def test_damage_to_a_rotated_file_is_named_once_with_the_file(
    rotated: AuditLog, harm: Callable[[AuditLog], object], where: int | None, line: int | None, words: str
) -> None:
    harm(rotated)
    ((name, at, text),) = breaks(rotated)
    assert (name, at, words in text) == (None if where is None else file(rotated, where).name, line, True), text
    shown = rotated.shown(rotated.verify().breaks[0])
    assert shown.startswith(
        f"{rotated.path if where is None else file(rotated, where)}{'' if line is None else f':{line}'}: "
    )


def test_missing_open_file_stays_reported(rotated: AuditLog) -> None:
    """The numbers go on behind the closed files, and the first line keeps that some are gone."""
    rotated.path.unlink()
    run(rotated, "r5")
    assert first_line(rotated)["seq"] == 17
    ((name, line, text),) = breaks(rotated)
    assert (name, line, "the head knew of 16: lines were gone" in text) == (FILE_NAME, 1, True), text


def test_file_with_a_broken_end_is_not_rotated_before_a_line_records_it(rotated: AuditLog) -> None:
    (rotated.path.parent / HEAD_NAME).unlink()
    for name, last in (("r5", 12), ("r6", 20)):
        run(rotated, name)
        assert closed_files(rotated.path.parent)[-1] == closed_name(last)
    assert ["there was no head" in text for _name, _line, text in breaks(rotated)] == [True]


def test_existing_target_of_a_rotation_stops_the_trim(rotated: AuditLog) -> None:
    other = rotated.path.with_name(closed_name(16))
    other.write_text("evidence")
    assert f"renamed to {closed_name(16)}, which exists" in refusal(StateError, rotated.rotate, 1)
    assert (other.read_text(), rotated.path.exists()) == ("evidence", True)


def test_torn_line_is_not_carried_into_a_rotated_file(rotated: AuditLog) -> None:
    append_bytes(rotated, b'{"seq":17,"prev')
    run(rotated, "r5")
    assert file(rotated, 3).with_name(closed_name(16)).read_bytes().endswith(b"\n")
    assert (breaks(rotated), len(rotated.runs())) == ([], 5)


def test_log_rotated_during_a_read_is_read_completely(rotated: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever plans or looks at history holds no lock: the file may be closed between any two steps."""
    reads = "retention_cli.audit.log.read_head"
    left = ["r5", "r6", "r7"]

    def meanwhile(folder: Path) -> object:
        monkeypatch.setattr(reads, read_head)
        if left:
            run(rotated, left.pop(0))
        found = read_head(folder)
        monkeypatch.setattr(reads, meanwhile)
        return found

    monkeypatch.setattr(reads, meanwhile)
    assert breaks(rotated) == []
    monkeypatch.setattr(reads, read_head)
    assert rotated.verify().lines == 28
    events = rotated.events()
    assert next(events)["run"] == "r1"
    run(rotated, "r8")  # while the events are read
    assert [event["run"] for event in events if event["event"] == "run"] == [f"r{n}" for n in range(2, 8)]


def test_history_reads_all_files_without_the_open_one(rotated: AuditLog) -> None:
    state = rotated.path.parent.parent
    (rotated.path.parent / HEAD_NAME).unlink()
    rotated.path.unlink()
    (state / "c2").mkdir()
    (state / "c2" / "audit-notes.jsonl").touch()
    assert folders_with_log(state) == [rotated.path.parent]
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
def test_writer_killed_at_any_step_leaves_a_valid_log(rotated: AuditLog, tmp_path: Path, lines: int) -> None:
    before = rotated.path.parent if lines == 16 else tmp_path / "before"
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
