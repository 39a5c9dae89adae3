"""``kretain disk``."""

from __future__ import annotations

from kretain.errors import Exit
from kretain.flows.fleet import each_cluster
from kretain.flows.inventory import InventoryOption
from kretain.flows.spark import SharedSpark, planner
from kretain.options import rules
from kretain.options.common import Common, OutputOption, now_ms, single_command
from kretain.options.plans import Inventories, SparkFlags
from retention_cli.core.model import Code


@single_command
@each_cluster
def disk(
    common: Common,
    inventory: Inventories = None,
    output: OutputOption = "table",
    spark: SparkFlags = SparkFlags(),  # noqa: B008  (a frozen value)
) -> Exit:
    """Show how full each disk is, its ceiling, and what the plan would free.

    Changes nothing. Plans if the policy has rules for disks; otherwise shows what brokers report. Exits with 5 if a
    broker with replicas does not answer.

    Examples:
      kretain disk -b localhost:9092

      kretain disk -p policy.yaml --inventory inventory/

      kretain disk -p policy.yaml --inventory /mnt/inventory --spark --master spark://head:7077

      kretain disk -p policy.yaml -o json | jq '.disks[] | select(.short_bytes > 0)'
    """
    from kretain.config import resolve
    from kretain.render.disks import print_disks
    from retention_cli.disks.devices import look
    from retention_cli.plan.make import PlanJob
    from retention_cli.policy.settings import DiskRules, Limits
    from retention_cli.trim.history import past_day

    shared = SharedSpark(spark)
    settings = resolve(common)
    chosen = None if settings.policy is None else rules.selection(settings.policy)
    now = now_ms()
    with shared, settings.reader() as reader, common.progress() as progress:
        cluster_id = reader.metadata([]).cluster_id
        if chosen is not None and chosen.policy.disks.percent is not None:
            job = PlanJob(
                reader,
                chosen,
                now,
                lambda cluster: past_day(settings.state_dir, cluster, now, Limits()),
                settings.memories(reader, chosen.policy.state),
                progress=progress,
            )
            made = planner(shared, InventoryOption(inventory, chosen.policy)).plan(job)
            outcomes, notes = made.disks, [note for note in made.notes if note.code in (Code.R6, "disk", "inventory")]
        else:
            policy = None if chosen is None else chosen.policy
            memories = settings.memories(reader, "local" if policy is None else policy.state)
            outcomes, notes = look(reader, DiskRules() if policy is None else policy.disks, memories(cluster_id), now)
            memories.save(now)
            notes += memories.notes
    common.warn(*notes)
    print_disks(cluster_id, reader.settings.bootstrap, outcomes, output)
    return Exit.DONE if all(one.disk.dirs for one in outcomes) else Exit.PARTIAL
