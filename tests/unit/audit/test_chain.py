"""The audit log's chain: what is done to a line shows, and what a crash leaves behind does not look like it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import assume, given, strategies as st

from retention_cli.audit.chain import ZEROS, Chain, Link, Resumed, event_of, hash_of, is_signed, next_line, resume
from retention_cli.audit.files import HEAD_NAME, read_head, write_head
from retention_cli.audit.log import AuditLog
from retention_cli.core.state_dir import StateError
from retention_cli.policy.settings import Limits
from retention_cli.trim.history import past_day, read_past_day
from retention_cli.trim.journal import AuditJournal
from tests.support.audit_logs import AT, BEGUN, FOUR, append, batch, history
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
    """Return a log of so many lines, and its head."""
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


Harm = Callable[[list[bytes]], list[bytes]]


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
    log: AuditLog, harm: Harm, line: int | None, words: str
) -> None:
    put(log, *harm(lines_of(log)))
    ((at, text),) = told(log)
    assert (at, words in text) == (line, True), text


def test_missing_damaged_or_foreign_head_is_a_break(log: AuditLog) -> None:
    head = log.path.parent / HEAD_NAME
    for text, words in (
        ("{", "audit.head is damaged: whether lines at the end are gone is unknown"),
        ('{"seq": -1, "hash": "x"}', "audit.head is damaged"),
        (json.dumps({"seq": 1, "hash": ZEROS}), "of another log, or an older one: it ends at number 1"),
        (json.dumps({"seq": 3, "hash": ZEROS}), "of another log, or an older one"),
        (json.dumps({"seq": 4, "hash": ZEROS}), "edited: audit.head has another hash"),
    ):
        head.write_text(text)
        assert words in told(log)[0][1], text
    head.unlink()
    assert "audit.head is missing" in told(log)[0][1]
    head.mkdir()
    assert "audit.head can't be read (Is a directory)" in told(log)[0][1]


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
        with pytest.raises(StateError, match=r"c1/audit\.jsonl:2: edited.*kretain history --verify"):
            past_day(state, "c1", now, limits)
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
