"""The saved plan of a fleet, JSON or Parquet, validated like one cluster's (:mod:`retention_cli.plan.saved`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from retention_cli.engines.fleet.plan import Failure, FleetPlan
from retention_cli.plan.load import read_plan
from retention_cli.plan.saved import (
    HeadModel,
    PlanModel,
    SavedPlanError,
    StrictModel,
    checked,
    is_parquet,
    json_in,
    plan_of,
    plan_with,
    read_bytes,
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
    plans: Mapping[str, Callable[[], Plan]]


def write_fleet(path: Path, fleet: FleetPlan) -> None:
    """Write a fleet's plan as a Parquet file, sorted by cluster id.

    Raises:
        MissingPartError: pyarrow is not installed.
        OSError: it can't be written.
    """
    from retention_cli.engines.fleet.plan import fleet_heads
    from retention_cli.plan.parquet import write_rows

    plans = sorted(fleet.plans.values(), key=lambda one: one.cluster_id)
    write_rows(path, fleet_heads(fleet), ((one.cluster_id, one.decisions) for one in plans))


def read_fleet(path: Path) -> SavedFleet:
    """Open a fleet's saved plan. For Parquet, heads and counts are checked here, rows when a plan is read.

    Raises:
        SavedPlanError: it can't be executed, or is the plan of one cluster.
        MissingPartError: it is Parquet, and pyarrow is not installed.
    """
    if is_parquet(path):
        return _read_parquet(path)
    content = json_in(read_bytes(path), path)
    failures: dict[str, str] = {}
    plans: dict[str, Callable[[], Plan]] = {}
    ids: dict[str, str] = {}
    for place, name, error, one in _clusters(content, path):
        if error is not None:
            failures[name] = error
        else:
            model = checked(PlanModel, one, path, place)
            _once(ids, model, name, path)
            made = plan_of(model, path)
            plans[name] = partial(_same, made)
    return SavedFleet(path, failures, plans)


def read_one(path: Path, name: str) -> Plan:
    """Read one cluster's plan from a fleet's, or a plan of only that cluster (its id is checked on connecting).

    Raises:
        SavedPlanError: there is no executable plan for the cluster.
        MissingPartError: it is Parquet, and pyarrow is not installed.
    """
    if _format(path) != FLEET_FORMAT:
        return read_plan(path)
    saved = read_fleet(path)
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
    head = _head(path)
    if head.get("format") != FLEET_FORMAT:
        return read_plan(path)
    saved = read_fleet(path)
    plans = {name: give() for name, give in saved.plans.items()}
    failures = {name: Failure(text) for name, text in saved.failures.items()}
    created_ms = max((one.created_at_ms for one in plans.values()), default=0)
    about = checked(_FleetHead, head, path).fleet
    return FleetPlan(created_ms, about.source, about.digest, {**plans, **failures})


def _format(path: Path) -> object:
    return _head(path).get("format")


def _head(path: Path) -> Mapping[str, Any]:
    if is_parquet(path):
        from retention_cli.plan.parquet import ParquetRows

        return ParquetRows(path).head
    return json_in(read_bytes(path), path)


def _read_parquet(path: Path) -> SavedFleet:
    from retention_cli.plan.parquet import CountedHead, ParquetRows

    parts = ParquetRows(path)
    failures: dict[str, str] = {}
    heads: dict[str, CountedHead] = {}
    ids: dict[str, str] = {}
    for place, name, error, one in _clusters(parts.head, path):
        if error is not None:
            failures[name] = error
        else:
            heads[name] = checked(CountedHead, one, path, place)
            _once(ids, heads[name], name, path)
    parts.check_counts({head.cluster.id: head.totals.partitions for head in heads.values()})

    def plan(head: CountedHead) -> Plan:
        return plan_with(head, parts.rows(head.cluster.id, head.totals.partitions), path)

    return SavedFleet(path, failures, {name: partial(plan, head) for name, head in heads.items()})


def _clusters(content: Mapping[str, Any], path: Path) -> list[tuple[str, str, str | None, dict[str, Any]]]:
    """Return each cluster's place in the JSON, its name, its error (None: it was planned) and its whole entry."""
    found = content.get("format")
    if found == FORMAT:
        raise SavedPlanError(f"{path} is the plan of one cluster: say which of the fleet with --cluster NAME")
    if found != FLEET_FORMAT:
        raise SavedPlanError(f"{path} has format {found!r}; this kretain carries out {FORMAT} and {FLEET_FORMAT}")
    clusters = []
    names: set[str] = set()
    for number, one in enumerate(checked(_Fleet, content, path).clusters):
        place = f"clusters.{number}"
        cluster = checked(_Cluster, one, path, place)
        if cluster.name in names:
            raise SavedPlanError(f"{path}: cluster {cluster.name} stands there twice")
        names.add(cluster.name)
        if cluster.error is None and cluster.format != FORMAT:
            raise SavedPlanError(f"{path}: {place} has format {cluster.format!r}; this kretain carries out {FORMAT}")
        clusters.append((place, cluster.name, cluster.error, one))
    return clusters


def _once(ids: dict[str, str], head: HeadModel, name: str, path: Path) -> None:
    other = ids.setdefault(head.cluster.id, name)
    if other != name:
        raise SavedPlanError(f"{path}: {other} and {name} are one cluster, {head.cluster.id}")


def _same(plan: Plan) -> Plan:
    return plan
