"""``kretain spark pack``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kretain.errors import Exit
from kretain.options.common import Common, command

app = typer.Typer(rich_markup_mode="rich", add_completion=False, no_args_is_help=True, help="What --spark needs.")


@app.callback()
def spark() -> None:
    """What --spark needs on the machines that it runs on."""


@command(app)
def pack(
    common: Common,
    target: Annotated[Path, typer.Argument(metavar="FILE.tar.gz", help="The archive to write.")],
) -> Exit:
    """Build an archive of what executors need, native parts included, to ship with spark.archives.

    Executors need the same Python version at the same path as this machine. PySpark itself is not in it.

    [bold]Examples[/bold]

      kretain spark pack kretain-env.tar.gz
    """
    from kretain.render.kit.progress import shown
    from kretain.render.kit.screen import warn
    from retention_cli.engines.spark.pack import pack as build

    with shown(quiet=common.quiet) as progress:
        build(target, progress)
    if not common.quiet:
        warn(f"wrote {target}: ship it with --spark-conf spark.archives={target}#environment")
    return Exit.DONE
