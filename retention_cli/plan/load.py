"""Read a saved plan of one cluster, in any format."""

from __future__ import annotations

from pathlib import Path

from retention_cli.plan.saved import is_parquet, json_in, plan_model, plan_of, read_bytes
from retention_cli.plan.value import Plan


def read_plan(path: Path) -> Plan:
    """Read a saved plan of one cluster, JSON or Parquet.

    Raises:
        SavedPlanError: it is unreadable or of another format, or has duplicate rows or impossible numbers; the text
            names the place.
        MissingPartError: it is Parquet, and pyarrow is not installed.
    """
    if is_parquet(path):
        from retention_cli.plan.parquet import read_parquet_plan

        return read_parquet_plan(path)
    return plan_of(plan_model(json_in(read_bytes(path), path), path), path)
