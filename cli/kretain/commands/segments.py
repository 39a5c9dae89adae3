"""``kretain segments scan`` and ``show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kretain.errors import Exit, tell
from kretain.options.common import COMMON, Common, Output, command, now_ms, option
from kretain.options.rules import patterns

app = typer.Typer(
    rich_markup_mode="rich",
    add_completion=False,
    no_args_is_help=True,
    help="An inventory of what lies on a broker's disks, as Parquet.",
)

OutputOption = Annotated[Output, option("--output", "-o", panel=COMMON, help="How to print it.")]


@command(app)
def scan(
    common: Common,
    dirs: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", help="A broker's log dirs, all of them (log.dirs).", show_default=False),
    ],
    out: Annotated[
        Path | None,
        option("--out", of="segments scan", metavar="FILE", help="Write the inventory there, a row per segment."),
    ] = None,
    broker_id: Annotated[
        int | None,
        option("--broker-id", metavar="N", min=0, help="Whose dirs they are, where no meta.properties says so."),
    ] = None,
    tiered: Annotated[
        list[str] | None,
        option(
            "--tiered",
            metavar="PATTERN",
            callback=patterns,
            help="Topics with remote storage: names, globs or re:^…$; the others have none. A log dir doesn't tell.",
        ),
    ] = None,
    no_tiered: Annotated[bool, option("--no-tiered", help="No topic has remote storage.")] = False,
    output: OutputOption = "table",
) -> Exit:
    """Look through a broker's log dirs, on its machine, and write down every segment.

    It reads and never writes there; the broker may be running. What can't be read is unknown, and named: exit 5.

    [bold]Examples[/bold]

      kretain segments scan /var/lib/kafka/data --out broker-1.parquet

      kretain segments scan /disk1/kafka /disk2/kafka --out broker-1.parquet --tiered 'archive.*'

      kretain segments scan /var/lib/kafka/data -o json
    """
    from kretain.errors import UsageError
    from kretain.render.disks import print_scan, scan_notes
    from retention_cli.disks.inventory.scan import scan as scan_dirs
    from retention_cli.policy.model import matches

    if tiered and no_tiered:
        raise UsageError("--tiered and --no-tiered contradict each other")

    def is_tiered(topic: str) -> bool:
        return matches(tiered or (), topic)

    with common.progress() as progress:
        report = scan_dirs(
            [str(one) for one in dirs],
            None if out is None else str(out),
            now_ms=now_ms(),
            broker=broker_id,
            tiered=is_tiered if tiered or no_tiered else None,
            progress=progress,
        )
    print_scan(report, output, None if out is None else str(out))
    common.warn(*scan_notes(report))
    return Exit.PARTIAL if report.incomplete else Exit.DONE


@command(app)
def show(
    common: Common,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Inventories, or folders of them.", show_default=False)
    ],
    output: OutputOption = "table",
) -> Exit:
    """Check inventories, and show what is in them: dirs, and the topics that take most.

    They must be of one cluster. What is unknown is named: exit 5.

    [bold]Examples[/bold]

      kretain segments show broker-1.parquet broker-2.parquet broker-3.parquet

      kretain segments show inventories/ -o json
    """
    from kretain.render.disks import inventory_notes, print_inventory
    from retention_cli.disks.inventory.read import read_inventory

    inventory = read_inventory(files)
    print_inventory(inventory, output, now_ms())
    common.warn(*inventory_notes(inventory))
    for problem in inventory.unread:
        tell(f"kretain: {problem}")
    return Exit.PARTIAL if inventory.incomplete or inventory.unread else Exit.DONE
