"""``kretain plan``, ``show`` and ``approve``: plans, new and saved."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kretain.errors import Exit, UsageError, tell, warn
from kretain.flows.confirm import must_confirm
from kretain.flows.fleet import Fleet, FleetFlags, chosen, plan_fleet
from kretain.flows.spark import SharedSpark, planner
from kretain.options.common import AllPartitions, Common, PlanOutputOption, argument, now_ms, option, single_command
from kretain.options.plans import (
    InventoryOption,
    PartedTopics,
    PlanFlags,
    RuleFlags,
    SparkFlags,
    check_one,
    selection_of,
    topic_arguments,
)
from retention_cli.core.units import count, format_age, format_time

if TYPE_CHECKING:  # importing it is slow, and --help must be fast
    from retention_cli.plan.make import PlanInputs


@single_command
def plan(
    common: Common,
    flags: RuleFlags,
    clusters: FleetFlags,
    topics: PartedTopics = None,
    how: PlanFlags = PlanFlags(),  # noqa: B008  (a frozen value)
    spark: SparkFlags = SparkFlags(),  # noqa: B008  (a frozen value)
) -> Exit:
    """Decide what may be trimmed, per partition, and show it. Changes nothing.

    Examples:
      kretain plan -b localhost:9092 'orders.*' --consumed-after 3d

      kretain plan -p policy.yaml orders:3 orders:4

      kretain plan -p policy.yaml --out plan.json

      kretain plan -p policy.yaml --evidence

      kretain plan --fleet fleet.yaml --out plan.parquet
    """
    from kretain.flows.plans import named_alone, once_a_day, plan_now, save_plan, signed
    from kretain.render.plan import print_plan
    from retention_cli.core.commands import kretain

    named = topic_arguments(topics)
    one_off = flags.for_topics(named.topics)
    settings = chosen(common, clusters)
    if how.evidence and (spark.spark or isinstance(settings, Fleet)):
        raise UsageError("--evidence records a plan that this process makes of one cluster: omit --spark and --fleet")
    if isinstance(settings, Fleet):
        check_one(how.inventory)
        named.check_one_cluster()
        return plan_fleet(settings, named.topics, one_off, spark, how, quiet=common.quiet)
    shared = SharedSpark(spark)
    selection = selection_of(settings.policy, named.topics, one_off, named.partitions)
    given = InventoryOption(how.inventory, selection.policy)
    engine = planner(shared, given)
    with shared, settings.reader() as reader, common.progress() as progress:
        memories = settings.memories(reader, selection.policy.state)

        def record(inputs: PlanInputs, at_ms: int) -> None:
            from retention_cli.trim.journal import record_plan

            url, has_inventory = selection.policy.audit.evidence, given.view is not None
            run = record_plan(inputs, reader, at_ms, settings.state_dir, url, inventory=has_inventory)
            common.warn(f"recorded as {run}, for kretain replay, explain --run and verify")

        made = plan_now(settings, reader, selection, engine, memories, progress, record if how.evidence else None)
    made = signed(named_alone(settings, made, selection), how.key)
    if how.out is not None:
        save_plan(made, how.out)
        if not common.quiet:
            also = " and one-off rules" if made.flags else ""
            warn(f"saved in {how.out}; to carry it out, with the same policy{also}:")
            tell(f"  {kretain('trim', '--plan', str(how.out))}")
    every = how.all_rows or how.output == "markdown"
    with (
        contextlib.nullcontext(lambda _text: True)
        if every
        else once_a_day(settings.state_dir, made.cluster_id, now_ms()) as is_new
    ):
        common.warn(*(one for one in made.notes if not common.quiet and is_new(one.text)))
        print_plan(made, how.output, every_row=how.all_rows, is_new=is_new)
    return how.code_of(made.totals, short=any(one.short_bytes for one in made.disks))


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
    elif output == "delete-records":
        raise UsageError("-o delete-records is for one cluster: name it with --cluster NAME")
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
