"""The audit log's lines, validated (required fields are there, of the right type), and the runs they tell of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from retention_cli.audit.chain import event_of
from retention_cli.decide.guards.limits import Amount, total

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

    @property
    def approved(self) -> bool:
        """Whether it had a second person's approval."""
        return self.begun.get("approval") is not None

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
                if earlier is None and batch["at"] < since:  # a clock set back does not take back what was announced
                    continue
                amount = Amount(row["records"], row["bytes"], row.get("unconsumed", 0))
                if earlier is not None:  # which request did it may be unknown: the larger counts
                    amount = max(amount, earlier, key=lambda one: one.records)
                match outcomes.get(key, "unverified"):
                    case "trimmed":
                        certain.append(amount)
                    case "unverified":
                        doubtful[key] = amount
        return total((*certain, *doubtful.values()))


def runs_of(events: Iterable[Event]) -> dict[str, Run]:
    """Return the runs by id, in the order in which they began."""
    runs: dict[str, Run] = {}
    for event in events:
        _add(runs, event)
    return runs


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
        case "evidence" if name in runs:
            runs[name].evidence.append(event)
        case "end":
            runs[name].end = event


def checked(line: bytes, begun: set[str]) -> Event | None:
    """Return a line's event, None if a field that is relied on is missing or of the wrong type.

    ``begun`` are the runs so far; a ``run`` line is added to it. Lines of a run that never began can't be counted.
    """
    event = event_of(line)
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
            row_is_valid = _is_announced if kind == "batch" else _is_result
            valid = run in begun and _are_counts(number) and all(map(row_is_valid, rows))
        case {"event": "end", "run": str(run), "at": str(), "exit": code, "totals": dict(totals)}:
            valid = run in begun and _are_counts(code, *(one for one in totals.values() if one is not None))
        case {"event": str(kind), "run": str()}:
            valid = kind not in ("run", "batch", "result", "end")  # of a later kretain
        case _:
            valid = False
    return event if valid else None


def _is_announced(row: object) -> bool:
    match row:
        case {
            "topic": str(),
            "partition": number,
            "log_start": start,
            "target": target,
            "records": records,
            "bytes": size,
            **more,
        }:
            return _are_counts(number, start, target, records, 0 if size is None else size, more.get("unconsumed", 0))
    return False


def _is_result(row: object) -> bool:
    match row:
        case {"topic": str(), "partition": number, "outcome": str()}:
            return _are_counts(number)
    return False


def _are_counts(*values: object) -> bool:
    return all(type(one) is int and one >= 0 for one in values)
