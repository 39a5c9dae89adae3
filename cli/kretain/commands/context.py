"""``kretain context list``, ``show``, ``use``, ``add`` and ``remove``."""

from __future__ import annotations

from typing import Annotated

from kretain.completion.complete import complete_contexts
from kretain.options.common import Common, OutputOption, argument, command, new_app, option

app = new_app("List, add and remove the clusters in config.yaml; choose the default.")

Name = Annotated[str, argument(metavar="NAME", help="The context.", autocompletion=complete_contexts)]
DryRun = Annotated[bool, option("--dry-run", help="Say what would change; write nothing.")]


@command(app, name="list")
def list_all(common: Common, output: OutputOption = "table") -> None:
    """List the contexts in config.yaml. Needs no cluster.

    Examples:
      kretain context list

      kretain context list -o json
    """
    from kretain.config import config_path, contexts, default_context
    from kretain.render.setup import print_contexts

    del common
    print_contexts(config_path(), contexts(), default_context(), output)


@command(app)
def show(
    common: Common,
    name: Annotated[
        str | None,
        argument(metavar="NAME", help="The context. Default: the default context.", autocompletion=complete_contexts),
    ] = None,
    output: OutputOption = "table",
) -> None:
    """Show what a context sets, without its secrets. Needs no cluster.

    Examples:
      kretain context show prod
    """
    from kretain.config import config_path, context_of
    from kretain.render.setup import print_context

    entry, where = context_of(name or common.context)
    print_context(config_path(), where.partition(" ")[2], entry, output)


@command(app)
def use(common: Common, name: Name) -> None:
    """Make a context the default in config.yaml.

    Examples:
      kretain context use staging
    """
    from kretain.config import config_path
    from kretain.flows.config_file import use_context

    use_context(name)
    common.warn(f"{name} is the default context now ({config_path()})")


@command(app)
def add(
    common: Common,
    name: Annotated[str, argument(metavar="NAME", help="The new context.")],
    *,
    dry_run: DryRun = False,
) -> None:
    """Add a cluster to config.yaml: -b, -c, -p, --state-dir and --timeout.

    Keeps comments and order. The first context becomes the default. Needs no cluster. Exits with 1 if NAME exists.

    Examples:
      kretain context add lab -b localhost:9092

      kretain context add prod -b broker-1:9092 -c prod.properties -p prod.yaml

      kretain context add lab -b localhost:9092 --dry-run
    """
    from kretain.config import config_path
    from kretain.flows.config_file import add_context, entry_of

    add_context(name, entry_of(common), dry_run=dry_run)
    if dry_run:
        common.warn(f"{name} would be added to {config_path()}; nothing was written")
    else:
        common.warn(f"{name} is added to {config_path()}; to check it: kretain doctor --context {name}")


@command(app)
def remove(common: Common, name: Name, *, dry_run: DryRun = False) -> None:
    """Remove a cluster from config.yaml. Keeps its files and its ledger.

    Examples:
      kretain context remove lab
    """
    from kretain.config import config_path
    from kretain.flows.config_file import remove_context

    was_default = remove_context(name, dry_run=dry_run)
    if dry_run:
        which = ", the default context," if was_default else ""
        common.warn(f"{name}{which} would be removed from {config_path()}; nothing was written")
        return
    hint = "; there is no default context now: kretain context use NAME" if was_default else ""
    common.warn(f"{name} is removed from {config_path()}{hint}")
