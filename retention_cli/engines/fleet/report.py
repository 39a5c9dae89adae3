"""The results of a fleet's trim: a report per cluster, or its failure, and ``kretain.fleet-trim/v1``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from retention_cli.decide.guards.limits import total
from retention_cli.engines.fleet.plan import Failure
from retention_cli.trim.report import OutcomeName, TrimReport

FORMAT: Final = "kretain.fleet-trim/v1"
OUTCOMES: Final[tuple[OutcomeName, ...]] = ("trimmed", "unchanged", "held", "failed", "unverified", "would-trim")


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
    def interrupted(self) -> bool:
        """Whether the fleet's trim was interrupted."""
        return any(one.interrupted for one in self.reports.values()) or any(
            isinstance(one.cause, KeyboardInterrupt) for one in self.failures.values()
        )


def fleet_report_head(report: FleetReport) -> dict[str, Any]:
    """Return the report's JSON without its clusters."""
    reports = report.reports.values()
    gone = total(one.trimmed for one in reports)
    return {
        "format": FORMAT,
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
