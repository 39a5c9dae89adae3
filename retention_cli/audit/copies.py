"""What a copy of the audit log lacks, and how far it reaches (docs/audit.md).

How far a copy reaches lies beside the log: which copy it is, and the number and hash of the last line that it has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from retention_cli.audit.chain import Link, as_link, event_of, hash_of, link_of
from retention_cli.audit.event import Event
from retention_cli.audit.files import Snapshot, closed_name
from retention_cli.audit.head import replace_file
from retention_cli.audit.log import AuditLog
from retention_cli.core.state_dir import StateError, open_file

AT_ONCE: Final = 500
"""How many lines are sent before their acknowledgements are awaited, and the place is written down."""
MOST_S: Final = 60.0
"""After so long (s) the rest is left for the next trim: a first copy of a log of years must not hold up a run."""
_LONGEST: Final = 4_096
Place = Mapping[str, str | None]
"""Which copy it is, by names of its own. A copy with an unknown one (None) has no place: everything is sent."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line to send, and its event, empty if it can't be read. ``link`` is its number and hash, None if unchained."""

    value: bytes
    event: Event
    link: Link | None

    @property
    def run(self) -> str:
        """The name of its run, empty if it has none."""
        run = self.event.get("run")
        return run if isinstance(run, str) else ""


def unsent(log: AuditLog, reached: Link | None) -> Iterator[Line]:
    """Yield the lines behind the place that was reached; all of them if this log does not have that place."""
    with log.snapshot() as now:
        behind = None if reached is None else _behind(now, reached)
        yield from _lines(now) if behind is None else behind


def _behind(now: Snapshot, reached: Link) -> Iterator[Line] | None:
    """Return the lines behind a line of that number and hash, None if there is none."""
    closed = tuple(name for name in now.closed if name >= closed_name(reached.seq))
    names = (*closed, *(now.names[len(now.closed) :]))
    lines = _lines(now, names)
    for line in lines:
        if line.link == reached:
            return lines
        if line.link is not None and line.link.seq > reached.seq:
            return None
    return None


def _lines(now: Snapshot, names: tuple[str, ...] | None = None) -> Iterator[Line]:
    for name in now.names if names is None else names:
        for _number, line in now.lines(name):
            event = event_of(line) or {}
            try:
                link = link_of(event)
            except ValueError:
                link = None
            yield Line(line, event, None if link is None else Link(link.seq, hash_of(line)))


def reached_by(folder: Path, name: str, place: Place) -> Link | None:
    """Return the last line that this very copy has; None if that is not known, and everything is to be sent."""
    try:
        with os.fdopen(open_file(folder / name, os.O_RDONLY), "rb") as handle:
            told = event_of(handle.read(_LONGEST)) or {}
        same = None not in place.values() and all(told.get(key) == value for key, value in place.items())
        return as_link(told.get("seq"), told.get("hash")) if same else None
    except (OSError, ValueError):
        return None


def remember(folder: Path, name: str, place: Place, lines: Sequence[Line]) -> None:
    """Write down the last of these lines.

    Raises:
        StateError: that can't be done: they are sent again.
    """
    links = [one.link for one in lines if one.link is not None]
    if not links:
        return
    text = json.dumps({**place, "seq": links[-1].seq, "hash": links[-1].hash}).encode() + b"\n"
    try:
        replace_file(folder, name, text)
    except OSError as error:
        raise StateError(f"{folder / name} can't be written: {error.strerror}") from None
