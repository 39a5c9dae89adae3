"""``kretain groups``."""

from __future__ import annotations

from typing import Annotated

import typer

from kretain.exits import Exit
from kretain.options import COMMON, Common, Output, command, option

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(app)
def groups(
    common: Common,
    output: Annotated[Output, option("--output", "-o", panel=COMMON, help="How to print it.")] = Output.table,
) -> Exit:
    """The consumer groups of every protocol: which of them count, what they read, how far they are behind.

    With a policy file, its groups section says which count; else all do but console-consumer-*.

    [bold]Examples[/bold]

      kretain groups -b localhost:9092

      kretain groups -p policy.yaml -o json
    """
    from kretain.config import resolve
    from kretain.progress import shown
    from kretain.render.groups import print_groups
    from kretain.render.screen import warn
    from retention_cli.group_list import list_all
    from retention_cli.policy.settings import GroupRules

    settings = resolve(common)
    which = GroupRules()
    if settings.policy is not None:
        from retention_cli.policy.load import load_policy

        which = load_policy(settings.policy).groups
    with settings.reader() as reader, shown(quiet=common.quiet) as progress:
        found = list_all(reader, which, progress)
    if found.incomplete is not None:
        warn(f"the list is not whole, so every floor is unknown: {found.incomplete.text} ({found.incomplete.code})")
    print_groups(found, output)
    return Exit.DONE
