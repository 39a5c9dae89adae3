"""``kretain context list``, ``show`` and ``use``."""

from __future__ import annotations

from typing import Annotated

import typer

from kretain.completion.complete import complete_contexts
from kretain.errors import Exit
from kretain.options.common import Common, OutputOption, command, new_app

app = new_app("Show the clusters in config.yaml, and choose the default.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The context.", autocompletion=complete_contexts)]


@command(app, name="list")
def list_all(common: Common, output: OutputOption = "table") -> Exit:
    """List the contexts in config.yaml. Needs no cluster.

    Examples:
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
            metavar="NAME", help="The context. Default: the default context.", autocompletion=complete_contexts
        ),
    ] = None,
    output: OutputOption = "table",
) -> Exit:
    """Show what a context sets, without its secrets. Needs no cluster.

    Examples:
      kretain context show prod
    """
    from kretain.config import config_path, context_of
    from kretain.render.setup import print_context

    entry, where = context_of(name or common.context)
    print_context(config_path(), where.partition(" ")[2], entry, output)
    return Exit.DONE


@command(app)
def use(common: Common, name: Name) -> Exit:
    """Make a context the default in config.yaml.

    Examples:
      kretain context use staging
    """
    from kretain.config import config_path, use_context

    use_context(name)
    common.warn(f"{name} is the default context now ({config_path()})")
    return Exit.DONE
