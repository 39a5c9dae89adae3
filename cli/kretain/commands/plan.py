"""``kretain plan``."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from kretain.errors import Exit, UsageError, tell, warn
from kretain.flows.fleet import Fleet, FleetFlags, chosen, plan_fleet
from kretain.flows.spark import SharedSpark, planner
from kretain.options import rules
from kretain.options.common import Common, now_ms, single_command
from kretain.options.plans import InventoryOption, PlanFlags, SparkFlags, check_one
from kretain.options.rules import PartedTopics, RuleFlags

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

    named = rules.topic_arguments(topics)
    one_off = flags.for_topics(named.topics)
    settings = chosen(common, clusters)
    if how.evidence and (spark.spark or isinstance(settings, Fleet)):
        raise UsageError("--evidence records a plan that this process makes of one cluster: omit --spark and --fleet")
    if isinstance(settings, Fleet):
        check_one(how.inventory)
        named.check_one_cluster()
        return plan_fleet(settings, named.topics, one_off, spark, how, quiet=common.quiet)
    shared = SharedSpark(spark)
    selection = rules.selection(settings.policy, named.topics, one_off, named.partitions)
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
        nullcontext(lambda _text: True)
        if every
        else once_a_day(settings.state_dir, made.cluster_id, now_ms()) as is_new
    ):
        common.warn(*(one for one in made.notes if not common.quiet and is_new(one.text)))
        print_plan(made, how.output, every_row=how.all_rows, is_new=is_new)
    return how.code_of(made.totals, short=any(one.short_bytes for one in made.disks))
