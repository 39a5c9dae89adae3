"""``kretain restore``."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Annotated

import typer

from kretain.completion.complete import complete_topics
from kretain.errors import Exit, tell
from kretain.options.common import (
    Common,
    OptionGroup,
    OutputOption,
    now_ms,
    option,
    single_command,
)
from kretain.options.times import TimeRange


@dataclass(frozen=True, slots=True)
class Which(OptionGroup):
    """Which archived records to restore, and into what kind of topic."""

    from_: Annotated[
        str | None,
        option(
            "--from",
            of="restore",
            metavar="URL",
            help="Restore from this archive. Default: the policy's archive for TOPIC.",
        ),
    ] = None
    partition: Annotated[
        list[int] | None, option("--partition", metavar="N", min=0, help="Restore only this partition. Repeatable.")
    ] = None
    from_cluster: Annotated[
        str | None, option("--from-cluster", metavar="ID", help="Restore what came from this cluster.")
    ] = None
    topic_id: Annotated[
        str | None,
        option("--topic-id", metavar="ID", help="Choose one of several topics of that name."),
    ] = None
    append: Annotated[bool, option("--append", help="Write to a topic that is not empty.")] = False


@single_command
def restore(
    common: Common,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The archived topic.", show_default=False)],
    to: Annotated[
        str,
        option(
            "--to",
            of="restore",
            metavar="TOPIC",
            help="Write to this topic: empty, with as many partitions.",
            show_default=False,
            autocompletion=complete_topics,
        ),
    ],
    which: Which = Which(),
    times: TimeRange = TimeRange(),  # noqa: B008  (a frozen value)
    dry_run: Annotated[bool, option("--dry-run", help="Show what would be restored; write nothing.")] = False,
    yes: Annotated[bool, option("--yes", "-y", help="Skip the question. Required without a terminal.")] = False,
    output: OutputOption = "table",
) -> Exit:
    """Write archived records to a topic, with the same partitions, keys and times.

    Offsets are new. It writes in transactions that also store the progress: if it is killed, run it again, and it
    continues without duplicates. Until it is done, a group of its own protects the target from trims.

    Examples:
      kretain restore orders --from s3://backup/kafka --to orders-restored -b localhost:9092 --dry-run

      kretain restore orders -p policy.yaml --to orders-november --since 2026-11-01T00:00:00Z --yes
    """
    from kretain.config import resolve
    from kretain.flows.archives import archive_url, in_policy
    from kretain.flows.trims import must_confirm
    from kretain.render.archive import print_restored, question
    from kretain.render.output import warn
    from retention_cli.archive.layout import ArchiveError
    from retention_cli.archive.restore import Wanted, planned, prepare
    from retention_cli.archive.restore import restore as run_restore
    from retention_cli.archive.store import Store
    from retention_cli.brokers.errors import BrokerError
    from retention_cli.reports.ledger import NotRememberedError, forget

    settings = resolve(common)
    url = archive_url(which.from_) if which.from_ is not None else in_policy(settings.policy, topic)[0]
    kind = settings.state_kind()
    partitions = tuple(sorted(set(which.partition or ())))
    since, until = times.bounds(now_ms())
    wanted = Wanted(topic, to, which.from_cluster, which.topic_id, partitions, since, until, which.append)
    store = Store(url)
    with settings.reader() as reader:
        with common.progress() as progress:
            job = prepare(reader, store, wanted, now_ms(), progress)
        for warning in job.warnings:
            warn(warning)
        if dry_run:
            print_restored(planned(job), output, dry_run=True)
            return Exit.DONE
        must_confirm(lambda: question(job, reader.settings.bootstrap), "restore", "nothing was written", yes=yes)
        try:
            with common.progress() as progress:
                done = run_restore(reader, store, job, progress)
        except (ArchiveError, BrokerError) as error:
            tell(f"kretain: {error}; fix that and run the same command again: it resumes where it stopped")
            return Exit.PARTIAL
        if done.finished:  # a plan may have recorded the group meanwhile, which would continue to hold (F6)
            with contextlib.suppress(NotRememberedError):
                forget(settings.memories(reader, kind).ledger(reader.metadata([]).cluster_id), [job.group])
    print_restored(done, output)
    return Exit.INTERRUPTED if done.interrupted else Exit.DONE
