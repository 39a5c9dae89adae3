"""``kretain ledger show`` and ``prune``."""

from __future__ import annotations

from typing import Annotated

import typer

from kretain.completion.complete import complete_topics
from kretain.errors import Exit
from kretain.flows.trims import confirm_forgetting
from kretain.options.common import COMMON, Common, Output, command, duration_ms, now_ms, option

app = typer.Typer(
    rich_markup_mode="rich",
    add_completion=False,
    no_args_is_help=True,
    help="What is remembered of a cluster, and pruning it.",
)


@command(app)
def show(
    common: Common,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic's name.", autocompletion=complete_topics)],
    output: Annotated[Output, option("--output", "-o", panel=COMMON, help="How to print it.")] = "table",
) -> Exit:
    """Show what is remembered of a topic: samples, the largest event time, how far records were read, groups seen.

    The policy file says where it is remembered (state: local or cluster); without one it is this machine.

    [bold]Examples[/bold]

      kretain ledger show orders -b localhost:9092

      kretain ledger show orders -p policy.yaml -o json
    """
    from kretain.config import resolve
    from kretain.render.consumers import print_ledger
    from retention_cli.reports import ledger as ledger_view

    settings = resolve(common)
    with settings.reader() as reader:
        memories = settings.memories(reader, settings.state_kind(), will_save=False)
        view = ledger_view.show(reader, memories, topic)
        lost = memories(view.cluster_id).lost
    common.warn(*memories.notes, *(lost.reasons if lost is not None else ()))
    print_ledger(view, output)
    return Exit.DONE


@command(app)
def prune(
    common: Common,
    older_than: Annotated[
        int,
        option(
            "--older-than",
            metavar="DURATION",
            parser=duration_ms,
            help="Forget what was last seen longer ago than this.",
            show_default=False,
        ),
    ],
    dry_run: Annotated[bool, option("--dry-run", help="Say what would be forgotten, and forget nothing.")] = False,
    yes: Annotated[bool, option("--yes", "-y", help="Don't ask, in a terminal.")] = False,
) -> Exit:
    """Forget topics that are gone, and groups, that were last seen long ago. A topic that is there is kept.

    A forgotten group no longer counts (F6); for state: cluster it is forgotten everywhere. In a terminal it asks.

    [bold]Examples[/bold]

      kretain ledger prune --older-than 90d -b localhost:9092

      kretain ledger prune --older-than 90d -p policy.yaml --context prod
    """
    from kretain.config import resolve
    from kretain.render.output import count, say
    from retention_cli.reports import ledger as ledger_view

    settings = resolve(common)
    with settings.reader() as reader:
        memories = settings.memories(reader, settings.state_kind())
        before_ms = now_ms() - older_than
        metadata = reader.metadata()
        topics, groups = ledger_view.old(memories.ledger(metadata.cluster_id), metadata, before_ms)
        what = f"{count(topics, 'topic')} that {'is' if topics == 1 else 'are'} gone, {count(groups, 'group')}"
        if dry_run:
            say(f"Would be forgotten: {what}.")
            return Exit.DONE
        if topics or groups:
            confirm_forgetting(f"Forget {what}? A group that is forgotten counts no longer (F6).", yes=yes)
        topics, groups = ledger_view.prune(reader, memories, before_ms)
    say(f"Forgotten: {count(topics, 'topic')} that {'is' if topics == 1 else 'are'} gone, {count(groups, 'group')}.")
    return Exit.DONE
