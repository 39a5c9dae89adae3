"""The plan of a fleet (``kretain.fleet-plan/v1``), and its trim's report (``kretain.fleet-trim/v1``). Pure.

Each has a plan or a report per cluster, or why there is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from retention_cli import __version__
from retention_cli.core.units import timestamp
from retention_cli.decide.guards.limits import Amount, total
from retention_cli.plan.value import FLEET_FORMAT, Plan, Totals, head_as_json, json_lines, row_as_json, totals_as_json
from retention_cli.trim.report import OUTCOMES, TrimReport

T = TypeVar("T", Plan, TrimReport)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a cluster has no plan or report, in one line. ``cause`` is the exception, None if it was read from a file."""

    error: str
    cause: BaseException | None = field(default=None, compare=False, repr=False)


def failure_of(error: BaseException) -> Failure:
    """Return a failure with an error's text, on one line."""
    return Failure(" ".join(str(error).split()) or type(error).__name__, error)


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Plans by cluster name, in the fleet's order. A cluster that could not be planned does not stop the others.

    ``source`` is the fleet's file (or ``context PATTERN``), ``digest`` its content's, None if there is no file.
    """

    created_at_ms: int
    source: str
    digest: str | None
    clusters: Mapping[str, Plan | Failure]

    @property
    def plans(self) -> dict[str, Plan]:
        """The plans of the clusters that were planned."""
        return {name: one for name, one in self.clusters.items() if isinstance(one, Plan)}

    @property
    def failures(self) -> dict[str, Failure]:
        """The failures of the clusters that were not planned."""
        return {name: one for name, one in self.clusters.items() if isinstance(one, Failure)}

    @property
    def totals(self) -> Totals:
        """Counts over all decisions of all clusters."""
        return sum((one.totals for one in self.plans.values()), Totals.of(()))


def fleet_head(fleet: FleetPlan) -> dict[str, Any]:
    """Return the fleet's JSON without its clusters."""
    totals = fleet.totals
    return {
        "format": FLEET_FORMAT,
        "kretain": __version__,
        "created_at": timestamp(fleet.created_at_ms),
        "fleet": {"source": fleet.source, "digest": fleet.digest},
        "has_changes": totals.trim > 0,
        "totals": {
            "clusters": len(fleet.clusters),
            "clusters_failed": len(fleet.failures),
            **totals_as_json(totals),
        },
    }


def fleet_heads(fleet: FleetPlan) -> dict[str, Any]:
    """Return the fleet's JSON without rows: for each cluster its plan's head, or its error."""
    clusters = [
        {"name": name, **({"error": one.error} if isinstance(one, Failure) else head_as_json(one))}
        for name, one in fleet.clusters.items()
    ]
    return {**fleet_head(fleet), "clusters": clusters}


def fleet_lines(fleet: FleetPlan) -> Iterator[str]:
    """Yield the fleet's JSON in pieces, one partition per line."""
    return lines_of(fleet_head(fleet), fleet.clusters, head_as_json, lambda one: map(row_as_json, one.decisions))


def lines_of(
    head: Mapping[str, Any],
    clusters: Mapping[str, T | Failure],
    head_of: Callable[[T], Mapping[str, Any]],
    rows_of: Callable[[T], Iterable[Mapping[str, Any]]],
) -> Iterator[str]:
    """Yield the text of a fleet's JSON: its head, then each cluster's head and rows (one per line), or its error."""
    text = json.dumps(head, ensure_ascii=False, indent=1)
    yield text[: text.rindex("\n")] + ',\n "clusters": ['
    between = "\n"
    for name, one in clusters.items():
        yield between
        if isinstance(one, Failure):
            yield json.dumps({"name": name, "error": one.error}, ensure_ascii=False)
        else:
            yield from json_lines({"name": name, **head_of(one)}, "partitions", rows_of(one))
        between = ",\n"
    yield "\n ]\n}\n"


@dataclass(frozen=True, slots=True)
class FleetReport:
    """The results of every cluster of a fleet, in its order: a report, or why there was no trim.

    ``source`` and ``digest`` are the fleet's, as in its plan.
    """

    source: str
    digest: str | None
    clusters: Mapping[str, TrimReport | Failure]

    @property
    def reports(self) -> dict[str, TrimReport]:
        """The reports of the clusters that were trimmed, at least in part."""
        return {name: one for name, one in self.clusters.items() if isinstance(one, TrimReport)}

    @property
    def failures(self) -> dict[str, Failure]:
        """The failures of the clusters in which nothing was done."""
        return {name: one for name, one in self.clusters.items() if isinstance(one, Failure)}

    @property
    def trimmed(self) -> Amount:
        """The amount that was trimmed in all clusters (in a dry run: that would be)."""
        return total(one.trimmed for one in self.reports.values())

    @property
    def interrupted(self) -> bool:
        """Whether the fleet's trim was interrupted."""
        return any(one.interrupted for one in self.reports.values()) or any(
            isinstance(one.cause, KeyboardInterrupt) for one in self.failures.values()
        )


def fleet_report_head(report: FleetReport) -> dict[str, Any]:
    """Return the report's JSON without its clusters."""
    reports, gone = report.reports.values(), report.trimmed
    return {
        "format": "kretain.fleet-trim/v1",
        "fleet": {"source": report.source, "digest": report.digest},
        "interrupted": report.interrupted,
        "totals": {
            "clusters": len(report.clusters),
            "clusters_failed": len(report.failures),
            "partitions": sum(len(one.rows) for one in reports),
            **{name: sum(one.count(name) for one in reports) for name in OUTCOMES},
            "records": gone.records,
            "bytes": gone.size_bytes,
        },
    }
