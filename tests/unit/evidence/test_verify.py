"""``kretain verify`` accepts what a trim leaves behind, and names whatever was changed (docs/evidence.md)."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from retention_cli.archive.catalog import read_catalog, verify_catalog
from retention_cli.archive.store import Store
from retention_cli.audit.chain import Link, signature_line
from retention_cli.audit.files import FILE_NAME, HEAD_NAME, read_head
from retention_cli.audit.log import AuditLog
from retention_cli.core.model import Floor, LookUp, Unknown
from retention_cli.core.state_dir import StateError
from retention_cli.evidence.checks import decided
from retention_cli.evidence.format import (
    FORMAT,
    KEY,
    EvidenceError,
    Part,
    content_of,
    digest_of,
    facts_table,
    part_of,
    rows_of,
)
from retention_cli.evidence.value import Commits, RecordedDecision, Result, Row
from retention_cli.evidence.verify import Verdict, verify_runs
from retention_cli.observe.request import Observation
from tests.mutants import MUTANTS
from tests.support.archives import sample, written
from tests.support.evidence import RUN, findings, left_behind, trimmed, usual, write, wrong
from tests.support.facts import HOUR, NOW
from tests.support.mutate import Mutant, mutated
from tests.support.says import refusal

ROWS, SEEN = usual(12, topics=3)
RESULTS = trimmed(ROWS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "cluster"


@pytest.fixture
def left(folder: Path) -> Path:
    """The folder of a cluster, with what a run left behind."""
    left_behind(folder, ROWS, SEEN, RESULTS)
    return folder


def verdict(folder: Path) -> Verdict:
    return verify_runs(folder.parent, [RUN])[0]


def finds(folder: Path, text: str) -> None:
    assert any(text in one for one in findings(folder)), findings(folder)


def events_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / FILE_NAME).read_text().splitlines()]


def write_again(folder: Path, events: Iterable[dict[str, Any]]) -> None:
    """Write the log again, with a chain of its own. Each event is asked for when those before it are written."""
    for name in (FILE_NAME, HEAD_NAME):
        (folder / name).unlink()
    for event in events:
        AuditLog(folder).append({name: value for name, value in event.items() if name not in ("seq", "prev")})


def part(rows: list[Row], seen: Observation = SEEN) -> Part:
    return part_of("001-facts.parquet", content_of(facts_table({"format": FORMAT}, rows, Commits.of(rows, seen))))


def with_column(read: Part, name: str, values: list[str]) -> Part:
    column = pa.array(values).dictionary_encode()
    return replace(read, table=read.table.set_column(read.table.column_names.index(name), name, column))


def test_run_as_it_was_left_is_proven(left: Path) -> None:
    found = verdict(left)
    assert (found.findings, found.rows, found.requests) == ([], 12, len(RESULTS))
    assert RESULTS


def test_run_without_evidence_is_one_finding(left: Path) -> None:
    """Nothing was tampered with: no row and no sum is accused besides."""
    write_again(left, [event for event in events_of(left) if event["event"] != "evidence"])
    shutil.rmtree(left / "evidence")
    assert findings(left) == [f"{RUN}: it left no evidence (evidence: none, or pyarrow was not installed)"]


def facts(row: Row, **more: Any) -> Row:
    return row._replace(facts=row.facts._replace(**more))


def old(row: Row, offset: int) -> Row:
    return facts(row, lookups={**row.facts.lookups, NOW - HOUR: LookUp(offset)})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda row: row._replace(decision=row.decision._replace(trim_to=row.decision.trim_to + 1)), "trim_to was"),
        (lambda row: row._replace(decision=row.decision._replace(rule="forced-age")), "rule was forced-age"),
        (lambda row: row._replace(decision=row.decision._replace(rule="odd")), "rule was odd"),
        (lambda row: row._replace(decision=row.decision._replace(size_bytes=1)), "size_bytes was 1"),
        (lambda row: old(row, row.facts.log_start + 1), "trim_to was"),
        (lambda row: facts(row, floor=Floor(row.facts.high_watermark, row.facts.floor.by)), "F1: the floor is"),
        (lambda row: facts(row, floor=Floor(row.facts.floor.offset, "group:other")), "F1: the floor is group:other's"),
        (lambda row: facts(row, floor=Unknown.because("F2", "x")), "action was trim"),
        (lambda row: facts(row, high_watermark=row.facts.log_start + 1), "beyond the log's end"),
        (lambda row: facts(row, last_stable_offset=row.facts.log_start), "action was trim"),
        (lambda row: facts(row, last_stable_offset=Unknown(())), "action was trim"),
        (lambda row: facts(row, clock=Unknown(())), "action was trim"),
        (lambda row: facts(row, leader_epoch=99), "beyond the end of its leader epoch"),
        (
            lambda row: row._replace(planned=row.planned._replace(trim_to=row.facts.log_start + 1)),
            "plan and facts allow",
        ),
        (lambda row: row._replace(planned=row.planned._replace(topic_id="other")), "plan and facts allow none"),
        (lambda row: row._replace(reads=row.reads._replace(ends=row.reads.commits - 1)), "read out of order"),
        (lambda row: row._replace(reads=row.reads._replace(done=NOW + 40_000)), "was good for 30 s"),
        (lambda row: row._replace(now_ms=NOW - HOUR), "which is not within its recheck"),
        (lambda row: row._replace(settings=replace(row.settings, hold="audit")), "action was trim"),
    ],
)
def test_row_that_does_not_follow_from_its_facts_is_named(
    folder: Path, change: Callable[[Row], Row], text: str
) -> None:
    """The change was made before the checksum was taken: no hash shows it."""
    n = next(n for n, one in enumerate(ROWS) if one.facts.tp == (RESULTS[0].topic, RESULTS[0].partition))
    left_behind(folder, [*ROWS[:n], change(ROWS[n]), *ROWS[n + 1 :]], SEEN, RESULTS)
    told = [one for one in findings(folder) if str(ROWS[n].facts.tp) in one]
    assert any(text in one for one in told), findings(folder)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda one: one._replace(request_offset=one.request_offset + 1), "plan and facts allow"),
        (lambda one: one._replace(sent_ms=NOW + 31_000), "was good for 30 s"),
        (lambda one: one._replace(sent_ms=NOW + 10), "was good for 30 s"),
        (lambda one: one._replace(sent_ms=None), "lacks the time when it was sent"),
        (lambda one: one._replace(sent_ms=None, outcome="failed", records=0), "lacks the time when it was sent"),
        (lambda one: one._replace(records=one.records + 1), "and counts"),
        (lambda one: one._replace(log_start_after=one.request_offset - 1), "was not read back"),
        (lambda one: one._replace(recheck=2), "no recheck has it"),
    ],
)
def test_result_that_the_facts_do_not_allow_is_named(
    folder: Path, change: Callable[[Result], Result], text: str
) -> None:
    left_behind(folder, ROWS, SEEN, [change(RESULTS[0]), *RESULTS[1:]])
    finds(folder, text)


def test_rows_and_results_of_each_batch_are_checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retention_cli.evidence.verify.ROWS_A_GROUP", 5)
    rows = [one._replace(now_ms=NOW - HOUR) for one in ROWS]
    left_behind(folder, rows, SEEN, [one._replace(sent_ms=None) for one in RESULTS])
    told = findings(folder)
    for one in ROWS:
        assert any(f"{one.facts.tp}: decided for" in text for text in told), one
    for result in RESULTS:
        where = f"results.parquet {result.topic}-{result.partition}: trimmed, and lacks"
        assert any(where in text for text in told), result


def _first(**more: Any) -> Callable[[dict[str, Any]], None]:
    return lambda event: event["partitions"][0].update(more)


@pytest.mark.parametrize(
    ("kind", "change", "text"),
    [
        ("batch", _first(target=7), "target is 7 in the audit log"),
        ("batch", _first(min_commit=7), "min_commit is 7 in the audit log"),
        ("batch", _first(min_commit=None), "min_commit is None in the audit log"),
        ("batch", _first(min_commit="x"), "can't be compared"),
        ("batch", _first(rule=None), "rule is None in the audit log"),
        ("batch", _first(log_start=7), "log_start is 7 in the audit log"),
        ("batch", _first(partition=9), "announced in the audit log, and no evidence of it"),
        ("batch", lambda event: event["partitions"].pop(), "a request of batch 1, not announced"),
        ("batch", lambda event: event.update(batch=2), "a request of batch 1, not announced"),
        ("batch", lambda event: event.update(batch=2**40), "can't be compared"),
        ("batch", lambda event: event["partitions"].reverse(), None),
        ("result", _first(outcome="held"), "outcome is held in the audit log"),
        ("result", lambda event: event["partitions"].reverse(), None),
        ("result", lambda event: event["partitions"].append(event["partitions"][0] | {"outcome": "failed"}), "2 times"),
        ("batch", lambda event: event["partitions"].append(event["partitions"][0]), "named 2 times in a line"),
    ],
)
def test_log_that_announces_something_else_is_named(
    left: Path, kind: str, change: Callable[[dict[str, Any]], None], text: str | None
) -> None:
    """The log was written again: its chain is complete."""
    events = events_of(left)
    change(next(one for one in events if one["event"] == kind))
    write_again(left, events)
    told = findings(left)
    assert any(text in one for one in told) if text else not told, told


def test_facts_of_another_topic_are_not_a_rows() -> None:
    read = with_column(part(ROWS), "topic", [one.facts.topic.name for one in (*ROWS[4:], *ROWS[:4])])
    assert "its facts are of topic" in refusal(EvidenceError, list, rows_of(read.table))


@pytest.mark.parametrize("name", ["leader_epoch", "log_start", "high_watermark", "floor"])
def test_what_is_odd_about_a_row_counts_and_not_its_columns(name: str) -> None:
    odd = json.dumps({name: {"reasons": []} if name == "floor" else 3})
    wanted = Unknown(()) if name == "floor" else 3
    read = with_column(part(ROWS), "more", [odd] * len(ROWS))
    assert [getattr(row.facts, name) for row in rows_of(read.table)] == [wanted] * len(ROWS)


def test_number_that_stands_for_none_is_named(folder: Path) -> None:
    kept = ROWS[0]._replace(settings=replace(ROWS[0].settings, consumed_after_ms=None))
    kept = kept._replace(decision=RecordedDecision.of(decided(kept)))
    assert kept.decision.trim_to is None
    left_behind(folder, [kept, *ROWS[1:]], SEEN, RESULTS[1:])
    assert findings(folder) == []
    none = kept._replace(decision=kept.decision._replace(trim_to=-1))
    left_behind(folder, [none, *ROWS[1:]], SEEN, RESULTS[1:], RUNS[1])
    [found] = findings(folder, RUNS[1])
    assert "trim_to was -1; by the facts it is none" in found


def test_findings_of_one_cluster_stand_if_another_has_a_folder_of_the_run(left: Path) -> None:
    """An empty folder, or a state directory copied into another cluster's: nothing is wrong there."""
    (left / "evidence" / RUN / "results.parquet").write_bytes(b"")
    before = verdict(left)
    assert before.findings
    (left.with_name("zzz") / "evidence" / RUN).mkdir(parents=True)
    assert verdict(left) == before


@pytest.mark.parametrize("where", ["head", "no text", "folder", "run"])
def test_evidence_of_another_cluster_is_named(folder: Path, where: str) -> None:
    left_behind(folder, ROWS, SEEN, RESULTS, cluster={"head": "other", "no text": "\ud800"}.get(where))
    log = folder / "audit.jsonl"
    if where == "run":
        log.write_text(log.read_text().replace('"cluster":{"id":"cluster"}', '"cluster":{"id":"other"}'))
    if where == "folder":
        folder.rename(folder.with_name("copy"))
    told = findings(folder)
    assert [one for one in told if "its head names another cluster, " in one][1:], told


def rewrite(path: Path, part: Part, rows: list[dict[str, Any]]) -> None:
    """Write other rows below a file's head, as kretain does: its own checksums are right."""
    schema = part.table.schema.with_metadata({KEY: json.dumps(part.head)})
    path.write_bytes(content_of(pa.Table.from_pylist(rows, schema)))


def odd(more: str) -> Callable[[list[dict[str, Any]]], None]:
    """The topic's own column says that it is compacted; in ``more`` it is as the decision needs it."""

    def change(rows: list[dict[str, Any]]) -> None:
        about = rows[0]["topic_facts"]
        compacted = json.dumps(json.loads(about) | {"cleanup_policy": ["compact"]})
        rows[0] |= {"more": more.replace("%s", about), "topic_facts": compacted}

    return change


def by_no_one(rows: list[dict[str, Any]]) -> None:
    rows[3]["floor_by"] = rows[3]["commits"][0]["by"] = None


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("001-facts.parquet", lambda rows: rows[3].update(topic=None), "a row has no topic, partition or recheck"),
        ("001-facts.parquet", lambda rows: rows[3].update(partition=None), "a row has no topic, partition or recheck"),
        ("001-facts.parquet", lambda rows: rows[3].update(recheck=None), "a row has no topic, partition or recheck"),
        ("001-facts.parquet", lambda rows: rows[3].update(settings=None), "a row has no topic_facts, or no settings"),
        ("001-facts.parquet", lambda rows: rows[3]["commits"][0].update(kind="odd"), "commit is of another log"),
        ("001-facts.parquet", by_no_one, "F1: the floor is None's, which has no commit"),
        ("001-facts.parquet", odd('{"topic": %s}'), "Extra inputs are not permitted"),
        ("001-facts.parquet", odd('{"partition": 7}'), "Extra inputs are not permitted"),
        ("001-facts.parquet", odd("[" * 100_000), "recursion"),
        ("results.parquet", lambda rows: rows[0].update(records=None), "a number is missing"),
    ],
)
def test_row_that_lacks_a_value_or_is_of_another_partition_is_named(
    left: Path, file: str, change: Callable[[list[dict[str, Any]]], None], said: str
) -> None:
    path = left / "evidence" / RUN / file
    read = part_of(path.name, path.read_bytes())
    rows = read.table.to_pylist()
    change(rows)
    rewrite(path, read, rows)
    assert any(said in one or said in one.lower() for one in findings(left)), findings(left)


@pytest.mark.parametrize(("file", "column"), [("001-facts.parquet", "floor_by"), ("results.parquet", "why")])
def test_text_that_is_no_unicode_is_named(left: Path, file: str, column: str) -> None:
    path = left / "evidence" / RUN / file
    read = part_of(path.name, path.read_bytes())
    texts = pa.array([b"\xff"] * len(read.table)).view(pa.string()).dictionary_encode()
    table = read.table.set_column(read.table.column_names.index(column), column, texts)
    path.write_bytes(content_of(table.replace_schema_metadata({KEY: json.dumps(read.head)})))
    finds(left, f"{file}: damaged")


@pytest.mark.parametrize("seq", ["x", None, 2**70])
def test_line_of_no_number_is_named(left: Path, seq: object) -> None:
    events = events_of(left)
    for n, event in enumerate(events):
        lines = map(json.dumps, [*events[:n], event | {"seq": seq}, *events[n + 1 :]])
        (left / FILE_NAME).write_text("".join(f"{line}\n" for line in lines))
        assert findings(left), n


def test_missing_foreign_and_swapped_files_are_named(left: Path) -> None:
    run = left / "evidence" / RUN
    (run / "002-facts.parquet").write_bytes((run / "001-facts.parquet").read_bytes())
    finds(left, "002-facts.parquet: the audit log does not name it")
    (run / "001-facts.parquet").unlink()
    finds(left, "001-facts.parquet: the audit log names it, and it is missing")
    (run / "002-facts.parquet").rename(run / "results.parquet")
    finds(left, "results.parquet: changed")


@pytest.mark.parametrize("beyond", [0, 1])
def test_announced_delete_of_a_run_that_crashed_is_within_its_facts(left: Path, beyond: int) -> None:
    events = events_of(left)[:3]
    events[2]["partitions"][0]["target"] += beyond
    write_again(left, events)
    (left / "evidence" / RUN / "results.parquet").unlink()
    assert ["was announced; no recheck" in one for one in findings(left)] == [True] * beyond


# -- more than 200 changes to evidence, audit log and archive that real code wrote: each is found (docs/evidence.md) --


SIGNER: Final = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
THIEF: Final = Ed25519PrivateKey.from_private_bytes(b"t" * 32)
RUNS: Final = (RUN, "20270116T080000Z-0002")
EACH: Final = 21


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two signed runs of one cluster, what its files were in between, and an archive of three segments."""
    place = tmp_path_factory.mktemp("good")
    folder, archive = place / "state" / "cluster", Store(str(place / "archive"))
    for seed, run in enumerate(RUNS):
        rows, seen = usual(6, topics=2, seed=seed)
        left_behind(folder, rows, seen, trimmed(rows), run)
        AuditLog(folder).append(
            signature_line(run, read_head(folder)[0] or Link(), SIGNER) | {"at": "2027-01-15T08:00:00.000Z"}
        )
        if seed == 0:
            shutil.copytree(folder, place / "older")
    for start in (0, 10, 20):
        written(archive, sample(30)[start : start + 10], start)
    assert found_by(place) == []
    return place


def found_by(place: Path, keys: tuple[Ed25519PrivateKey, ...] = (SIGNER,)) -> list[str]:
    try:
        verdicts = verify_runs(place / "state", RUNS, keys=[one.public_key() for one in keys])
    except StateError as error:
        return [str(error)]
    store = Store(str(place / "archive"))
    partitions, loose = read_catalog(store)
    verify_catalog(store, partitions)
    told = [f"{one.where}: {one.text}" for verdict in verdicts for one in verdict.findings]
    return [*told, *(text for one in partitions for text in one.problems), *loose]


def a_file(place: Path, draw: random.Random, glob: str) -> Path:
    return draw.choice(sorted(one for one in place.glob(glob) if one.is_file()))


EVIDENCE: Final = "state/cluster/evidence/*/*.parquet"
ANY: Final = "[sa]*/**/*"


def any_byte(place: Path, draw: random.Random) -> None:
    """Change a byte. An archive's checksums are of its records: that one says the same in other bytes is no change."""
    path = a_file(place, draw, ANY)
    whole = path.read_bytes()
    while True:
        n = draw.randrange(len(whole))
        path.write_bytes(whole[:n] + bytes([whole[n] ^ 1 << draw.randrange(8)]) + whole[n + 1 :])
        with contextlib.suppress(OSError, pa.ArrowException, ValueError):
            if "archive" in path.parts and pq.read_table(path).equals(pq.read_table(pa.BufferReader(whole))):
                continue
        return


def cut_tail(place: Path, draw: random.Random) -> None:
    path = a_file(place, draw, ANY)
    whole = path.read_bytes()
    path.write_bytes(whole[: draw.randrange(len(whole) - 1)])  # the last byte of a text says nothing


def swapped_files(place: Path, draw: random.Random) -> None:
    kind = draw.choice([EVIDENCE, "archive/**/*.parquet", "archive/**/*.json"])
    one, other = draw.sample(sorted(place.glob(kind)), 2)
    whole = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(whole)


def older_file(place: Path, draw: random.Random) -> None:
    """The log, its head, both, or a run's evidence as they were a run ago."""
    old, new = place / "older", place / "state" / "cluster"
    if draw.random() < 0.25:
        shutil.rmtree(new)
        shutil.copytree(old, new)
    else:
        of_run = draw.choice(["001-facts.parquet", "results.parquet"])
        evidence = (f"evidence/{RUNS[0]}/{of_run}", f"evidence/{RUNS[1]}/{of_run}")
        source, target = draw.choice([(FILE_NAME, FILE_NAME), (HEAD_NAME, HEAD_NAME), evidence])
        shutil.copy(old / source, new / target)


def other_value(value: object, draw: random.Random) -> object:
    match value:
        case bool():
            return not value
        case int():
            return value + draw.choice([-3_600_000, -1, 1, 60_000])
        case str():
            return value + "x"
        case None:
            return 7
        case dict() if value:
            name = draw.choice(sorted(value))
            return {**value, name: other_value(value[name], draw)}
        case [first, *more]:
            return [other_value(first, draw), *more]
    return "x"


def change_rows(place: Path, draw: random.Random, kind: str) -> Path:
    """Change a file's rows, and write it as kretain does: its own checksums are right."""
    path = a_file(place, draw, EVIDENCE)
    part = part_of(path.name, path.read_bytes())
    rows: list[dict[str, Any]] = part.table.to_pylist()
    n, other = draw.sample(range(len(rows)), 2)
    match kind:
        case "value":
            name = draw.choice([one for one, value in rows[n].items() if value not in (None, [])])
            rows[n][name] = other_value(rows[n][name], draw)
        case "clock":
            name = draw.choice([one for one in rows[n] if one.endswith("_ms") and rows[n][one] is not None])
            for row in rows:
                row[name] += 3_600_000
        case "drop":
            del rows[n]
        case _:
            name = draw.choice([one for one in rows[n] if rows[n][one] != rows[other][one]])
            rows[n][name], rows[other][name] = rows[other][name], rows[n][name]
    rewrite(path, part, rows)
    return path


def forged(place: Path, draw: random.Random) -> None:
    """A thief without the key changes evidence or the log, and writes every checksum and hash again."""
    folder = place / "state" / "cluster"
    events = events_of(folder)
    kind, signs = draw.choice(["value", "clock", "drop", "swap", "log"]), draw.random() < 0.5
    if kind == "log":
        event = draw.choice([one for one in events if one["event"] in ("run", "batch", "end", "result")])
        event["at"] = "2026-01-01T00:00:00.000Z"
    else:
        path = change_rows(place, draw, kind)
        named = ("evidence", path.parent.name, path.name)
        for event in events:
            if (event["event"], event["run"], Path(event.get("file", "")).name) == named:
                event["sha256"] = digest_of(path.read_bytes())

    def signed(event: dict[str, Any]) -> dict[str, Any]:
        if event["event"] == "signature" and signs:
            return event | signature_line(event["run"], read_head(folder)[0] or Link(), THIEF)
        return event

    write_again(folder, map(signed, events))
    assert AuditLog(folder).verify().breaks == []


KINDS: Final[Mapping[str, Callable[[Path, random.Random], object]]] = {
    "any byte": any_byte,
    "a tail cut off": cut_tail,
    "a dropped file": lambda place, draw: a_file(place, draw, ANY).unlink(),
    "two swapped files": swapped_files,
    "an older file": older_file,
    **{f"evidence: {kind}": partial(change_rows, kind=kind) for kind in ("value", "clock", "drop", "swap")},
    "all hashes made again": forged,
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_mutation_is_found(kind: str, good: Path, tmp_path: Path) -> None:
    for n in range(EACH):
        place = shutil.copytree(good, tmp_path / str(n))
        KINDS[kind](place, random.Random(f"{kind} {n}"))
        assert found_by(place), n
    assert EACH * len(KINDS) >= 200


def test_line_behind_a_signature_is_found(good: Path, tmp_path: Path) -> None:
    """Whoever appends needs no key, and the chain is whole: the run no longer ends with its signature."""
    shutil.copytree(good, tmp_path / "0")
    AuditLog(tmp_path / "0" / "state" / "cluster").append({"event": "note", "run": RUN})
    assert found_by(tmp_path / "0", ()) == []
    assert "not signed" in "".join(found_by(tmp_path / "0"))
    assert len(found_by(good, (THIEF,))) == len(RUNS)


# -- each mutant of ``decide`` is found by ``verify``: of evidence that the right code wrote, and the other way round --


OF_WHOLE_PLANS: Final = ("decide/guards/limits.py", "decide/guards/approval.py")
"""Limits (G6) and approvals are of a whole plan and of the policy: no row rests on them."""
OF_DECIDE: Final = [one for one in MUTANTS if one.file.startswith("decide/") and one.file not in OF_WHOLE_PLANS]


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("right")
    write(folder)
    assert wrong(folder) == 0
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("mutant", OF_DECIDE, ids=lambda one: one.name)
def test_mutant_of_decide_is_found_both_ways(mutant: Mutant, right: Path, tmp_path: Path) -> None:
    with mutated(["tests/support"], mutant) as copy:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.evidence", str(tmp_path), str(right)],
            cwd=copy,
            capture_output=True,
            text=True,
            check=True,
        )
    looser = mutant.name == "unread records are none"  # it allows all that is right, and more
    assert int(done.stdout) > 0 or looser, "the mutant accepts what the right code wrote"
    assert wrong(tmp_path) > 0, "the right code accepts what the mutant wrote"
