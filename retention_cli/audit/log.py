"""The audit log: what each trim was about to do and the results, one JSON line each, fsynced.

A line is on disk before the request that it announces is sent. So even if a run crashes in between, the log names at
least everything that was deleted. Lines are chained, across files too, so that later edits are noticed. Reading
validates each line: it has the required fields, of the right types.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from retention_cli.audit.chain import Break, Chain, Link, Resumed, event_of, latest_of, next_line, resume
from retention_cli.audit.files import (
    FILE_NAME,
    HEAD_NAME,
    Snapshot,
    close_file,
    closed_files,
    drop_torn_line,
    latest_moment,
    lines_backward,
    open_log,
    read_head,
    write_all,
    write_head,
)
from retention_cli.core.state_dir import StateError, make_folder, opened
from retention_cli.decide.guards.limits import Amount, total


class NamedLedger(NamedTuple):
    """The ledger that a trim used: its id, and how often it had been written."""

    ledger_id: str
    revision: int


class AuditLog:
    """A cluster's audit log. Append-only, and chained (:mod:`retention_cli.audit.chain`)."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME

    def append(self, event: Mapping[str, Any]) -> Link:
        """Append one line, write its number and hash into the head, and wait until both are on disk; return these.

        Only the holder of the trim lock may append. What a crash left is repaired: a torn last line is dropped, a head
        that is a line behind is written first. If the end is broken otherwise, the new line records that for good. The
        first line of a file names the file before it, and the latest moment of all lines before.

        Raises:
            StateError: it can't be written; then nothing may be deleted.
        """
        folder = self.path.parent
        make_folder(folder)
        try:
            with opened(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as handle:
                drop_torn_line(handle)
                end, after = self._end(handle)
                if end.head is not None:
                    write_head(folder, end.head)
                line, link = next_line(event, end, after, None if after is None else latest_moment(folder / after))
                write_all(handle, line + b"\n")
            write_head(folder, link)
        except OSError as error:
            raise self._unwritable(error) from None
        return link

    def rotate(self, max_bytes: int) -> None:
        """Close the file if it has this many bytes: the next line begins a new one. Only between two runs.

        Only the holder of the trim lock may call it. If the end of the chain is broken, nothing is closed yet: the
        next line records the break in the same file.

        Raises:
            StateError: it can't be closed; then nothing may be deleted.
        """
        try:
            with opened(self.path, os.O_RDWR | os.O_APPEND) as handle:
                if os.fstat(handle).st_size < max_bytes:
                    return
                drop_torn_line(handle)
                os.fsync(handle)
                end, after = self._end(handle)
            if end.broken is None and after is None and end.link.seq > 0:
                close_file(self.path.parent, end.link.seq)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unwritable(error) from None

    def events(self) -> Iterator[Event]:
        """Read all events in order. An unterminated last line was torn by a crash and is left out.

        Raises:
            StateError: the log can't be read, or a line in it is broken.
        """
        with self.snapshot() as now:
            yield from self._events(now, now.names, Chain())

    def runs(self) -> dict[str, Run]:
        """Return the runs by id, in the order in which they began.

        Raises:
            StateError: see :meth:`events`.
        """
        runs: dict[str, Run] = {}
        for event in self.events():
            add(runs, event)
        return runs

    def trimmed_since(self, at: str) -> tuple[Amount, str | None, Amount]:
        """Return what was trimmed since a moment (ISO 8601 as kretain writes it), for the limits per day (G6).

        Closed files with no line since that moment are not read: a log of years costs what its last days cost.

        The second item is the first break of the chain in what was read, as ``file:line: text``; None if it is intact.
        Files before it may have been removed, but not if they may name trims since then. The third item is what runs
        without an approval trimmed.

        Raises:
            StateError: see :meth:`events`. Then trimming stops.
        """
        chain = Chain()
        with self.snapshot() as now:
            read = now.names[self._ended_before(now, at, chain) :]
            runs = [
                (run.trimmed(at), run.begun.get("approval") is not None)
                for run in one_by_one(self._events(now, read, chain))
            ]
            chain.end(now.head, now.problem)
        amount, alone = total(one for one, _ in runs), total(one for one, approved in runs if not approved)
        if chain.breaks:
            return amount, self.shown(chain.breaks[0]), alone
        if chain.removed and chain.removed_until >= at:
            text = f"the files before it were removed, and may list trims since {at}"
            return amount, self.shown(Break(None, text, read[0])), alone
        return amount, None, alone

    def last_ledger(self) -> NamedLedger | None:
        """Return the ledger that the last run with a ledger used; None if no run has named one.

        A run whose ledger was damaged names none, and must not hide an earlier one. The log is read backwards, from
        its end to that run's line.

        Raises:
            StateError: the log can't be read.
        """
        with self.snapshot() as now:
            for name in reversed(now.names):
                with closing(now.backward(name)) as lines:
                    for line in lines:
                        match event_of(line) if b'"ledger"' in line else None:
                            case {"event": "run", "ledger": {"id": str(ledger_id), "revision": int(revision)}}:
                                return NamedLedger(ledger_id, revision)
        return None

    def verify(self) -> Chain:
        """Check the chain from the first line to the head, over all files, and return it with each break.

        Raises:
            StateError: the log can't be read.
        """
        return self.follow(None)[0]

    def follow(self, hear: Callable[[Event], None] | None) -> tuple[Chain, str | None]:
        """Check the chain as :meth:`verify` does, and pass each event to ``hear`` until a line is broken.

        Returns the chain, and where the first broken line is (None: there is none).

        Raises:
            StateError: the log can't be read.
        """
        chain, begun, broken = Chain(), set[str](), None
        with self.snapshot() as now:
            for name in now.names:
                chain.begin(name)
                for number, line in now.lines(name, blank=True):
                    event = event_of(line)
                    chain.take(number, line, event)
                    if hear is None or broken is not None or not line.strip():
                        continue
                    if (complete := checked(event, begun)) is None:
                        broken = self._broken(name, number)
                    else:
                        hear(complete)
            chain.end(now.head, now.problem)
        return chain, broken

    def shown(self, one: Break) -> str:
        """Return a break with its location: ``file:line: text``."""
        path = self.path if one.file is None else self.path.with_name(one.file)
        return f"{path}{'' if one.line is None else f':{one.line}'}: {one.text}"

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Yield a consistent view of the log, even while a running trim closes a file."""
        folder = self.path.parent
        while True:
            head, closed = read_head(folder), closed_files(folder)
            handle, size = open_log(self.path)
            try:
                if head == read_head(folder) and closed == closed_files(folder):
                    yield Snapshot(folder, closed, handle, size, *head)
                    return
            finally:
                if handle is not None:
                    os.close(handle)

    def _ended_before(self, now: Snapshot, at: str, chain: Chain) -> int:
        """Return how many closed files, the oldest ones, have no line since a moment; the chain goes on behind them."""
        for index in range(min(len(now.closed), len(now.names) - 1), 0, -1):
            with closing(now.lines(now.names[index])) as later:  # its first line names the latest moment before it
                first = next(later, None)
            latest = None if first is None else latest_of(event_of(first[1]) or {})
            if latest is None or latest >= at:
                continue
            name = now.closed[index - 1]
            with closing(now.backward(name)) as lines:
                last = next(lines, None)
            event = None if last is None else event_of(last)
            if last is not None and event is not None and chain.go_on_behind(name, last, event):
                return index
        return 0

    def _end(self, handle: int) -> tuple[Resumed, str | None]:
        """Return where the next line continues; and the closed file before it, if it is the first of its file."""
        head, problem = read_head(self.path.parent)
        last, after = next(lines_backward(handle), None), None
        if last is None and (closed := closed_files(self.path.parent)):
            after = closed[-1]
            with opened(self.path.with_name(after), os.O_RDONLY) as before:
                last = next(lines_backward(before), None)
        return resume(last, head, problem), after

    def _unwritable(self, error: OSError) -> StateError:
        return StateError(f"the audit log {self.path} can't be written: {error.strerror}; nothing more is trimmed")

    def _events(self, now: Snapshot, names: Iterable[str], chain: Chain) -> Iterator[Event]:
        """Yield the events of these files, and have the chain follow their lines."""
        begun: set[str] = set()
        for name in names:
            chain.begin(name)
            for number, line in now.lines(name):
                if (event := checked(event_of(line), begun)) is None:
                    raise StateError(self._broken(name, number))
                chain.take(number, line, event)
                yield event

    def _broken(self, name: str, number: int) -> str:
        return (
            f"{self.path.with_name(name)}:{number}: a broken line: what was trimmed is unknown. Repair it, or move the "
            f"log (audit*.jsonl) and {HEAD_NAME} aside if you accept that its trims no longer count (kretain history "
            f"--verify shows more)"
        )


Event = dict[str, Any]


@dataclass(slots=True)
class Run:
    """One trim in the log: its ``run`` line, its batches by number, their results, its evidence, its ``end`` line."""

    run: str
    begun: Event
    batches: dict[int, Event] = field(default_factory=dict)
    results: dict[int, Event] = field(default_factory=dict)
    end: Event | None = None
    evidence: list[Event] = field(default_factory=list)

    def trimmed(self, since: str = "") -> Amount:
        """Return what this run deleted, in batches since a moment (ISO 8601 as kretain writes it).

        An announced delete without a certain result counts as executed, until a later batch settles it.
        """
        certain: list[Amount] = []
        doubtful: dict[tuple[str, int], Amount] = {}
        for batch, row, result in self.announced():
            key = (row["topic"], row["partition"])
            earlier = doubtful.pop(key, None)
            if earlier is None and batch["at"] < since:  # a clock set back does not take back what was announced
                continue
            amount = Amount(row["records"], row["bytes"], row.get("unconsumed", 0))
            if earlier is not None:  # which request did it may be unknown: the larger counts
                amount = max(amount, earlier, key=lambda one: one.records)
            match result.get("outcome", "unverified"):
                case "trimmed":
                    certain.append(amount)
                case "unverified":
                    doubtful[key] = amount
        return total((*certain, *doubtful.values()))

    def announced(self) -> Iterator[tuple[Event, Event, Event]]:
        """Yield each delete that was announced: its batch, its row there, and the row of its result, empty without."""
        for number, batch in self.batches.items():
            rows = (self.results.get(number) or {"partitions": ()})["partitions"]
            results = {(row["topic"], row["partition"]): row for row in rows}
            for row in batch["partitions"]:
                yield batch, row, results.get((row["topic"], row["partition"]), {})


def one_by_one(events: Iterable[Event]) -> Iterator[Run]:
    """Yield each run at its end, and forget it: a log of years is read in the memory of one run.

    Those that have no end are yielded last. What is added to a run after its end is yielded as a run of its own.
    """
    runs: dict[str, Run] = {}
    for event in events:
        if event["event"] == "signature":  # it follows the end
            continue
        if event["run"] not in runs and event["event"] != "run":
            runs[event["run"]] = Run(event["run"], event)
        add(runs, event)
        if runs[event["run"]].end is not None:
            yield runs.pop(event["run"])
    yield from runs.values()


def add(runs: dict[str, Run], event: Event) -> None:
    """Add an event to its run. One of a kind that this version does not know changes nothing."""
    name = event["run"]
    match event["event"]:
        case "run":
            runs[name] = Run(name, event)
        case "batch":
            runs[name].batches[event["batch"]] = event
        case "result":
            runs[name].results[event["batch"]] = event
        case "evidence" if name in runs:
            runs[name].evidence.append(event)
        case "end":
            runs[name].end = event


def checked(event: Event | None, begun: set[str]) -> Event | None:
    """Return a line's event, None if a required field is missing or of the wrong type.

    ``begun`` are the runs so far; a ``run`` line is added to it. Lines of a run that never began can't be counted.
    """
    match event:
        case {
            "event": "run",
            "run": str(run),
            "at": str(),
            "user": str(),
            "host": str(),
            "cluster": {"id": str()},
            "policy": {"source": str()},
            "planned": {"partitions": planned},
        } if _are_counts(planned):
            begun.add(run)
            valid = True
        case {
            "event": ("batch" | "result") as kind,
            "run": str(run),
            "at": str(),
            "batch": number,
            "partitions": list(rows),
        }:
            valid = run in begun and _are_counts(number) and _are_rows(rows, announced=kind == "batch")
        case {"event": "end", "run": str(run), "at": str(), "exit": code, "totals": dict(totals)}:
            valid = run in begun and _are_counts(code, *(one for one in totals.values() if one is not None))
        case {"event": str(kind), "run": str()}:
            valid = kind not in ("run", "batch", "result", "end")  # of a later kretain
        case _:
            valid = False
    return event if valid else None


def _are_rows(rows: list[Any], *, announced: bool) -> bool:
    """Return whether a line's partitions have the required fields: column by column, as a batch has thousands."""
    try:
        texts = [row[name] for name in (("topic",) if announced else ("topic", "outcome")) for row in rows]
        counts = [row["partition"] for row in rows]
        if announced:
            counts += [row[name] for name in ("log_start", "target", "records") for row in rows]
            counts += [row["bytes"] for row in rows if row["bytes"] is not None]
            counts += [row.get("unconsumed", 0) for row in rows]
    except (KeyError, TypeError):
        return False
    return {*map(type, texts)} <= {str} and {*map(type, counts)} <= {int} and min(counts, default=0) >= 0


def _are_counts(*values: object) -> bool:
    return all(type(one) is int and one >= 0 for one in values)
