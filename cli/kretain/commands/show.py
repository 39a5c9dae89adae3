"""``kretain show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kretain.options.common import AllPartitions, Common, PlanOutputOption, option, single_command


@single_command
def show(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A saved plan, .json or .parquet.")],
    cluster: Annotated[
        str | None, option("--cluster", metavar="NAME", help="Show only this cluster of a fleet's plan.")
    ] = None,
    output: PlanOutputOption = "table",
    all_rows: AllPartitions = False,
) -> None:
    """Show a saved plan as plan showed it. Needs no cluster, and changes nothing.

    Examples:
      kretain show plan.json

      kretain show plan.parquet -o csv

      kretain show fleet.parquet --cluster eu
    """
    from kretain.render.plan import print_plan
    from retention_cli.engines.fleet.saved import read_any, read_one
    from retention_cli.plan.value import Plan

    del common
    plan = read_any(file) if cluster is None else read_one(file, cluster)
    if isinstance(plan, Plan):
        print_plan(plan, output, every_row=all_rows)
    else:
        from kretain.render.plan import print_fleet_plan

        print_fleet_plan(plan, output, every_row=all_rows)
