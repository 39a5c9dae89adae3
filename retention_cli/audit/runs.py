"""Runs, put together from the audit log's lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from retention_cli.audit.event import Event
from retention_cli.decide.guards.limits import Amount, total


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
                if earlier is None and batch["at"] < since:  # a clock set back does not take back what was announced
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
