"""``kretain plan``."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated

import typer

from kretain import rules
from kretain.exits import Exit, UsageError, worst
from kretain.inventory import Inventories, stock
from kretain.options import COMMON, Common, PlanOutput, command, option
from kretain.rules import RuleFlags, Topics

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(app)
def plan(
    common: Common,
    flags: RuleFlags,
    topics: Topics = None,
    out: Annotated[
        Path | None, option("--out", metavar="FILE", help="Save the plan as JSON, for kretain trim --plan FILE.")
    ] = None,
    inventory: Inventories = None,
    output: Annotated[PlanOutput, option("--output", "-o", panel=COMMON, help="How to print it.")] = PlanOutput.table,
    all_rows: Annotated[bool, option("--all", help="Every partition, however many there are.")] = False,
    detailed_exitcode: Annotated[
        bool, option("--detailed-exitcode", help="Leave with 3 where there is something to trim.")
    ] = False,
    fail_on_hold: Annotated[bool, option("--fail-on-hold", help="Leave with 4 where partitions are on hold.")] = False,
) -> Exit:
    """Decide what may go, partition by partition, and show it. Nothing is changed.

    [bold]Examples[/bold]

      kretain plan -b localhost:9092 'orders.*' --consumed-after 3d

      kretain plan -p policy.yaml --out plan.json

      kretain plan -p policy.yaml -o json | jq '.partitions[] | select(.action == "hold")'
    """
    from kretain.config import resolve
    from kretain.progress import shown
    from kretain.render.plan import print_plan
    from kretain.render.screen import warn
    from retention_cli.plan import plan_text
    from retention_cli.planning import make_plan
    from retention_cli.state.history import past_day

    if out is not None and out.suffix == ".parquet":
        raise UsageError("--out writes JSON: Parquet plans come with --spark, which this version does not have yet")
    settings = resolve(common)
    chosen = rules.selection(settings.policy, topics, flags.for_topics(topics))
    now_ms = time.time_ns() // 1_000_000
    with settings.reader() as reader, shown(quiet=common.quiet) as progress:
        made = make_plan(
            reader,
            chosen,
            now_ms,
            progress=progress,
            stock=stock(inventory),
            memories=settings.memories(reader, chosen.policy.state),
            past_day=lambda cluster: past_day(settings.state_dir, cluster, now_ms),
        )
    if not common.quiet:
        for note in made.notes:
            warn(note.text)
    if out is not None:
        from kretain.files import write_whole

        write_whole(out, plan_text(made))
        if not common.quiet:
            warn(f"saved in {out}; kretain trim --plan {shlex.quote(str(out))} carries it out, by the same policy")
    print_plan(made, output, every_row=all_rows)
    totals = made.totals
    held = totals.hold or any(one.short_bytes for one in made.disks)
    return worst(
        Exit.ON_HOLD if fail_on_hold and held else Exit.DONE,
        Exit.HAS_CHANGES if detailed_exitcode and totals.trim else Exit.DONE,
    )
