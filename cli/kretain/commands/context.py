"""``kretain context list``, ``show`` and ``use``."""

from __future__ import annotations

from typing import Annotated

import typer

from kretain.completion.complete import complete_contexts
from kretain.completion.quick import QuickGroup
from kretain.errors import Exit
from kretain.options.common import COMMON, Common, Output, command, option

app = typer.Typer(
    cls=QuickGroup,
    rich_markup_mode="rich",
    add_completion=False,
    no_args_is_help=True,
    help="The clusters of the configuration file, and which one is the default.",
)

OutputOption = Annotated[Output, option("--output", "-o", panel=COMMON, help="How to print it.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The context.", autocompletion=complete_contexts)]


@command(app, name="list")
def list_all(common: Common, output: OutputOption = "table") -> Exit:
    """List the contexts of the configuration file. Needs no cluster.

    [bold]Examples[/bold]

      kretain context list

      kretain context list -o json
    """
    from kretain.config import config_path, contexts, default_context
    from kretain.render.setup import print_contexts

    del common
    print_contexts(config_path(), contexts(), default_context(), output)
    return Exit.DONE


@command(app)
def show(
    common: Common,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="The context; by default, the default one.", autocompletion=complete_contexts
        ),
    ] = None,
    output: OutputOption = "table",
) -> Exit:
    """Show what a context sets, without its secrets. Needs no cluster.

    [bold]Examples[/bold]

      kretain context show prod
    """
    from kretain.config import config_path, context_of
    from kretain.render.setup import print_context

    entry, where = context_of(name or common.context)
    print_context(config_path(), where.partition(" ")[2], entry, output)
    return Exit.DONE


@command(app)
def use(common: Common, name: Name) -> Exit:
    """Make a context the default one, in the configuration file. Nothing else in the file changes.

    [bold]Examples[/bold]

      kretain context use staging
    """
    from kretain.config import config_path, use_context

    use_context(name)
    common.warn(f"{name} is the default context now ({config_path()})")
    return Exit.DONE
