"""Open a saved plan, of one cluster or of a fleet, in either format."""

from __future__ import annotations

from pathlib import Path

from retention_cli.plan.parquet import ParquetPlans
from retention_cli.plan.saved import Entry, JsonFile, is_parquet, json_in, one_cluster, read_bytes
from retention_cli.plan.value import Plan

PlanFile = JsonFile | ParquetPlans


def open_plans(path: Path) -> PlanFile:
    """Open a plan file: its head, and what reads its plans.

    Raises:
        SavedPlanError: it is unreadable, or not complete.
        MissingPartError: it is Parquet, and pyarrow is not installed.
    """
    if is_parquet(path):
        return ParquetPlans(path)
    return JsonFile(path, json_in(read_bytes(path), path))


def read_plan(path: Path) -> Plan:
    """Read a saved plan of one cluster, JSON or Parquet.

    Raises:
        SavedPlanError: it is unreadable or of another format, or has duplicate rows or impossible numbers; the text
            names the place.
        MissingPartError: it is Parquet, and pyarrow is not installed.
    """
    return plan_in(open_plans(path))


def plan_in(file: PlanFile) -> Plan:
    """Return the plan of one cluster in an open file.

    Raises:
        SavedPlanError: as :func:`read_plan`.
    """
    one_cluster(file.head, file.path)
    return file.plans([Entry("", "", file.head)])[""]()
