"""``kretain restore``."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from kretain.completion.complete import complete_topics
from kretain.errors import Exit, UsageError, warn
from kretain.flows.archives import KeysOption, archive_url, in_policy, opened
from kretain.options.common import (
    Common,
    OptionGroup,
    OutputOption,
    TimeRange,
    argument,
    now_ms,
    option,
    single_command,
    time_ms,
)

if TYPE_CHECKING:
    from retention_cli.archive.restore import WantedGroups


@dataclass(frozen=True, slots=True)
class Which(OptionGroup):
    """Which archived records to restore, and into what kind of topic."""

    from_: Annotated[
        str | None,
        option(
            "--from",
            of="restore",
            metavar="URL",
            help="Read this archive. Default: the policy's for TOPIC.",
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
    archive_key: KeysOption = None
    append: Annotated[bool, option("--append", help="Write to a topic that is not empty.")] = False


_GROUPS = "Groups (default: none)"


@dataclass(frozen=True, slots=True)
class Consumers(OptionGroup):
    """Which groups to reset in the target."""

    groups: Annotated[
        bool, option("--groups", of="restore", panel=_GROUPS, help="Let all archived groups continue there.")
    ] = False
    group: Annotated[
        list[str] | None,
        option("--group", of="restore", panel=_GROUPS, metavar="NAME", help="Let this group continue. Repeatable."),
    ] = None
    positions_at: Annotated[
        int | None,
        option(
            "--positions-at",
            panel=_GROUPS,
            metavar="TIME",
            parser=time_ms,
            help="Use positions of then or before. Default: newest.",
        ),
    ] = None
    overwrite: Annotated[
        bool, option("--overwrite", panel=_GROUPS, help="Also reset groups that have commits on the target.")
    ] = False

    def wanted(self) -> WantedGroups | None:
        """Return the groups, None if none are to be reset.

        Raises:
            UsageError: the options contradict each other.
        """
        from retention_cli.archive.restore import WantedGroups

        if self.groups and self.group:
            raise UsageError("--groups means all groups: leave out --group")
        if not (self.groups or self.group):
            if self.overwrite or self.positions_at is not None:
                raise UsageError("--overwrite and --positions-at go with --groups or --group")
            return None
        return WantedGroups(tuple(self.group or ()), self.overwrite, self.positions_at)


@dataclass(frozen=True, slots=True)
class How(OptionGroup):
    """Whether to write, and whether to ask."""

    dry_run: Annotated[bool, option("--dry-run", help="Show what would be restored; write nothing.")] = False
    yes: Annotated[bool, option("--yes", "-y", help="Skip the question. Required without a terminal.")] = False


@single_command
def restore(
    common: Common,
    topic: Annotated[str, argument(metavar="TOPIC", help="The archived topic.", show_default=False)],
    to: Annotated[
        str,
        option(
            "--to",
            of="restore",
            metavar="TOPIC",
            help="Write to this empty topic.",
            show_default=False,
            autocompletion=complete_topics,
        ),
    ],
    which: Which = Which(),
    times: TimeRange = TimeRange(),  # noqa: B008  (a frozen value)
    consumers: Consumers = Consumers(),
    how: How = How(),
    output: OutputOption = "table",
) -> Exit:
    """Write archived records to a topic, with the same partitions, keys and times.

    Offsets are new. If it is killed, run it again: it continues without duplicates. Meanwhile
    a group protects the target from trims. With --groups, groups continue in the target with their next record.

    Examples:
      kretain restore orders --from s3://backup/kafka --to orders-restored -b localhost:9092 --dry-run

      kretain restore orders -p policy.yaml --to orders-november --since 2026-11-01T00:00:00Z --yes

      kretain restore orders -p policy.yaml --to orders --groups
    """
    from kretain.config import resolve
    from kretain.flows.trims import must_confirm
    from kretain.render.archive import groups_parts, groups_question, print_restored, question
    from kretain.render.output import print_parts
    from retention_cli.archive.layout import ArchiveError
    from retention_cli.archive.restore import RestoreRefusedError, Wanted, end, planned, prepare, restore as run_restore
    from retention_cli.archive.restore_groups import choose, mapped, reset
    from retention_cli.brokers.errors import BrokerError
    from retention_cli.brokers.republisher import GroupResetter
    from retention_cli.reports.ledger import NotRememberedError, forget

    settings = resolve(common)
    url = archive_url(which.from_) if which.from_ is not None else in_policy(settings.policy, topic)[0]
    kind = settings.state_kind()
    partitions = tuple(sorted(set(which.partition or ())))
    since, until = times.bounds(now_ms())
    groups = consumers.wanted()
    wanted = Wanted(topic, to, which.from_cluster, which.topic_id, partitions, since, until, which.append, groups)
    store = opened(url, which.archive_key, settings.policy)
    with settings.reader() as reader:
        with common.progress() as progress:
            job = prepare(reader, store, wanted, now_ms(), progress)
            plan = None if groups is None else choose(reader, store, job)
            if plan is not None and how.dry_run and job.there:
                plan = mapped(reader, store, job, plan, progress)
        for warning in job.warnings:
            warn(warning)
        if how.dry_run:
            print_restored(planned(job), output, plan, dry_run=True)
            return Exit.DONE
        if not job.there:
            must_confirm(
                lambda: question(job, reader.settings.bootstrap), "restore", "nothing was written", yes=how.yes
            )
        try:
            with common.progress() as progress:
                done = run_restore(reader, store, job, progress)
                if plan is not None and done.finished:
                    plan = mapped(reader, store, job, plan, progress)
            if plan is not None and done.finished:
                must_confirm(
                    lambda: groups_question(plan, job),
                    "reset groups",
                    "no group was reset",
                    yes=how.yes,
                    show=partial(print_parts, groups_parts(plan)),
                )
                reset(reader, GroupResetter(reader.settings, to, reader.timeout_s), job, plan)
                end(reader, job)
        except (ArchiveError, BrokerError, RestoreRefusedError) as error:
            if isinstance(error, RestoreRefusedError) and job.there:
                raise  # nothing was written
            warn(f"{error}; fix that and run the same command again: it resumes where it stopped")
            return Exit.PARTIAL
        if done.finished:  # a plan may have recorded the group meanwhile, which would continue to hold (F6)
            with contextlib.suppress(NotRememberedError):
                forget(settings.memories(reader, kind).ledger(reader.metadata([]).cluster_id), [job.group])
    print_restored(done, output, plan)
    return Exit.INTERRUPTED if done.interrupted else Exit.DONE
