"""A fleet's plan and report, saved in each format."""

from __future__ import annotations

from pathlib import Path

from retention_cli.core.model import Reason
from retention_cli.engines.fleet.plan import Failure, FleetPlan, fleet_heads, fleet_lines
from retention_cli.engines.fleet.report import FleetReport
from retention_cli.engines.fleet.saved import write_fleet
from retention_cli.trim.report import TrimReport, row_of
from tests.support.plans import EVERY, HOLD, of_spark, plan, row

EU = EVERY


US = plan(row(topic="clicks", unconsumed=7), HOLD._replace(topic="clicks", partition=1), cluster_id="c2")


DOWN = Failure("ap:9092 could not be reached within 1 s: connection refused")


FLEET = FleetPlan(EU.created_at_ms, "fleet.yaml", "sha256:f", {"eu": EU, "ap": DOWN, "us": US})


def saved(folder: Path, fleet: FleetPlan, kind: str) -> Path:
    path = folder / f"plan.{kind}"
    if kind == "json":
        path.write_text("".join(fleet_lines(fleet)), encoding="utf-8")
    elif kind == "parquet":
        write_fleet(path, fleet)
    else:
        rows = [(one.cluster_id, decision) for one in fleet.plans.values() for decision in one.decisions]
        of_spark(path, fleet_heads(fleet), rows[::2], rows[1::2])
    return path


KINDS = ("json", "parquet", "folder")


REPORT = FleetReport(
    "fleet.yaml",
    "sha256:f",
    {
        "eu": TrimReport("run-1", "c1", "b:9092", [row_of(EU.decisions[0].tp, "trimmed", 50, 50, (), 50, 500)]),
        "ap": DOWN,
        "us": TrimReport(
            "run-2", "c2", "b:9092", [row_of(US.decisions[0].tp, "held", reasons=(Reason("F3", "down"),))]
        ),
    },
)
