"""The audit log: what each trim was about to do and what came of it, a JSON line each, fsynced.

A line is on the disk before the request that it announces is sent. So whatever happens in between, the log
names at least everything that was deleted.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from retention_cli.guards.limits import Amount, total
from retention_cli.state.folder import StateError, make_folder

FILE_NAME: Final = "audit.jsonl"

Event = dict[str, Any]


@dataclass(slots=True)
class Run:
    """One trim as the log tells it: its ``run`` line, its batches by number, their results, its ``end`` line."""

    run: str
    begun: Event
    batches: dict[int, Event] = field(default_factory=dict)
    results: dict[int, Event] = field(default_factory=dict)
    end: Event | None = None

    def trimmed(self, since: str = "") -> Amount:
        """Return what this run deleted, in batches since a moment.

        What it was about to delete and said no more of counts as deleted, until a later batch looked again.
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
                if earlier is not None:  # which of the two requests did it may not be known: the larger counts
                    amount = max(amount, earlier, key=lambda one: one.records)
                match outcomes.get(key, "unverified"):
                    case "trimmed":
                        certain.append(amount)
                    case "unverified":
                        doubtful[key] = amount
        return total((*certain, *doubtful.values()))


class AuditLog:
    """A cluster's audit log. Append-only."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME

    def append(self, event: Mapping[str, Any]) -> None:
        """Write one line and wait until it is on the disk.

        Raises:
            StateError: it can't be written; then nothing may be deleted.
        """
        make_folder(self.path.parent)
        line = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                _drop_torn_line(handle)
                if os.write(handle, line) != len(line):
                    raise OSError(errno.ENOSPC, "it was written in part")
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise StateError(
                f"the audit log {self.path} can't be written: {error.strerror}; nothing more is trimmed"
            ) from None

    def events(self) -> Iterator[Event]:
        """Read all events in order. A last line without its end was torn by a crash and is left out.

        Raises:
            StateError: the log can't be read, or a line in it is broken.
        """
        begun: set[str] = set()
        try:
            with self.path.open("rb") as handle:
                for number, line in enumerate(handle, start=1):
                    if not line.endswith(b"\n"):
                        return
                    if line.strip():
                        yield self._event(line, number, begun)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StateError(f"the audit log {self.path} can't be read: {error.strerror}") from None

    def runs(self) -> dict[str, Run]:
        """Return the runs by id, in the order in which they began.

        Raises:
            StateError: see :meth:`events`.
        """
        runs: dict[str, Run] = {}
        for event in self.events():
            name = event["run"]
            if event["event"] == "run":
                runs[name] = Run(name, event)
                continue
            match event["event"]:
                case "batch":
                    runs[name].batches[event["batch"]] = event
                case "result":
                    runs[name].results[event["batch"]] = event
                case "end":
                    runs[name].end = event
        return runs

    def trimmed_since(self, at: str) -> Amount:
        """Return what was trimmed since a moment (ISO 8601 as we write it), for the limits per day (RULES.md G6).

        Raises:
            StateError: see :meth:`events`. Then trimming stops.
        """
        return total(run.trimmed(at) for run in self.runs().values())

    def _event(self, line: bytes, number: int, begun: set[str]) -> Event:
        """Read one line and doubt it. ``begun`` are the runs so far: what is said of another can't be counted."""
        try:
            event = json.loads(line)
            if isinstance(event, dict):
                _check(event, begun)
                return event
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        raise StateError(
            f"{self.path}:{number}: a broken line: what was trimmed can't be told. Mend it, or move the log aside if "
            f"you accept that its trims no longer count"
        )


def _drop_torn_line(handle: int) -> None:
    """Cut off a last line without its end: a crash tore it, so that what it was to announce was never sent."""
    size = os.fstat(handle).st_size
    whole = size
    while whole and os.pread(handle, 1, whole - 1) != b"\n":
        start = max(0, whole - 65536)
        found = os.pread(handle, whole - start, start).rfind(b"\n")
        whole = start + found + 1
    if whole != size:
        os.ftruncate(handle, whole)


def _check(event: Event, begun: set[str]) -> None:
    """Raise where an event lacks something that is relied on, or where it is of another kind."""
    kind, run = _text(event["event"]), _text(event["run"])
    if kind == "run":
        for value in (event["at"], event["user"], event["host"], event["cluster"]["id"], event["policy"]["source"]):
            _text(value)
        _count(event["planned"]["partitions"])
        begun.add(run)
    elif kind in ("batch", "result", "end"):
        if run not in begun:
            raise ValueError(run)
        _text(event["at"])
        if kind == "end":
            _count(event["exit"])
            for value in event["totals"].values():
                _count(0 if value is None else value)
        else:
            _count(event["batch"])
            for row in event["partitions"]:
                _text(row["topic"])
                _count(row["partition"])
                if kind == "result":
                    _text(row["outcome"])
                else:
                    for key in ("log_start", "target", "records"):
                        _count(row[key])
                    _count(0 if row["bytes"] is None else row["bytes"])


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _count(value: object) -> None:
    if type(value) is not int or value < 0:
        raise ValueError(value)
