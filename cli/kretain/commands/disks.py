"""``kretain disk`` and ``segments``: how full disks are, and inventories of their segments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from kretain.config import resolve
from kretain.errors import Exit, UsageError, warn
from kretain.flows.fleet import each_cluster
from kretain.flows.spark import SharedSpark, planner
from kretain.options.common import Common, OutputOption, argument, command, new_app, now_ms, option, single_command
from kretain.options.plans import Inventories, InventoryOption, SparkFlags, patterns, selection_of
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

    Changes nothing. With disk rules in the policy it makes a plan; otherwise it shows what brokers report. Exits with 5
    if a broker with replicas does not answer.

    Examples:
      kretain disk -b localhost:9092

      kretain disk -p policy.yaml --inventory inventory/

      kretain disk -p policy.yaml --inventory /mnt/inventory --spark --master spark://head:7077

      kretain disk -p policy.yaml -o json | jq '.disks[] | select(.short_bytes > 0)'
    """
    from kretain.render.disks import print_disks
    from retention_cli.disks.devices import sample_disks
    from retention_cli.plan.make import PlanJob
    from retention_cli.policy.settings import Limits
    from retention_cli.trim.history import past_day

    shared = SharedSpark(spark)
    settings = resolve(common)
    chosen = None if settings.policy is None else selection_of(settings.policy)
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
            made = planner(shared, InventoryOption(inventory, chosen.policy))(job)
            outcomes, notes = made.disks, [note for note in made.notes if note.code in (Code.R6, "disk", "inventory")]
        else:
            policy = settings.load_or_default() if chosen is None else chosen.policy
            memories = settings.memories(reader, policy.state)
            outcomes, notes = sample_disks(reader, policy.disks, memories(cluster_id), now)
            memories.save(now)
            notes += memories.notes
    common.warn(*notes)
    print_disks(cluster_id, reader.settings.bootstrap, outcomes, output)
    return Exit.DONE if all(one.disk.dirs for one in outcomes) else Exit.PARTIAL


segments = new_app("Make and show inventories of the segments on brokers' disks.")


@command(segments)
def scan(
    common: Common,
    dirs: Annotated[
        list[Path],
        argument(metavar="DIR", help="All log dirs of a broker (log.dirs).", show_default=False),
    ],
    out: Annotated[
        Path | None,
        option("--out", of="segments scan", metavar="FILE", help="Write the inventory here, one row per segment."),
    ] = None,
    broker_id: Annotated[
        int | None,
        option("--broker-id", metavar="N", min=0, help="Set the broker's id if meta.properties is missing."),
    ] = None,
    tiered: Annotated[
        list[str] | None,
        option(
            "--tiered",
            metavar="PATTERN",
            callback=patterns,
            help="State which topics have remote storage. Repeatable.",
        ),
    ] = None,
    no_tiered: Annotated[bool, option("--no-tiered", help="State that no topic has remote storage.")] = False,
    output: OutputOption = "table",
) -> Exit:
    """Scan a broker's log dirs, on its machine, and list every segment.

    Only reads; the broker may be running. If it cannot read something, names it and exits with 5.

    Examples:
      kretain segments scan /var/lib/kafka/data --out broker-1.parquet

      kretain segments scan /disk1/kafka /disk2/kafka --out broker-1.parquet --tiered 'archive.*'

      kretain segments scan /var/lib/kafka/data -o json
    """
    from kretain.render.disks import print_scan, scan_notes
    from retention_cli.disks.inventory.scan import scan as scan_dirs
    from retention_cli.policy.model import matches

    if tiered and no_tiered:
        raise UsageError("--tiered and --no-tiered contradict each other")

    with common.progress() as progress:
        report = scan_dirs(
            [str(one) for one in dirs],
            None if out is None else str(out),
            now_ms=now_ms(),
            broker=broker_id,
            tiered=(lambda topic: matches(tiered or (), topic)) if tiered or no_tiered else None,
            progress=progress,
        )
    print_scan(report, output, None if out is None else str(out))
    common.warn(*scan_notes(report))
    return Exit.PARTIAL if report.incomplete else Exit.DONE


@command(segments)
def show(
    common: Common,
    files: Annotated[
        list[Path], argument(metavar="FILE", help="Inventories, or folders of inventories.", show_default=False)
    ],
    output: OutputOption = "table",
) -> Exit:
    """Check inventories of one cluster, and show their dirs and largest topics.

    Names what is unknown, and exits with 5.

    Examples:
      kretain segments show broker-1.parquet broker-2.parquet broker-3.parquet

      kretain segments show inventories/ -o json
    """
    from kretain.render.disks import inventory_notes, print_inventory
    from retention_cli.disks.inventory.read import read_inventory

    inventory = read_inventory(files)
    print_inventory(inventory, output, now_ms())
    common.warn(*inventory_notes(inventory))
    warn(*inventory.unread)
    return Exit.PARTIAL if inventory.incomplete or inventory.unread else Exit.DONE
