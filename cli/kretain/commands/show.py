"""``kretain show`` and ``approve``: saved plans."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated

from kretain.flows.confirm import must_confirm
from kretain.options.common import AllPartitions, Common, PlanOutputOption, argument, now_ms, option, single_command
from retention_cli.core.units import count, format_age, format_time


@single_command
def show(
    common: Common,
    file: Annotated[Path, argument(metavar="FILE", help="A saved plan, .json or .parquet.")],
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

    plan = read_any(file) if cluster is None else read_one(file, cluster)
    if isinstance(plan, Plan):
        made = f"{format_time(plan.created_at_ms)} ({format_age(max(0, now_ms() - plan.created_at_ms))} ago)"
        common.warn(f"{file} was made {made} for cluster {plan.cluster_id} ({plan.bootstrap}), by {plan.policy_source}")
    print_plan(plan, output, every_row=all_rows)


@single_command
def approve(
    common: Common,
    file: Annotated[Path, argument(metavar="FILE", help="A saved plan, .json or .parquet.")],
    key: Annotated[Path, option("--key", metavar="FILE", help="Sign with this private key (ed25519, PEM).")],
    out: Annotated[
        Path | None,
        option("--out", of="approve", metavar="FILE", help="Write the approval here. Default: FILE.approval."),
    ] = None,
    yes: Annotated[bool, option("--yes", "-y", help="Skip the question. Required without a terminal.")] = False,
    all_rows: AllPartitions = False,
) -> None:
    """Approve a saved plan, as a second person. Needs no cluster.

    Shows the plan, asks, and signs it. If the policy sets approve, a large trim needs such an approval.

    Examples:
      kretain approve plan.json --key ~/.config/kretain/me.pem
    """
    from kretain.render.plan import print_plan
    from retention_cli.core.files import write_atomic
    from retention_cli.core.signing import private_key_at
    from retention_cli.engines.fleet.saved import read_any
    from retention_cli.plan import approval
    from retention_cli.plan.value import Plan

    mine, plan = private_key_at(key), read_any(file)
    made = approval.approve([plan] if isinstance(plan, Plan) else plan.plans.values(), mine, now_ms())
    with contextlib.redirect_stdout(sys.stderr):
        print_plan(plan, "table", every_row=all_rows)
    print(file=sys.stderr)
    totals = plan.totals
    must_confirm(
        lambda: f"Approve deleting {count(totals.records, 'record')}, of which {totals.unconsumed:,} unread?",
        "approve",
        "nothing was approved",
        yes=yes,
    )
    to = Path(f"{str(file).rstrip('/')}.approval") if out is None else out
    write_atomic(to, json.dumps(made.as_json(), indent=1) + "\n")
    common.warn(f"approved by key {made.signed.key}: {to}")
