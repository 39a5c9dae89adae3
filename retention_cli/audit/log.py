"""The audit log: what each trim was about to do and the results, one JSON line each, fsynced.

A line is on disk before the request that it announces is sent. So whatever happens in between, the log
names at least everything that was deleted. Lines are chained, so that later edits are noticed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from retention_cli.audit.chain import Break, Chain, Link, Resumed, event_of, next_line, resume
from retention_cli.audit.event import Event, checked
from retention_cli.audit.head import HEAD_NAME, HeadError, read_head, write_head
from retention_cli.core.state_dir import StateError, make_folder, open_file
from retention_cli.decide.guards.limits import Amount, total

FILE_NAME: Final = "audit.jsonl"


class NamedLedger(NamedTuple):
    """The ledger that a trim used: its id, and how often it had been written."""

    ledger_id: str
    revision: int


@dataclass(slots=True)
class Run:
    """One trim in the log: its ``run`` line, its batches by number, their results, its ``end`` line."""

    run: str
    begun: Event
    batches: dict[int, Event] = field(default_factory=dict)
    results: dict[int, Event] = field(default_factory=dict)
    end: Event | None = None

    def trimmed(self, since: str = "") -> Amount:
        """Return what this run deleted, in batches since a moment (ISO 8601 as kretain writes it).

        An announced delete without a certain result counts as executed, until a later batch settles it.
        """
        certain: list[Amount] = []
        doubtful: dict[tuple[str, int], Amount] = {}
        for number, batch in self.batches.items():
            result = self.results.get(number)
            outcomes = {
                (row["topic"], row["partition"]): row["outcome"] for row in (result or {"partitions": ()})["partitions"]
            }
            for row in batch["partitions"]:
                key = (row["topic"], row["partition"])
                earlier = doubtful.pop(key, None)
                if batch["at"] < since:
                    continue
                amount = Amount(row["records"], row["bytes"])
                if earlier is not None:  # which request did it may be unknown: the larger counts
                    amount = max(amount, earlier, key=lambda one: one.records)
                match outcomes.get(key, "unverified"):
                    case "trimmed":
                        certain.append(amount)
                    case "unverified":
                        doubtful[key] = amount
        return total((*certain, *doubtful.values()))


class AuditLog:
    """A cluster's audit log. Append-only, and chained (:mod:`retention_cli.audit.chain`)."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME

    def append(self, event: Mapping[str, Any]) -> None:
        """Append one line, write its number and hash into the head, and wait until both are on disk.

        Only the holder of the trim lock may append. What a crash left is repaired: a torn last line is dropped, a head
        that is a line behind is written first. If the end is broken otherwise, the new line records that for good.

        Raises:
            StateError: it can't be written; then nothing may be deleted.
        """
        folder = self.path.parent
        make_folder(folder)
        try:
            handle = open_file(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            try:
                _drop_torn_line(handle)
                end = self._end(handle)
                if end.head is not None:
                    write_head(folder, end.head)
                line, link = next_line(event, end)
                if os.write(handle, line + b"\n") != len(line) + 1:
                    raise OSError(errno.ENOSPC, "it was written in part")
                os.fsync(handle)
            finally:
                os.close(handle)
            write_head(folder, link)
        except OSError as error:
            raise StateError(
                f"the audit log {self.path} can't be written: {error.strerror}; nothing more is trimmed"
            ) from None

    def events(self) -> Iterator[Event]:
        """Read all events in order. An unterminated last line was torn by a crash and is left out.

        Raises:
            StateError: the log can't be read, or a line in it is broken.
        """
        begun: set[str] = set()
        for number, line in self._lines():
            yield self._event(line, number, begun)

    def runs(self) -> dict[str, Run]:
        """Return the runs by id, in the order in which they began.

        Raises:
            StateError: see :meth:`events`.
        """
        return _runs(self.events())

    def trimmed_since(self, at: str) -> tuple[Amount, str | None]:
        """Return what was trimmed since a moment (ISO 8601 as kretain writes it), for the limits per day (G6).

        The second item is the first break of the chain, as ``file:line: text``; None if the chain is intact.

        Raises:
            StateError: see :meth:`events`. Then trimming stops.
        """
        head, size = self._now()
        chain, begun = Chain(), set[str]()

        def events() -> Iterator[Event]:
            for number, line in self._lines(size):
                event = self._event(line, number, begun)
                chain.take(number, line, event)
                yield event

        amount = total(run.trimmed(at) for run in _one_by_one(events()))
        chain.end(*head)
        return amount, self.shown(chain.breaks[0]) if chain.breaks else None

    def last_ledger(self) -> NamedLedger | None:
        """Return the ledger that the last run with a ledger used; None if no run has named one.

        A run whose ledger was damaged names none, and must not hide an earlier one. The log is read backwards, from
        its end to that run's line.

        Raises:
            StateError: the log can't be read.
        """
        try:
            handle = open_file(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error) from None
        try:
            for line in _lines_backward(handle):
                event = event_of(line) if b'"ledger"' in line else None
                run = event is not None and event.get("event") == "run"
                if event is not None and run and (found := _named(event.get("ledger"))) is not None:
                    return found
        except OSError as error:
            raise self._unreadable(error) from None
        finally:
            os.close(handle)
        return None

    def verify(self) -> Chain:
        """Check the chain from the first line to the head, and return it with each break.

        Raises:
            StateError: the log can't be read.
        """
        head, size = self._now()
        chain, begun = Chain(), set[str]()
        for number, line in self._lines(size, blank=True):
            if not line.strip() and chain.since is None:
                continue
            event = event_of(line)
            if event is not None and "seq" not in event and "prev" not in event:
                event = checked(line, begun)  # not covered by a hash, so at least validate it
            chain.take(number, line, event)
        chain.end(*head)
        return chain

    def shown(self, one: Break) -> str:
        """Return a break with its location: ``file:line: text``."""
        return f"{self.path}{'' if one.line is None else f':{one.line}'}: {one.text}"

    def _now(self) -> tuple[tuple[Link | None, str | None], int]:
        """Return the head, and the log's length at that moment: a trim may be running."""
        while True:
            head = self._head()
            try:
                size = self.path.stat().st_size
            except FileNotFoundError:
                size = 0
            except OSError as error:
                raise self._unreadable(error) from None
            if head == self._head():
                return head, size

    def _head(self) -> tuple[Link | None, str | None]:
        try:
            return read_head(self.path.parent), None
        except HeadError as error:
            return None, str(error)

    def _end(self, handle: int) -> Resumed:
        head, problem = self._head()
        return resume(_last_line(handle), head, problem)

    def _lines(self, size: int | None = None, *, blank: bool = False) -> Iterator[tuple[int, bytes]]:
        """Yield whole lines without their newlines, up to ``size`` bytes; blank lines only if ``blank``.

        Raises:
            StateError: the log can't be read.
        """
        try:
            with os.fdopen(open_file(self.path, os.O_RDONLY), "rb") as handle:
                read = 0
                for number, line in enumerate(handle, start=1):
                    read += len(line)
                    if not line.endswith(b"\n") or (size is not None and read > size):
                        return
                    if blank or line.strip():
                        yield number, line[:-1]
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: OSError) -> StateError:
        return StateError(f"the audit log {self.path} can't be read: {error.strerror}")

    def _event(self, line: bytes, number: int, begun: set[str]) -> Event:
        event = checked(line, begun)
        if event is not None:
            return event
        raise StateError(
            f"{self.path}:{number}: a broken line: what was trimmed can't be told. Mend it, or move the log and "
            f"{HEAD_NAME} aside if you accept that its trims no longer count (kretain history --verify shows more)"
        )


def _named(told: object) -> NamedLedger | None:
    match told:
        case {"id": str(ledger_id), "revision": int(revision)}:
            return NamedLedger(ledger_id, revision)
    return None


def _runs(events: Iterable[Event]) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    for event in events:
        _add(runs, event)
    return runs


def _one_by_one(events: Iterable[Event]) -> Iterator[Run]:
    """Yield each run at its end, and forget it: a log of years is read in the memory of one run.

    Those that have no end are yielded last. What is added to a run after its end is yielded as a run of its own.
    """
    runs: dict[str, Run] = {}
    for event in events:
        if event["run"] not in runs and event["event"] != "run":
            runs[event["run"]] = Run(event["run"], event)
        _add(runs, event)
        if runs[event["run"]].end is not None:
            yield runs.pop(event["run"])
    yield from runs.values()


def _add(runs: dict[str, Run], event: Event) -> None:
    """Add an event to its run. One of a kind that this version does not know changes nothing."""
    name = event["run"]
    match event["event"]:
        case "run":
            runs[name] = Run(name, event)
        case "batch":
            runs[name].batches[event["batch"]] = event
        case "result":
            runs[name].results[event["batch"]] = event
        case "end":
            runs[name].end = event


def _drop_torn_line(handle: int) -> None:
    """Cut off an unterminated last line: a crash tore it, so the request that it was to announce was never sent."""
    size = os.fstat(handle).st_size
    whole = _end_of_line(handle, size)
    if whole != size:
        os.ftruncate(handle, whole)


def _last_line(handle: int) -> bytes | None:
    """Return the last line that is not blank, without its newline. Nothing before it is read, however long the log."""
    return next(_lines_backward(handle), None)


def _lines_backward(handle: int) -> Iterator[bytes]:
    """Yield the lines that are not blank, without their newlines, from the last to the first."""
    end = _end_of_line(handle, os.fstat(handle).st_size)
    while end:
        start = _end_of_line(handle, end - 1)
        line = os.pread(handle, end - 1 - start, start)
        if line.strip():
            yield line
        end = start


def _end_of_line(handle: int, before: int) -> int:
    """Return the end of the last line that ends at or before this position, 0 if there is none."""
    while before:
        start = max(0, before - 65536)
        found = os.pread(handle, before - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        before = start
    return 0
