"""``kretain offsets``."""

from __future__ import annotations

from typing import Annotated, Literal

from kretain.flows.fleet import each_cluster
from kretain.options import rules
from kretain.options.common import Common, OutputOption, now_ms, option, single_command
from kretain.options.rules import GroupsOption, Topics


@single_command
@each_cluster
def offsets(
    common: Common,
    topics: Topics = None,
    groups: Annotated[bool, option("--groups", help="Show each group's offset, not only the smallest.")] = False,
    group: GroupsOption = None,
    unread: Annotated[
        bool,
        option(
            "--unread",
            help="Show unread records per consumer and topic; with --groups per partition.",
        ),
    ] = False,
    output: OutputOption = "table",
    all_rows: Annotated[bool, option("--all", help="Show all rows.")] = False,
) -> None:
    """Show where consumers stand: each partition's floor, who sets it, and the lag.

    The floor is the smallest committed offset that counts. --unread shows the records and bytes that each consumer has
    not read, and since when at least, including groups that are gone and still count. Without a policy all groups count
    except console-consumer-*.

    Examples:
      kretain offsets -b localhost:9092 'orders.*'

      kretain offsets -p policy.yaml --groups -o csv

      kretain offsets -b localhost:9092 --group billing

      kretain offsets -p policy.yaml --unread
    """
    from kretain.config import resolve
    from kretain.render.consumers import print_positions
    from retention_cli.reports.offsets import read_positions

    settings = resolve(common)
    chosen = rules.selection_or_all(settings.policy, topics)
    now = now_ms()
    patterns = group or (("*",) if groups or unread else ())
    each: Literal["topics", "partitions"] | None = None if not unread else "partitions" if groups else "topics"
    with settings.reader() as reader:
        memories = settings.memories(reader, chosen.policy.state, will_save=False)
        with common.progress() as progress:
            positions = read_positions(
                reader, chosen, now, groups=patterns, unread=each, memories=memories, progress=progress
            )
        common.warn(*memories.notes)
        print_positions(positions, output, each, of_groups=bool(patterns), every_row=all_rows)
