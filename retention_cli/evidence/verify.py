"""Verify a run from what it left behind: evidence, and the audit log. No cluster, no policy file, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from retention_cli.archive.layout import ArchiveError
from retention_cli.archive.store import Store
from retention_cli.audit.chain import is_signed
from retention_cli.audit.files import folders_with_log
from retention_cli.audit.log import AuditLog, Event, Run
from retention_cli.core.state_dir import StateError
from retention_cli.evidence import plain
from retention_cli.evidence.checks import (
    Fact,
    allowed_by,
    decided,
    wrong_decision,
    wrong_floor,
    wrong_request,
    wrong_times,
)
from retention_cli.evidence.files import RESULTS_NAME, Part, digest_of, facts_name, is_file_name, part_of
from retention_cli.evidence.format import EvidenceError, results_of, rows_of
from retention_cli.evidence.value import Result, Row
from retention_cli.evidence.writer import FOLDER

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

SHOWN: Final = 1_000
"""At most this many findings are kept of a run; the others are counted."""
_COUNTED: Final = ("trimmed", "unchanged", "held", "failed", "unverified")


class Finding(NamedTuple):
    """What is wrong, and where: a file, a line of the log, or a partition of a file."""

    where: str
    text: str


@dataclass(slots=True)
class Verdict:
    """What was verified of a run, and what was found wrong. ``plain`` rows were checked by columns.

    ``plan``: it is that of a plan, which no audit log names.
    """

    run: str
    rows: int = 0
    plain: int = 0
    requests: int = 0
    plan: bool = False
    findings: list[Finding] = field(default_factory=list)
    more: int = 0

    def tell(self, where: str, text: str) -> None:
        """Add a finding."""
        if len(self.findings) < SHOWN:
            self.findings.append(Finding(where, text))
        else:
            self.more += 1


def verify_runs(
    state_dir: Path, names: Sequence[str], url: str | None = None, keys: Collection[Ed25519PublicKey] = ()
) -> list[Verdict]:
    """Verify runs by name, in the order given.

    Args:
        state_dir: where the audit logs are.
        names: the runs.
        url: where their evidence is: the folder of the cluster. None: beside the log, else where the log says.
        keys: one of these must have signed each run; none: signatures are not looked at.

    Raises:
        StateError: a log can't be read, or there is no such run.
        MissingPartError: pyarrow is not installed.
    """
    found: dict[str, Verdict] = {}
    for folder in sorted({*folders_with_log(state_dir), *(one.parent for one in state_dir.glob(f"*/{FOLDER}"))}):
        log, broken = AuditLog(folder), ""
        chain = log.verify()
        try:
            runs, signed = log.runs(), _signed(log, keys)
        except StateError as error:
            runs, signed, broken = {}, set(), str(error)
        for name in names:
            run = runs.get(name)
            if run is None and not (folder / FOLDER / name).is_dir():
                continue
            verdict = found[name] = Verdict(name)
            for one in chain.breaks:
                where, _, text = log.shown(one).partition(": ")
                verdict.tell(where, text)
            verdict.more += chain.more
            if run is None and broken:
                verdict.tell(str(log.path), broken)
            if keys and name not in signed:
                verdict.tell(f"{log.path} {name}", "not signed: no given key signed its end, or more of it follows")
            verify(verdict, run, _store(folder, run, name, url))
    if missing := [name for name in names if name not in found]:
        raise StateError(f"there is no run {missing[0]!r} in the audit log; kretain history lists them")
    return [found[name] for name in names]


def _signed(log: AuditLog, keys: Collection[Ed25519PublicKey]) -> set[str]:
    """Return the runs whose last line is a signature, by one of these keys, right after their end."""
    found: set[str] = set()
    end: object = None
    for event in log.events() if keys else ():
        run = event["run"]
        found.discard(run)
        if end == run and any(is_signed(event, key) for key in keys):
            found.add(run)
        end = run if event["event"] == "end" else None
    return found


def _store(folder: Path, run: Run | None, name: str, url: str | None) -> Store:
    """Return where a run's evidence is."""
    beside = folder / FOLDER
    said = [str(one.get("file", "")) for one in run.evidence] if run is not None and url is None else []
    if url is None and not (beside / name).is_dir() and said and "/" in said[0]:
        url = said[0].rpartition("/")[0].rpartition("/")[0]
    try:
        return Store(str(beside) if url is None else url)
    except ArchiveError as error:
        raise StateError(f"evidence: {error}") from None


def verify(verdict: Verdict, run: Run | None, store: Store) -> None:
    """Verify one run's files, rows and sums into a verdict. ``run`` is None if the log can't be read, or has none."""
    contents = _contents(verdict, run, store)
    parts: dict[str, Part] = {}
    for name, content in sorted(contents.items()):
        try:
            parts[name] = part_of(name, content)
        except EvidenceError as error:
            verdict.tell(f"{verdict.run}/{name}", str(error).removeprefix(f"{name} is "))
    for name, part in parts.items():
        if part.head.get("run") != verdict.run:
            verdict.tell(f"{verdict.run}/{name}", f"its head names another run, {part.head.get('run')}")
        is_plan = part.head.get("plan") is True and name != RESULTS_NAME
        verdict.plan |= is_plan
        if run is None and not is_plan and not verdict.findings:
            verdict.tell(f"{verdict.run}/{name}", "the audit log has no such run, and it is no plan's")
        elif run is not None and is_plan:
            verdict.tell(f"{verdict.run}/{name}", "it is marked as a plan's, and the audit log has a trim of that name")
    checked = _Checked(verdict)
    for name, part in parts.items():
        if name != RESULTS_NAME:
            checked.recheck(part)
    results = results_of(parts[RESULTS_NAME].table) if RESULTS_NAME in parts else []
    for one in results:
        checked.result(one)
    if run is not None:
        for where, text in _against_log(run, results, checked):
            verdict.tell(where, text)


def _contents(verdict: Verdict, run: Run | None, store: Store) -> dict[str, bytes]:
    """Return the bytes of a run's files; tell which are missing, changed, or not named by the audit log."""
    contents: dict[str, bytes] = {}
    try:
        for path in store.files(verdict.run):
            name = path.rpartition("/")[2]
            if is_file_name(name):
                contents[name] = store.read(path)
    except ArchiveError as error:
        verdict.tell(f"{verdict.run}/", str(error))
    if run is None:
        return contents
    named = {str(one.get("file", "")).rpartition("/")[2]: one for one in run.evidence}
    for name, one in named.items():
        where = f"{verdict.run}/{name}"
        if name not in contents:
            verdict.tell(where, "the audit log names it, and it is missing")
        elif digest_of(contents[name]) != one.get("sha256"):
            verdict.tell(where, f"changed: the audit log has another SHA-256 of it ({str(one.get('sha256'))[:12]}…)")
    for name in contents.keys() - named.keys():
        verdict.tell(f"{verdict.run}/{name}", "the audit log does not name it")
    if run.batches and not run.evidence:
        verdict.tell(verdict.run, "it left no evidence (evidence: none, or pyarrow was not installed)")
    if named and run.end is not None and RESULTS_NAME not in named:
        verdict.tell(f"{verdict.run}/{RESULTS_NAME}", "the run ended, and the audit log names no results")
    return contents


class _Checked:
    """What rows of rechecks came to: what a request may rest on."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.facts: dict[tuple[int, str, int], Fact] = {}

    def recheck(self, part: Part) -> None:
        """Check the rows of a recheck: those that are plain by columns, the others one by one."""
        try:
            found = plain.check(part, inventory=bool(part.head.get("inventory")))
            table, right = part.table, found.right
            names = ("recheck", "topic", "partition", "log_start", "floor", "rule", "began_ms", "done_ms")
            columns = [table.column(name).to_pylist() for name in names]
            allowed = [None if one < 0 else one for one in found.allowed.tolist()]
            odd = np.flatnonzero(~right)
            for n, row in zip(odd.tolist(), rows_of(table.take(odd)), strict=True):
                allowed[n] = self._one(part, n, row)
        except (EvidenceError, ValueError) as error:
            self.verdict.tell(f"{self.verdict.run}/{part.name}", " ".join(str(error).split()))
            return
        self.verdict.rows += len(table)
        self.verdict.plain += int(right.sum())
        keys = list(zip(*columns[:3], strict=True))
        self.facts.update(zip(keys, map(Fact, *columns[3:], allowed), strict=True))
        for (number, *tp), times in Counter(keys).items() if len({*keys}) < len(keys) else ():
            if times > 1:
                self.verdict.tell(self._where(part.name, *tp), f"appears {times} times in recheck {number}")
        if {facts_name(number) for number in {*columns[0]}} - {part.name}:
            self.verdict.tell(f"{self.verdict.run}/{part.name}", "it has rows of another recheck")

    def _one(self, part: Part, n: int, row: Row) -> int | None:
        again = decided(row)
        for text in (
            *wrong_decision(row, again, inventory=bool(part.head.get("inventory"))),
            *wrong_times(row.reads, row.now_ms),
            *wrong_floor(row, part.commits.of_row(n)),
        ):
            self.verdict.tell(self._where(part.name, *row.facts.tp), text)
        target = allowed_by(row, again)
        return None if target is None else target.offset

    def result(self, one: Result) -> None:
        """Check what came of a partition."""
        self.verdict.requests += one.request_offset is not None
        for text in wrong_request(one, self.facts.get((one.recheck or 0, one.topic, one.partition))):
            self.verdict.tell(self._where(RESULTS_NAME, one.topic, one.partition), text)

    def _where(self, name: str, topic: str, partition: int) -> str:
        return f"{self.verdict.run}/{name} {topic}-{partition}"


def _against_log(run: Run, results: Sequence[Result], checked: _Checked) -> Iterator[Finding]:
    """Yield where evidence and the audit log differ: what was announced, what came of it, and the sums."""
    evidence = f"{run.run}/{RESULTS_NAME}"
    if run.end is None:  # it crashed: the log has the results, and requests rest on the rechecks' files
        yield from _announced(run, {}, checked)
        return
    asked = {(one.batch or 0, one.topic, one.partition): one for one in results if one.request_offset is not None}
    if len(asked) != sum(one.request_offset is not None for one in results):
        yield Finding(evidence, "a request appears twice")
    yield from _announced(run, asked, checked)
    final = [one for one in results if one.final]
    twice = [name for name, n in Counter((one.topic, one.partition) for one in final).items() if n > 1]
    for topic, partition in twice:
        yield Finding(f"{evidence} {topic}-{partition}", "it has two final results")
    totals: Mapping[str, Any] = run.end.get("totals") or {}
    if not totals:
        return
    trimmed = [one for one in final if one.outcome == "trimmed"]
    sizes = [one.size_bytes for one in trimmed]
    sums: dict[str, int | None] = {
        "records": sum(one.records for one in trimmed),
        "bytes": None if None in sizes else sum(size for size in sizes if size is not None),
        "trimmed": len(trimmed),
        "unverified": sum(one.outcome == "unverified" for one in final),
    }
    for name, value in sums.items():
        if totals.get(name) != value:
            yield Finding(evidence, f"sums differ: {name} come to {value}, the audit log's end says {totals.get(name)}")
    for outcome in _COUNTED:
        if (count := sum(one.outcome == outcome for one in final)) > (totals.get(outcome) or 0):
            yield Finding(evidence, f"sums differ: {count} are {outcome}, the audit log says {totals.get(outcome)}")


def _announced(run: Run, asked: Mapping[tuple[int, str, int], Result], checked: _Checked) -> Iterator[Finding]:
    """Yield what differs between the batches that the audit log announces and the evidence they rest on."""
    there = set()
    seq = {facts_name(n): int(one.get("seq", 0)) for n, one in enumerate(run.evidence, start=1)}
    for number, batch in run.batches.items():
        outcomes = {
            (row["topic"], row["partition"]): row["outcome"] for row in (run.results.get(number) or _NONE)["partitions"]
        }
        for row in batch["partitions"]:
            key = (number, row["topic"], row["partition"])
            there.add(key)
            one = asked.get(key)
            where = f"{run.run} batch {number}, {row['topic']}-{row['partition']}"
            if one is None and run.end is None:  # any recheck before it may be the one that it rests on
                rests = [n for n in range(1, len(seq) + 1) if seq[facts_name(n)] < int(batch.get("seq", 0))]
                facts = [found for n in rests if (found := checked.facts.get((n, *key[1:]))) is not None]
                if all(found.allowed is None or row["target"] > found.allowed for found in facts):
                    yield Finding(where, f"a trim to {row['target']:,} was announced; no recheck and plan allow it")
                continue
            if one is None:
                yield Finding(where, "announced in the audit log, and no evidence of it")
                continue
            fact = checked.facts.get((one.recheck or 0, one.topic, one.partition))
            if seq.get(facts_name(one.recheck or 0), 0) > int(batch.get("seq", 0)):
                yield Finding(where, "announced before its evidence was written")
            was = {"target": one.request_offset, "outcome": one.outcome}
            said = {"target": row["target"], "outcome": outcomes.get(key[1:], one.outcome)}
            if fact is not None:
                was |= {"log_start": fact.log_start, "rule": fact.rule, "min_commit": fact.floor}
                said |= {name: row.get(name) for name in ("log_start", "rule", "min_commit")}
            for name, value in was.items():
                if said[name] != value:
                    yield Finding(where, f"{name} is {said[name]} in the audit log, {value} in the evidence")
    for number, topic, partition in asked.keys() - there:
        yield Finding(f"{run.run}/{RESULTS_NAME} {topic}-{partition}", f"a request of batch {number}, not announced")


_NONE: Final[Event] = {"partitions": ()}
