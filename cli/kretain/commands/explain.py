"""``kretain explain``."""

from __future__ import annotations

from typing import Annotated

import typer

from kretain.completion.complete import complete_partitions
from kretain.errors import Exit, UsageError
from kretain.flows.each import each_cluster
from kretain.flows.inventory import Inventories, InventoryOption
from kretain.options import rules
from kretain.options.common import AllPartitions, Common, OutputOption, now_ms, single_command
from kretain.options.rules import RuleFlags


@single_command
@each_cluster
def explain(
    common: Common,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC[:PARTITION]", help="A topic, or one of its partitions.", autocompletion=complete_partitions
        ),
    ],
    flags: RuleFlags,
    inventory: Inventories = None,
    output: OutputOption = "table",
    all_rows: AllPartitions = False,
) -> Exit:
    """Draw a partition's log with the floor and each rule's bound, and say why.

    Examples:
      kretain explain -p policy.yaml orders:3

      kretain explain -b localhost:9092 orders --consumed-after 3d
    """
    from kretain.config import resolve
    from kretain.render.explain import print_explained
    from retention_cli.reports import explain as explaining

    name, partition = _parse(topic)
    settings = resolve(common)
    chosen = rules.selection(settings.policy, [name], flags.for_topics([name]))
    with settings.reader() as reader, common.progress() as progress:
        memories = settings.memories(reader, chosen.policy.state)
        found = explaining.explain(
            reader,
            chosen,
            name,
            partition,
            now_ms(),
            memories,
            progress,
            InventoryOption(inventory, chosen.policy).view(),
        )
        memories.save(now_ms())
    common.warn(*memories.notes)
    print_explained(found, output, every_row=all_rows)
    return Exit.DONE


def _parse(text: str) -> tuple[str, int | None]:
    name, partition = rules.topic_partition(text)
    if not name or any(sign in name for sign in "*?["):
        raise UsageError(f"{text!r}: explain wants one topic, in full")
    return name, partition
