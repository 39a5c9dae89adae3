"""``kretain history``."""

from __future__ import annotations

from typing import Annotated

import typer

from kretain.exits import Exit
from kretain.options import COMMON, Common, Output, command, option

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(app)
def history(
    common: Common,
    run: Annotated[str | None, option("--run", metavar="ID", help="One run, partition by partition.")] = None,
    output: Annotated[Output, option("--output", "-o", panel=COMMON, help="How to print it.")] = Output.table,
) -> Exit:
    """Past trims, from the audit log of this machine's state directory. Needs no cluster.

    [bold]Examples[/bold]

      kretain history

      kretain history --run 20261121T030000Z-3f9a -o json
    """
    from kretain.config import resolve
    from kretain.render.history import print_run, print_runs
    from retention_cli.state.history import find_run, read_history

    settings = resolve(common, policy_counts=False)
    past = read_history(settings.state_dir)
    if run is None:
        print_runs(past, output)
    else:
        print_run(find_run(past, run), output)
    return Exit.DONE
