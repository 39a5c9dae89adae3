"""A copy of the audit log in a topic of its cluster, where the policy wants one (docs/audit.md).

The log on the disk is the record: a copy that fails stops nothing, and what it lacks is sent by the next trim. How far
the copy reaches is in a file next to the log: the topic, and the number and hash of the last line that it has.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from retention_cli.audit.chain import Link, as_link, event_of, hash_of, link_of
from retention_cli.audit.files import FILE_NAME, Snapshot, closed_name, read_event, replace_file
from retention_cli.audit.log import AuditLog
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.metadata import TopicConfig
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.writer import ClusterWriter
from retention_cli.core.grouping import in_batches
from retention_cli.core.state_dir import StateError

SHIPPED_NAME: Final = "audit.shipped"
AT_ONCE: Final = 500
"""How many lines are sent before their acknowledgements are awaited, and the place is written down."""
MOST_S: Final = 60.0
"""After so long (s) the rest is left for the next trim: a first copy of a log of years must not hold up a run."""
_Place = Mapping[str, str | None]
"""The topic and its id. A topic with an unknown one (None) has no place: everything is sent."""


class _Line(NamedTuple):
    """A line to send, and its run, empty if it has none. ``link`` is its number and hash, None if unchained."""

    value: bytes
    run: str
    link: Link | None


def ship(log: AuditLog, reader: ClusterReader, topic: str) -> str | None:
    """Send the lines that the topic lacks, in order, to its partition 0, and wait until they are acknowledged.

    Only the holder of the trim lock may call it. Lines may be sent twice, after a crash: they are then the
    same, byte by byte. Return why lines are left for the next trim, None if the topic has all.
    """
    folder, deadline = log.path.parent, time.monotonic() + MOST_S
    try:
        if (about := reader.metadata([topic]).topics.get(topic)) is None:
            return (
                f"topic {topic} does not exist, or this user may not describe it: create it, and the next trim sends "
                f"the lines"
            )
        config = reader.topic_configs([topic])[topic]
        if isinstance(config, TopicConfig) and "compact" in config.cleanup_policy:
            return f"topic {topic} is compacted, and would keep one line per run: set its cleanup.policy to delete"
        place = {"topic": topic, "topic_id": about.topic_id}
        with ClusterWriter(reader.pinned_settings, {topic}, reader.timeout_s) as writer:
            unsent = _unsent(log, _reached_by(folder, place))
            for number, lines in enumerate(in_batches(unsent, AT_ONCE)):
                if number and time.monotonic() > deadline:
                    return f"topic {topic} lacks lines after {MOST_S:g} s: the next trim sends them"
                answers = writer.append_all(topic, [(one.run.encode("utf-8", "replace"), one.value) for one in lines])
                failed = next((n for n, one in enumerate(answers) if isinstance(one, BrokerError)), len(lines))
                _remember(folder, place, lines[:failed])
                if failed < len(lines):
                    return f"{answers[failed]}; the next trim sends the lines that it lacks"
    except (BrokerError, StateError) as error:
        return f"{error}; the next trim sends the lines that topic {topic} lacks"
    return None


def _unsent(log: AuditLog, reached: Link | None) -> Iterator[_Line]:
    """Yield the lines behind the place that was reached; all of them if this log does not have that place."""
    with log.snapshot() as now:
        if reached is not None:
            lines = _lines(now, [name for name in now.names if name == FILE_NAME or name >= closed_name(reached.seq)])
            last = next((one for one in lines if one.link is not None and one.link.seq >= reached.seq), None)
            if last is not None and last.link == reached:
                yield from lines
                return
        yield from _lines(now, now.names)


def _lines(now: Snapshot, names: Iterable[str]) -> Iterator[_Line]:
    for name in names:
        for _number, line in now.lines(name):
            event = event_of(line) or {}
            link, run = link_of(event), event.get("run")
            yield _Line(
                line, run if isinstance(run, str) else "", None if link is None else Link(link.seq, hash_of(line))
            )


def _reached_by(folder: Path, place: _Place) -> Link | None:
    """Return the last line that this very copy has; None if that is not known, and everything is to be sent."""
    try:
        shipped = read_event(folder / SHIPPED_NAME)
        same = None not in place.values() and all(shipped.get(key) == value for key, value in place.items())
        return as_link(shipped.get("seq"), shipped.get("hash")) if same else None
    except OSError:
        return None


def _remember(folder: Path, place: _Place, lines: Sequence[_Line]) -> None:
    """Write down the last of these lines.

    Raises:
        StateError: that can't be done: they are sent again.
    """
    if not (links := [one.link for one in lines if one.link is not None]):
        return
    text = json.dumps({**place, "seq": links[-1].seq, "hash": links[-1].hash}).encode() + b"\n"
    try:
        replace_file(folder, SHIPPED_NAME, text)
    except OSError as error:
        raise StateError(f"{folder / SHIPPED_NAME} can't be written: {error.strerror}") from None
