"""``kretain groups``, ``offsets`` and ``ledger``: consumers, where they stand, and what is remembered of them."""

from __future__ import annotations

from typing import Annotated, Literal

from kretain.completion.complete import complete_gone_groups, complete_topics
from kretain.config import resolve
from kretain.errors import RefusedError, warn
from kretain.flows.confirm import must_confirm, on_terminal
from kretain.flows.fleet import each_cluster
from kretain.options.common import (
    Common,
    OutputOption,
    argument,
    command,
    duration_ms,
    new_app,
    now_ms,
    option,
    single_command,
)
from kretain.options.plans import GroupsOption, Topics, selection_or_all
from retention_cli.core.units import count

groups = new_app()


@command(groups, callback=True)
@each_cluster
def list_groups(
    common: Common,
    group: GroupsOption = None,
    output: OutputOption = "table",
) -> None:
    """List consumer groups: which count, how far behind they are, and what they hold.

    "behind" is what a group has not read, in bytes of one replica; "alone" is the part that only this group has not
    read. "unread since" and "unmoved since" may be longer ago: kretain counts from when it first saw them. The policy
    says which groups count (default: all except console-consumer-*). The list includes consumers from floors (F7) and
    groups that no longer exist but still count (F6).

    Examples:
      kretain groups -b localhost:9092

      kretain groups -p policy.yaml --group 'billing-*' -o json

      kretain groups forget billing-2019 -p policy.yaml
    """
    from kretain.render.consumers import print_groups
    from retention_cli.reports.groups import list_all

    settings = resolve(common)
    policy = settings.load_or_default()
    now = now_ms()
    with settings.reader() as reader, common.progress() as progress:
        memories = settings.memories(reader, policy.state, will_save=False)
        found = list_all(
            reader,
            policy.groups,
            group or ("*",),
            memories=memories,
            now_ms=now,
            progress=progress,
        )
        lost = memories(found.cluster_id).lost
        is_first = lost is None and memories(found.cluster_id).since_ms is None
    common.warn(*memories.notes)
    for reason in () if lost is None else lost.reasons:
        warn(f"kretain cannot tell which groups are gone, so every floor is unknown: {reason.text} (F6)")
    if found.incomplete is not None:
        warn(f"the list is incomplete, so every floor is unknown: {found.incomplete.text} ({found.incomplete.code})")
    if found.endless is not None:
        warn(f"some lags are unknown: the ends of partitions can't be read: {found.endless}")
    print_groups(found, output, now, is_first=is_first)


@command(groups)
def forget(
    common: Common,
    names: Annotated[
        list[str],
        argument(
            metavar="GROUP",
            help="Groups that no longer exist: names, globs or re:^…$.",
            show_default=False,
            autocompletion=complete_gone_groups,
        ),
    ],
    dry_run: Annotated[bool, option("--dry-run", help="Show what they hold; forget nothing.")] = False,
    yes: Annotated[bool, option("--yes", "-y", help="Skip the question.")] = False,
    output: OutputOption = "table",
) -> None:
    """Forget groups that no longer exist, so that they no longer count (F6).

    A group that returns counts again. With state: cluster in the policy, all machines forget it. If one name is
    unknown, forgets none and exits with 1. Patterns match only groups that no longer exist.

    Examples:
      kretain groups forget billing-2019 -b localhost:9092

      kretain groups forget billing-2019 --dry-run -b localhost:9092

      kretain groups forget billing-2019 audit-2019 -p policy.yaml --context prod

      kretain groups forget 'console-*' --dry-run -p policy.yaml
    """
    from kretain.render.consumers import holding, print_forgotten
    from kretain.render.output import NAMED
    from retention_cli.core.consumers import group_key
    from retention_cli.core.printable import name_in_text
    from retention_cli.policy.model import is_pattern
    from retention_cli.reports.ledger import forget as forget_groups, held_by, named

    settings = resolve(common)
    with settings.reader() as reader:
        metadata = reader.metadata()
        ledger = settings.memories(reader, settings.load_or_default().state).ledger(metadata.cluster_id)
        listed = reader.list_groups(reader.brokers())
        if any(map(is_pattern, names)) and not reader.may_describe_cluster(metadata.brokers):
            raise RefusedError(
                "kretain cannot tell which groups are gone: this user lacks DESCRIBE on the cluster; name each one"
            )
        names = named(ledger, names, {group_key(group.kind, group.name) for group in listed}, metadata.topic_ids)
        held = held_by(ledger, names, metadata.topic_ids)
        if not dry_run:
            more = [f"and {count(len(held) - NAMED, 'more group')}"] if len(held) > NAMED else []
            must_confirm(
                lambda: (
                    f"Forget {'; '.join([*map(holding, held[:NAMED]), *more])}? "
                    "From then on only other consumers set the floors there."
                ),
                "forget",
                "nothing was forgotten",
                yes=yes or not on_terminal(),  # a script has said it by its command
            )
            forgotten = set(forget_groups(ledger, names))
            held = [one for one in held if one.name in forgotten]
    print_forgotten(metadata.cluster_id, held, output, dry_run=dry_run)
    still = set() if dry_run else {group.name for group in listed}
    common.warn(
        *(
            f"group {name_in_text(one.name)} still exists, and counts at its committed offsets"
            for one in held
            if one.name in still
        )
    )


@single_command
@each_cluster
def offsets(
    common: Common,
    topics: Topics = None,
    groups: Annotated[bool, option("--groups", help="Show each group's offset, not only the smallest.")] = False,
    group: GroupsOption = None,
    unread: Annotated[
        bool,
        option(
            "--unread",
            help="Show unread records per consumer and topic; with --groups per partition.",
        ),
    ] = False,
    output: OutputOption = "table",
    all_rows: Annotated[bool, option("--all", help="Show all rows.")] = False,
) -> None:
    """Show where consumers stand: each partition's floor, who sets it, and the lag.

    The floor is the smallest committed offset that counts. --unread shows the records and bytes that each consumer has
    not read, and since when kretain has seen them unread. Groups that no longer exist but still count are included.
    Without a policy, all groups count except console-consumer-*.

    Examples:
      kretain offsets -b localhost:9092 'orders.*'

      kretain offsets -p policy.yaml --groups -o csv

      kretain offsets -b localhost:9092 --group billing

      kretain offsets -p policy.yaml --unread
    """
    from kretain.render.consumers import print_positions
    from retention_cli.reports.offsets import read_positions

    settings = resolve(common)
    chosen = selection_or_all(settings.policy, topics)
    patterns = group or (("*",) if groups or unread else ())
    each: Literal["topics", "partitions"] | None = None if not unread else "partitions" if groups else "topics"
    with settings.reader() as reader, common.progress() as progress:
        memories = settings.memories(reader, chosen.policy.state, will_save=False)
        positions = read_positions(
            reader, chosen, now_ms(), groups=patterns, unread=each, memories=memories, progress=progress
        )
    common.warn(*memories.notes)
    print_positions(positions, output, each, of_groups=bool(patterns), every_row=all_rows)


ledger = new_app("Show and prune what kretain remembers of a cluster.")


@command(ledger)
def show(
    common: Common,
    topic: Annotated[str, argument(metavar="TOPIC", help="A topic's name.", autocompletion=complete_topics)],
    output: OutputOption = "table",
) -> None:
    """Show what kretain remembers of a topic: samples, event times and groups.

    Reads what the policy's state names (local or cluster); without a policy, this machine's ledger.

    Examples:
      kretain ledger show orders -b localhost:9092

      kretain ledger show orders -p policy.yaml -o json
    """
    from kretain.render.consumers import print_ledger
    from retention_cli.reports import ledger as ledger_view

    settings = resolve(common)
    with settings.reader() as reader:
        memories = settings.memories(reader, settings.load_or_default().state, will_save=False)
        view = ledger_view.show(reader, memories, topic)
        lost = memories(view.cluster_id).lost
    common.warn(*memories.notes, *(lost.reasons if lost is not None else ()))
    print_ledger(view, output)


@command(ledger)
def prune(
    common: Common,
    older_than: Annotated[
        int,
        option(
            "--older-than",
            metavar="DURATION",
            parser=duration_ms,
            help="Forget what has not been seen for this long.",
            show_default=False,
        ),
    ],
    dry_run: Annotated[bool, option("--dry-run", help="Show what would be forgotten; forget nothing.")] = False,
    yes: Annotated[bool, option("--yes", "-y", help="Skip the question.")] = False,
    output: OutputOption = "table",
) -> None:
    """Forget groups and topics that have not been seen for a long time.

    A forgotten group no longer counts (F6). With state: cluster in the policy, all machines forget it.

    Examples:
      kretain ledger prune --older-than 90d -b localhost:9092

      kretain ledger prune --older-than 90d -p policy.yaml --context prod
    """
    from kretain.render.consumers import print_pruned
    from retention_cli.reports import ledger as ledger_view

    settings = resolve(common)
    with settings.reader() as reader:
        memories = settings.memories(reader, settings.load_or_default().state)
        before_ms = now_ms() - older_than
        metadata = reader.metadata()
        ledger, there = memories.ledger(metadata.cluster_id), set(metadata.topic_ids.values())
        topics, groups = map(len, ledger.seen_before(before_ms, there))
        if (topics or groups) and not dry_run:
            what = f"{count(topics, 'topic')} and {count(groups, 'group')}"
            must_confirm(
                lambda: f"Forget {what}? A forgotten group no longer counts (F6).",
                "forget",
                "nothing was forgotten",
                yes=yes or not on_terminal(),
            )
        if not dry_run:
            topics, groups = ledger_view.prune(reader, memories, before_ms)
    print_pruned(metadata.cluster_id, topics, groups, output, dry_run=dry_run)
