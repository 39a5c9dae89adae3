"""The saved plan of a fleet, JSON or Parquet, validated like one cluster's (:mod:`retention_cli.plan.saved`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retention_cli.engines.fleet.plan import Failure, FleetPlan, fleet_heads
from retention_cli.plan.saved import (
    Entry,
    PlanFile,
    Plans,
    SavedPlanError,
    StrictModel,
    checked,
    not_a_plan,
    open_plans,
    plan_in,
    write_rows,
)
from retention_cli.plan.value import FLEET_FORMAT, FORMAT, Plan


class _Cluster(StrictModel):
    name: str
    error: str | None = None
    format: str | None = None


class _Fleet(StrictModel):
    clusters: list[dict[str, Any]]


class _Source(StrictModel):
    source: str
    digest: str | None = None


class _FleetHead(StrictModel):
    fleet: _Source


@dataclass(frozen=True, slots=True)
class SavedFleet:
    """A saved fleet plan: ``failures`` are why clusters were not planned; ``plans`` return a cluster's plan.

    From Parquet, a plan is read each time it is called for, so that only one cluster's rows are in memory at a time.
    """

    path: Path
    failures: Mapping[str, str]
    plans: Plans


def write_fleet(path: Path, fleet: FleetPlan) -> None:
    """Write a fleet's plan as a Parquet file, sorted by cluster id.

    Raises:
        MissingPartError: pyarrow is not installed.
        OSError: it can't be written.
    """
    plans = sorted(fleet.plans.values(), key=lambda one: one.cluster_id)
    write_rows(path, fleet_heads(fleet), ((one.cluster_id, one.decisions) for one in plans))


def read_fleet(path: Path) -> SavedFleet:
    """Open a fleet's saved plan. For Parquet, heads and counts are checked here, rows when a plan is read.

    Raises:
        SavedPlanError: it can't be executed, or is the plan of one cluster.
        MissingPartError: it is Parquet, and pyarrow is not installed.
    """
    return _fleet_in(open_plans(path))


def read_one(path: Path, name: str) -> Plan:
    """Read one cluster's plan from a fleet's, or a plan of only that cluster (its id is checked on connecting).

    Raises:
        SavedPlanError: there is no executable plan for the cluster.
        MissingPartError: it is Parquet, and pyarrow is not installed.
    """
    file = open_plans(path)
    if file.head.get("format") != FLEET_FORMAT:
        return plan_in(file)
    saved = _fleet_in(file)
    if name in saved.failures:
        raise SavedPlanError(f"{path} has no plan for {name}: {saved.failures[name]}")
    if name not in saved.plans:
        raise SavedPlanError(f"{path} has no plan for {name}, but for {', '.join(saved.plans) or 'no cluster'}")
    return saved.plans[name]()


def read_any(path: Path) -> Plan | FleetPlan:
    """Read a saved plan of one cluster or of a fleet, to show it. A fleet's clusters that failed come last.

    Raises:
        SavedPlanError: it can't be read.
        MissingPartError: it is Parquet, and pyarrow is not installed.
    """
    file = open_plans(path)
    if file.head.get("format") != FLEET_FORMAT:
        return plan_in(file)
    saved = _fleet_in(file)
    plans = {name: give() for name, give in saved.plans.items()}
    failures = {name: Failure(text) for name, text in saved.failures.items()}
    created_ms = max((one.created_at_ms for one in plans.values()), default=0)
    about = checked(_FleetHead, file.head, path).fleet
    return FleetPlan(created_ms, about.source, about.digest, {**plans, **failures})


def _fleet_in(file: PlanFile) -> SavedFleet:
    path, found = file.path, file.head.get("format")
    if found == FORMAT:
        raise SavedPlanError(f"{path} is the plan of one cluster: say which of the fleet with --cluster NAME")
    if found != FLEET_FORMAT:
        raise not_a_plan(path, found, FORMAT, FLEET_FORMAT)
    failures: dict[str, str] = {}
    entries: dict[str, Entry] = {}
    for number, one in enumerate(checked(_Fleet, file.head, path).clusters):
        place = f"clusters.{number}"
        cluster = checked(_Cluster, one, path, place)
        if cluster.name in failures or cluster.name in entries:
            raise SavedPlanError(f"{path}: cluster {cluster.name} appears twice")
        if cluster.error is not None:
            failures[cluster.name] = cluster.error
        elif cluster.format != FORMAT:
            raise SavedPlanError(f"{path}: {place} has format {cluster.format!r}; this kretain carries out {FORMAT}")
        else:
            entries[cluster.name] = Entry(cluster.name, place, one)
    return SavedFleet(path, failures, file.plans(entries.values()))
