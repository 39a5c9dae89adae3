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
            outcomes = {(row["topic"], row["partition"]): row["outcome"] for row in (result or {"partitions": ()})["partitions"]}
            for row in batch["partitions"]:
                key = (row["topic"], row["partition"])
                doubtful.pop(key, None)
                if batch["at"] < since:
                    continue
                amount = Amount(row["records"], row["bytes"])
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
            raise StateError(f"the audit log {self.path} can't be written: {error.strerror}; nothing more is trimmed") from None

    def events(self) -> Iterator[Event]:
        """Read all events in order. A last line without its end was torn by a crash and is left out.

        Raises:
            StateError: the log can't be read, or a line in it is broken.
        """
        try:
            with self.path.open("rb") as handle:
                for number, line in enumerate(handle, start=1):
                    if not line.endswith(b"\n"):
                        return
                    if line.strip():
                        yield self._event(line, number)
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
            elif name in runs:
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

    def _event(self, line: bytes, number: int) -> Event:
        try:
            event = json.loads(line)
            if isinstance(event, dict) and isinstance(event["run"], str) and isinstance(event["event"], str):
                if event["event"] in ("batch", "result"):
                    _check_batch(event)
                return event
        except (ValueError, KeyError, TypeError):
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


def _check_batch(event: Event) -> None:
    if not isinstance(event["batch"], int) or not isinstance(event["at"], str):
        raise TypeError
    for row in event["partitions"]:
        if not isinstance(row["topic"], str) or not isinstance(row["partition"], int):
            raise TypeError
        if event["event"] == "batch":
            if not isinstance(row["records"], int) or not isinstance(row["bytes"], int | None):
                raise TypeError
        elif not isinstance(row["outcome"], str):
            raise TypeError
