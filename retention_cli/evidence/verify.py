"""Verify a run from what it left behind: evidence, and the audit log. No cluster, no policy file, no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from retention_cli.archive.layout import ArchiveError
from retention_cli.archive.store import Store
from retention_cli.audit.chain import is_signed
from retention_cli.audit.files import folders_with_log
from retention_cli.audit.log import AuditLog, Event, Run, add
from retention_cli.core.extras import arrow
from retention_cli.core.garbage import collection_paused
from retention_cli.core.state_dir import StateError, folder_name
from retention_cli.evidence.checks import (
    Fact,
    allowed_by,
    decided,
    wrong_decision,
    wrong_floor,
    wrong_request,
    wrong_times,
)
from retention_cli.evidence.format import (
    FACTS,
    RESULTS,
    RESULTS_NAME,
    ROWS_A_GROUP,
    EvidenceError,
    Kind,
    Part,
    commits_of,
    digest_of,
    facts_name,
    is_file_name,
    listed,
    part_of,
    rows_of,
    schema_of,
)
from retention_cli.evidence.value import NONE, Numbers, Result
from retention_cli.evidence.writer import FOLDER

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

SHOWN: Final = 1_000
"""At most this many findings are kept of a run; the others are counted."""
_BIG: Final = 2**62
_COUNTED: Final = ("trimmed", "unchanged", "held", "failed", "unverified")


class Finding(NamedTuple):
    """What is wrong, and where: a file, a line of the log, or a partition of a file."""

    where: str
    text: str


@dataclass(slots=True)
class Verdict:
    """What was verified of a run, and what was found wrong.

    ``plan``: it is that of a plan, which no audit log names.
    """

    run: str
    rows: int = 0
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


@collection_paused()
def verify_runs(
    state_dir: Path, names: Sequence[str], url: str | None = None, keys: Collection[Ed25519PublicKey] = ()
) -> list[Verdict]:
    """Verify runs by name, in the order given.

    Args:
        state_dir: where the audit logs are.
        names: the runs.
        url: where their evidence is: the folder of the cluster. None: next to the log, else where the log says.
        keys: one of these must have signed each run; none: signatures are not looked at.

    Raises:
        StateError: a log can't be read, or there is no such run.
        MissingPartError: pyarrow is not installed.
    """
    found: dict[str, Verdict] = {}
    for folder in sorted({*folders_with_log(state_dir), *(one.parent for one in state_dir.glob(f"*/{FOLDER}"))}):
        log, heard = AuditLog(folder), _Heard({*names}, keys)
        chain, broken = log.follow(heard)
        for name in names:
            run = None if broken else heard.runs.get(name)
            if run is None and not (folder / FOLDER / name).is_dir():
                continue
            verdict = found.setdefault(name, Verdict(name))
            for one in chain.breaks:
                where, _, text = log.shown(one).partition(": ")
                verdict.tell(where, text)
            verdict.more += chain.more
            if run is None and broken:
                verdict.tell(str(log.path), broken)
            if keys and (broken or name not in heard.signed):
                verdict.tell(f"{log.path} {name}", "not signed: no given key signed its end, or more of it follows")
            verify(verdict, run, _store(folder, run, name, url), folder.name)
    if missing := [name for name in names if name not in found]:
        raise StateError(f"there is no run {missing[0]!r} in the audit log; kretain history lists them")
    return [found[name] for name in names]


@dataclass(slots=True)
class _Heard:
    """The log's lines, as they are read: the runs that are asked for, and those whose end is signed by a key given."""

    names: Collection[str]
    keys: Collection[Ed25519PublicKey]
    runs: dict[str, Run] = field(default_factory=dict)
    signed: set[str] = field(default_factory=set)
    _ended: object = None

    def __call__(self, event: Event) -> None:
        """Take in a line. A signature counts right after its run's end, and if nothing of the run follows."""
        run = event["run"]
        self.signed.discard(run)
        if self._ended == run and any(is_signed(event, key) for key in self.keys):
            self.signed.add(run)
        self._ended = run if event["event"] == "end" else None
        if run in self.names:
            add(self.runs, event)


def _store(folder: Path, run: Run | None, name: str, url: str | None) -> Store:
    beside = folder / FOLDER
    files = [str(one.get("file", "")) for one in run.evidence] if run is not None and url is None else []
    if url is None and not (beside / name).is_dir() and files and "/" in files[0]:
        url = files[0].rpartition("/")[0].rpartition("/")[0]
    try:
        return Store(str(beside) if url is None else url)
    except ArchiveError as error:
        raise StateError(f"evidence: {error}") from None


def verify(verdict: Verdict, run: Run | None, store: Store, folder: str) -> None:
    """Verify one run's files, rows and sums into a verdict. ``run`` is None if the log can't be read, or has none.

    ``folder`` is the name of the cluster's folder.
    """
    contents = _contents(verdict, run, store)
    if run is not None and run.batches and not run.evidence and not contents:
        verdict.tell(verdict.run, "it left no evidence (evidence: none, or pyarrow was not installed)")
        return
    parts: dict[str, Part] = {}
    for name, content in sorted(contents.items()):
        try:
            parts[name] = part_of(name, content)
        except EvidenceError as error:
            verdict.tell(f"{verdict.run}/{name}", str(error).removeprefix(f"{name} is "))
    for part in parts.values():
        _check_head(verdict, run, part, folder)
    checked, results = _Checked(verdict), parts.pop(RESULTS_NAME, None)
    for part in parts.values():
        checked.recheck(part)
    for one, times in repeated(checked.facts, "recheck"):
        where = f"{verdict.run}/{facts_name(one['recheck'])} {one['topic']}-{one['partition']}"
        verdict.tell(where, f"appears {times} times in recheck {one['recheck']}")
    joined = None if results is None else checked.results(results)
    if run is not None:
        for where, text in _against_log(run, joined, checked):
            verdict.tell(where, text)


def _check_head(verdict: Verdict, run: Run | None, part: Part, folder: str) -> None:
    """Tell if a file's head names another run or cluster, or a plan's where the log has a trim, or the reverse."""
    where = f"{verdict.run}/{part.name}"
    if part.head.get("run") != verdict.run:
        verdict.tell(where, f"its head names another run, {part.head.get('run')}")
    cluster = str(part.head.get("cluster"))
    if folder_name(cluster) != folder or (run is not None and run.begun["cluster"]["id"] != cluster):
        verdict.tell(where, f"its head names another cluster, {cluster}")
    is_plan = part.head.get("plan") is True and part.name != RESULTS_NAME
    verdict.plan |= is_plan
    if run is None and not is_plan and not verdict.findings:
        verdict.tell(where, "the audit log has no such run, and it is not a plan's")
    elif run is not None and is_plan:
        verdict.tell(where, "it is marked as a plan's, and the audit log has a trim of that name")


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
    if named and run.end is not None and RESULTS_NAME not in named:
        verdict.tell(f"{verdict.run}/{RESULTS_NAME}", "the run ended, and the audit log names no results")
    return contents


_FACT: Final = (*Fact._fields, "is_there")
"""Columns of what a request may be based on; the last one is null where there is nothing."""


class _Checked:
    """The results of rechecks' rows: what a request may be based on."""

    def __init__(self, verdict: Verdict) -> None:
        names = ("recheck", "topic", "partition", *_FACT)
        self.verdict = verdict
        self.schema = schema_of({name: FACTS.get(name, Kind("int64", repeats=False)) for name in names}, {}, {})
        self.facts = self.schema.empty_table()

    def recheck(self, part: Part) -> None:
        """Check the rows of a recheck."""
        pa, table, where = arrow(), part.table, f"{self.verdict.run}/{part.name}"
        if any(table.column(name).null_count for name in ("recheck", "topic", "partition")):
            self.verdict.tell(where, "a row has no topic, partition or recheck")
            return
        allowed, inventory = list[int | None](), bool(part.head.get("inventory"))
        try:
            for some in batches(table):
                for row, commits in zip(rows_of(some), commits_of(some), strict=True):
                    again = decided(row)
                    target = allowed_by(row, again)
                    allowed.append(None if target is None else target.offset)
                    for text in (
                        *wrong_decision(row, again, inventory=inventory),
                        *wrong_times(row.reads, row.now_ms),
                        *wrong_floor(row, commits),
                    ):
                        self.verdict.tell(f"{where} {row.facts.tp}", text)
            more = {"allowed": pa.array(allowed, pa.int64()), "is_there": np.ones(len(table), np.int64)}
            facts = [more[name] if name in more else table.column(name) for name in self.schema.names]
            self.facts = pa.concat_tables([self.facts, pa.table(facts, names=self.schema.names).cast(self.schema)])
        except (EvidenceError, ValueError, TypeError, OverflowError, RecursionError) as error:
            self.verdict.tell(where, " ".join(str(error).split()))
            return
        self.verdict.rows += len(table)
        if {facts_name(number) for number in table.column("recheck").unique().to_pylist()} - {part.name}:
            self.verdict.tell(where, "it has rows of another recheck")

    def results(self, part: Part) -> Any:
        """Check each partition's outcome, and return it, joined with what it is based on."""
        results = part.table.cast(schema_of(RESULTS, {}, {}))
        joined = beside(results, self.facts.select(_FACT), row_indexes(results, self.facts, "recheck"))
        self.verdict.requests += len(joined) - joined.column("request_offset").null_count
        for some in batches(joined):
            of_result, of_fact = (
                zip(*map(listed, some.select([*one]).columns), strict=True) for one in (RESULTS, _FACT)
            )
            for one, (*fact, is_there) in zip(starmap(Result, of_result), of_fact, strict=True):
                try:
                    texts = [*wrong_request(one, Fact(*fact) if is_there else None)]
                except TypeError:
                    texts = ["a number is missing"]
                for text in texts:
                    self.verdict.tell(f"{self.verdict.run}/{RESULTS_NAME} {one.topic}-{one.partition}", text)
        return joined


def batches(table: Any) -> Iterator[Any]:
    """Yield a table's rows a few at a time, in their order: as values they take many times the memory."""
    return (table.slice(n, ROWS_A_GROUP) for n in range(0, len(table), ROWS_A_GROUP))


def repeated(table: Any, number: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield rows that appear more than once by topic, partition and a number, each once, and how often they do."""
    _, first, times = np.unique(keys_of(number, table), return_index=True, return_counts=True)
    return zip(table.take(first[times > 1]).to_pylist(), times[times > 1].tolist(), strict=True)


def keys_of(number: str, *tables: Any) -> Numbers:
    """Return a number for each row of tables, the same where topic, partition and a column of numbers are."""
    pa, found = arrow(), np.zeros(1, np.int64)
    for name in ("topic", "partition", number):
        both = pa.concat_tables([one.select([name]) for one in tables]).column(name).combine_chunks()
        both = both.dictionary_encode().indices if name == "topic" else both
        one = both.fill_null(NONE).to_numpy().astype(np.int64)
        one -= one.min(initial=0)
        if found.max(initial=0) >= _BIG // (span := one.max(initial=0) + 1):
            found = np.unique(found, return_inverse=True)[1]
        found = found * span + one
    return found


def row_indexes(wanted: Any, have: Any, number: str) -> Numbers:
    """Return where each row of a table is in another one by :func:`keys_of`: the first one, −1: nowhere."""
    keys = keys_of(number, wanted, have)
    keys, others = keys[: len(wanted)], keys[len(wanted) :]
    order = np.argsort(others, kind="stable")
    at = np.append(order, NONE)[np.searchsorted(others[order], keys)]
    found = np.append(others, NONE)[at] == keys
    return np.where(found & wanted.column(number).is_valid().to_numpy(), at, NONE)


def beside(table: Any, other: Any, at: Numbers) -> Any:
    """Return a table joined with those rows of another one; −1: none."""
    taken = other.take(arrow().array(at, mask=at < 0))
    return arrow().table([*table.columns, *taken.columns], names=[*table.column_names, *taken.column_names])


def _against_log(run: Run, results: Any, checked: _Checked) -> Iterator[Finding]:
    """Yield where evidence and the audit log differ: what was announced, the outcomes, and the sums."""
    evidence = f"{run.run}/{RESULTS_NAME}"
    if run.end is None:  # it crashed: the log has the results, and requests are based on the rechecks' files
        yield from _crashed(run, checked.facts)
        return
    if results is None:
        results = checked.results(Part(RESULTS_NAME, {}, schema_of(RESULTS, {}, {}).empty_table()))
    requests = results.filter(results.column("request_offset").is_valid())
    if any(repeated(requests, "batch")):
        yield Finding(evidence, "a request appears twice")
    yield from _announced(run, requests)
    final = results.filter(results.column("final"))
    for one, _times in repeated(final, "partition"):
        yield Finding(f"{evidence} {one['topic']}-{one['partition']}", "it has two final results")
    totals: Mapping[str, Any] = run.end.get("totals") or {}
    if not totals:
        return
    counts = {one["values"]: one["counts"] for one in final.column("outcome").value_counts().to_pylist()}
    outcomes = {one: counts.get(one, 0) for one in _COUNTED}
    trimmed = final.filter(arrow("pyarrow.compute").equal(final.column("outcome"), "trimmed"))
    sizes = trimmed.column("size_bytes")
    sums: dict[str, int | None] = {
        "records": sum(trimmed.column("records").fill_null(0).to_numpy().tolist()),
        "bytes": None if sizes.null_count else sum(sizes.to_numpy().tolist()),
        "trimmed": outcomes["trimmed"],
        "unverified": outcomes["unverified"],
    }
    for name, value in sums.items():
        if totals.get(name) != value:
            yield Finding(evidence, f"sums differ: {name} come to {value}, the audit log's end says {totals.get(name)}")
    for outcome in _COUNTED:
        if (count := outcomes[outcome]) > (totals.get(outcome) or 0):
            yield Finding(evidence, f"sums differ: {count} are {outcome}, the audit log says {totals.get(outcome)}")


def _crashed(run: Run, facts: Any) -> Iterator[Finding]:
    """Yield what a run without results announced, and no recheck before it allows."""
    most: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for number, topic, partition, allowed in zip(
        *(facts[one].to_pylist() for one in ("recheck", "topic", "partition", "allowed")), strict=True
    ):
        most.setdefault((topic, partition), []).append((number, -1 if allowed is None else allowed))
    written = _written(run)
    for batch, row, _ in run.announced():
        place = (row["topic"], row["partition"])
        rests = [n for recheck, n in most.get(place, ()) if written.get(recheck, 0) < _line(batch)]
        if row["target"] > max(rests, default=-1):
            yield Finding(
                f"{run.run} batch {batch['batch']}, {place[0]}-{place[1]}",
                f"a trim to {row['target']:,} was announced; no recheck and plan allow it",
            )


def _written(run: Run) -> dict[int, int]:
    """Return the line of the log that names each recheck's file."""
    return {n: _line(one) for n, one in enumerate(run.evidence, start=1)}


def _line(event: Event) -> int:
    """Return the number of a line of the log; 0 if it has none."""
    return event["seq"] if type(event.get("seq")) is int else 0


def _announced(run: Run, requests: Any) -> Iterator[Finding]:
    """Yield what differs between the batches that the audit log announces and the requests in the evidence."""
    pa, compute, written = arrow(), arrow("pyarrow.compute"), _written(run)
    try:
        announced = _lines(_ANNOUNCED, run.batches)
        outcomes = _lines(_OUTCOMES, {number: one for number, one in run.results.items() if number in run.batches})
        for one, times in (*repeated(announced, "batch"), *repeated(outcomes, "batch")):
            where = f"{run.run} batch {one['batch']}, {one['topic']}-{one['partition']}"
            yield Finding(where, f"named {times} times in a line of the audit log")
        announced = beside(announced, outcomes.select(["outcome"]), row_indexes(announced, outcomes, "batch"))
        after = pa.array([written.get(one, 0) for one in requests.column("recheck").to_pylist()], pa.int64())
    except (ValueError, TypeError, OverflowError) as error:
        yield Finding(run.run, f"what the audit log announces can't be compared: {error}")
        return
    at, alone = row_indexes(announced, requests, "batch"), np.ones(len(requests), np.bool_)
    alone[at[at >= 0]] = False
    for row in requests.filter(alone).to_pylist():
        where = f"{run.run}/{RESULTS_NAME} {row['topic']}-{row['partition']}"
        yield Finding(where, f"a request of batch {row['batch']}, not announced")
    announced = announced.rename_columns(
        [f"{one}{_OF_LOG}" if one in _SAME.values() else one for one in announced.column_names]
    )
    both = beside(announced, requests.select([*_SAME.values(), "is_there"]).append_column("after", after), at)
    good = compute.less_equal(both["after"], both["seq"])
    for name, other in _SAME.items():
        same = compute.equal(both[name], both[other]).fill_null(False)
        good = compute.and_(good, compute.or_(same, compute.and_(both[name].is_null(), both[other].is_null())))
    for row in both.filter(compute.invert(good.fill_null(False))).to_pylist():
        for text in _differences(row):
            yield Finding(f"{run.run} batch {row['batch']}, {row['topic']}-{row['partition']}", text)


def _differences(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs between what a line announces and its request."""
    if row["request_offset"] is None:
        yield "announced in the audit log, and no evidence of it"
        return
    if row["after"] > row["seq"]:
        yield "announced before its evidence was written"
    for name, other in _SAME.items():
        facts_only = other in Fact._fields and row["is_there"] is None
        untold = other == "outcome" and row[name] is None
        if row[name] != row[other] and not facts_only and not untold:
            yield f"{name.removesuffix(_OF_LOG)} is {row[name]} in the audit log, {row[other]} in the evidence"


def _lines(columns: Mapping[str, str], batches: Mapping[int, Event]) -> Any:
    """Return the rows of lines of the log as a table, each with its ``batch``, and its line's number as ``seq``."""
    pa = arrow()
    kinds = pa.struct([(name, getattr(pa, kind)()) for name, kind in columns.items()])
    rows = pa.array([row for one in batches.values() for row in one["partitions"]], kinds).flatten()
    counts = [len(one["partitions"]) for one in batches.values()]
    repeats = [np.array(one, np.int64).repeat(counts) for one in ([*batches], [*map(_line, batches.values())])]
    batch, seq = pa.array(repeats[0]).cast(pa.int32()), pa.array(repeats[1])
    return pa.table([*rows, batch, seq], names=[*columns, "batch", "seq"])


_OF_LOG: Final = " said"
_SAME: Final = {"target": "request_offset", "min_commit": "floor"} | {
    f"{name}{_OF_LOG}": name for name in ("outcome", "log_start", "rule")
}
"""Which columns of what is announced and of the evidence must be the same; of two with one name, the log's has more."""
_ANNOUNCED: Final = {"topic": "string", "partition": "int32", "rule": "string"} | dict.fromkeys(
    ("target", "log_start", "min_commit"), "int64"
)
_OUTCOMES: Final = {"topic": "string", "partition": "int32", "outcome": "string"}
