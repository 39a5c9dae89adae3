"""``kretain ledger show`` and ``prune``."""

from __future__ import annotations

from typing import Annotated

from kretain.completion.complete import complete_topics
from kretain.flows.trims import confirm_forgetting
from kretain.options.common import Common, OutputOption, argument, command, duration_ms, new_app, now_ms, option

app = new_app("Show and prune what kretain remembers of a cluster.")


@command(app)
def show(
    common: Common,
    topic: Annotated[str, argument(metavar="TOPIC", help="A topic's name.", autocompletion=complete_topics)],
    output: OutputOption = "table",
) -> None:
    """Show what kretain remembers of a topic: samples, event times and groups.

    The policy's state (local or cluster) says where; without a policy it is this machine.

    Examples:
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
    dry_run: Annotated[bool, option("--dry-run", help="Show what would be forgotten; forget nothing.")] = False,
    yes: Annotated[bool, option("--yes", "-y", help="Skip the question.")] = False,
    output: OutputOption = "table",
) -> None:
    """Forget groups, and topics that are gone, which were last seen long ago.

    A forgotten group no longer counts (F6). With state: cluster in the policy, all machines forget it.

    Examples:
      kretain ledger prune --older-than 90d -b localhost:9092

      kretain ledger prune --older-than 90d -p policy.yaml --context prod
    """
    from kretain.config import resolve
    from kretain.render.consumers import print_pruned
    from retention_cli.core.units import count
    from retention_cli.reports import ledger as ledger_view

    settings = resolve(common)
    with settings.reader() as reader:
        memories = settings.memories(reader, settings.state_kind())
        before_ms = now_ms() - older_than
        metadata = reader.metadata()
        topics, groups = ledger_view.old(memories.ledger(metadata.cluster_id), metadata, before_ms)
        if (topics or groups) and not dry_run:
            what = f"{count(topics, 'topic')} that {'is' if topics == 1 else 'are'} gone, {count(groups, 'group')}"
            confirm_forgetting(f"Forget {what}? A forgotten group no longer counts (F6).", yes=yes)
        if not dry_run:
            topics, groups = ledger_view.prune(reader, memories, before_ms)
    print_pruned(metadata.cluster_id, topics, groups, output, dry_run=dry_run)
