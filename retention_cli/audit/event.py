"""Reads and validates a line of the audit log: required fields must be present and of the right type. Pure."""

from __future__ import annotations

from typing import Any

from retention_cli.audit.chain import event_of

Event = dict[str, Any]


def checked(line: bytes, begun: set[str]) -> Event | None:
    """Return a line's event, None if a field that is relied on is missing or of the wrong type.

    ``begun`` are the runs so far; a ``run`` line is added to it. Lines of a run that never began can't be counted.
    """
    event = event_of(line)
    try:
        if event is not None:
            _check(event, begun)
            return event
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def _check(event: Event, begun: set[str]) -> None:
    """Raise if an event lacks a field that is relied on, or has one of the wrong type."""
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
