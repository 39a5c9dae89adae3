"""``kretain archive`` and ``restore``: records that were trimmed, and the archives that a command means."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kretain.completion.complete import complete_topics
from kretain.config import Resolved, resolve
from kretain.errors import Exit, UsageError, warn
from kretain.flows.confirm import must_confirm
from kretain.options.common import (
    Common,
    OptionGroup,
    Output,
    OutputOption,
    TimeRange,
    argument,
    command,
    new_app,
    now_ms,
    option,
    single_command,
    time_ms,
)
from kretain.options.plans import topic_argument
from retention_cli.core.units import count, format_time
from retention_cli.policy.urls import NONE, check_url

if TYPE_CHECKING:
    from retention_cli.archive.restore import WantedGroups
    from retention_cli.archive.store import Store


def archive_url(text: str) -> str:
    """Return a URL as typed, or a path made absolute.

    Raises:
        UsageError: it is not a URL or path, or contains a password; the text does not repeat it.
    """
    try:
        return check_url(text if "://" in text else str(Path(text).absolute()))
    except ValueError as error:
        raise UsageError(f"the archive's URL {error}") from None


KeysOption = Annotated[
    list[str] | None,
    option(
        "--archive-key",
        metavar="FILE",
        help="Use this key file, not the policy's. Repeatable.",
    ),
]


def opened(url: str, keys: Sequence[str] | None, settings: Resolved) -> Store:
    """Return the archive at a URL, with the keys that were given, else the policy's.

    Raises:
        ArchiveError: it can't be reached, or a key can't be read.
        PolicyError: the policy is invalid.
    """
    from retention_cli.archive.store import Store

    return Store(url, keys=keys or settings.load_or_default().archive_keys)


def split(where: Sequence[str], settings: Resolved) -> tuple[list[str], list[str]]:
    """Return the URLs and the topics among arguments. One with a slash is a URL, as topic names have none.

    Raises:
        UsageError: no URL is given, and no policy has one.
        PolicyError: the policy is invalid.
    """
    urls = [archive_url(one) for one in where if "/" in one] or in_policy(settings)
    return urls, [one for one in where if "/" not in one]


def in_policy(settings: Resolved, topic: str | None = None) -> list[str]:
    """Return the URLs in a policy, for one topic or for all.

    Raises:
        UsageError: there is no policy, or it has no URL.
        PolicyError: the policy is invalid.
    """
    if (policy := settings.load()) is None:
        raise UsageError("say where the archive is: a URL (a path has a slash: ./archive), or a policy that names one")
    if topic is not None:
        of_topic = policy.settings_for(topic)
        named = [] if of_topic is None or of_topic.archive is None else [of_topic.archive]
    else:
        named = [str(entry.values["archive"]) for entry in policy.entries if "archive" in entry.values]
    found = list(dict.fromkeys(one for one in named if one != NONE))
    if not found:
        raise UsageError(
            f"{settings.policy} names no archive{'' if topic is None else f' for topic {topic}'}: give its URL"
        )
    return found


archive = new_app("List, verify and compact archives of trimmed records.")

Where = Annotated[
    list[str] | None,
    topic_argument(
        "Archives (paths with a slash) and topics. Default: all of the policy's.", "URL|TOPIC", complete_topics
    ),
]


@command(archive, "list")
def list_(
    common: Common,
    where: Where = None,
    output: OutputOption = "table",
) -> None:
    """List what archives hold: partitions, offsets, records, times and gaps.

    Reads only manifests, and needs no cluster.

    Examples:
      kretain archive list s3://backup/kafka

      kretain archive list -p policy.yaml 'orders.*' -o json
    """
    _show(common, where, output, None, verify=False)


@command(archive)
def verify(
    common: Common,
    where: Where = None,
    archive_key: KeysOption = None,
    output: OutputOption = "table",
) -> Exit:
    """Read all files of archives; compare counts and checksums with the manifests.

    Exits with 5 if a file is damaged or missing, and names it. A segment that this machine's audit log names but no
    manifest does counts as missing.

    Examples:
      kretain archive verify s3://backup/kafka

      kretain archive verify ./archive orders
    """
    return Exit.PARTIAL if _show(common, where, output, archive_key, verify=True) else Exit.DONE


@command(archive)
def compact(
    common: Common,
    where: Where = None,
    dry_run: Annotated[bool, option("--dry-run", help="Show what would be merged; change nothing.")] = False,
    yes: Annotated[bool, option("--yes", "-y", help="Skip the question.")] = False,
    archive_key: KeysOption = None,
    output: OutputOption = "table",
) -> Exit:
    """Merge small segments of archives into larger ones.

    Compares the records first, and deletes the small files only after reading back the large one. Leaves damaged files
    alone and exits with 5.

    Examples:
      kretain archive compact s3://backup/kafka --dry-run

      kretain archive compact ./archive orders --yes
    """
    from kretain.render.archive import print_compacted
    from retention_cli.archive.catalog import Compacted, compact as run_compaction, plan_compaction, read_catalog
    from retention_cli.core.progress import adding

    settings = resolve(common)
    urls, topics = split(where or (), settings)
    found = []
    with common.progress() as progress:
        for url in urls:
            store = opened(url, archive_key, settings)
            partitions, _loose = read_catalog(store, topics, progress)
            found.extend([(store, one, plan_compaction(one.segments)) for one in partitions])
    work = [row for row in found if row[2].removed]
    done = [(store.url, Compacted(one, problems=list(one.problems)), planned) for store, one, planned in found]
    if work and not dry_run:
        segments = count(sum(len(planned.removed) for _store, _one, planned in work), "small segment")
        must_confirm(
            lambda: (
                f"Merge {segments} of {count(len(work), 'partition')}, and delete them after reading back the result?"
            ),
            "compact",
            "nothing was changed",
            yes=yes,
        )
        total = sum(one.records for _store, _one, planned in work for join in planned.joins for one in join)
        with common.progress() as progress:
            on_records = adding(progress, "joining", total)
            done = [
                (store.url, run_compaction(store, one, planned, lambda: format_time(now_ms()), on_records), planned)
                for store, one, planned in found
            ]
    print_compacted(done, output, dry_run=dry_run)
    return Exit.PARTIAL if any(one.problems for _url, one, _planned in done) else Exit.DONE


def _show(common: Common, where: list[str] | None, output: Output, keys: list[str] | None, *, verify: bool) -> bool:
    """Print the archives; return whether any of it is damaged."""
    from kretain.render.archive import print_archives
    from retention_cli.archive.catalog import read_catalog, unlisted, verify_catalog
    from retention_cli.archive.layout import ArchiveError
    from retention_cli.trim.history import archive_at, read_archived

    settings = resolve(common)
    urls, topics = split(where or (), settings)
    found = []
    notes = []
    archived = read_archived(settings.state_dir, common.warn) if verify else {}
    with common.progress() as progress:
        for url in urls:
            store = opened(url, keys, settings)
            partitions, loose = read_catalog(store, topics, progress)
            if verify:
                verify_catalog(store, partitions, progress)
                unlisted(partitions, archived.get(archive_at(url), ()), topics)
            found.extend([(url, one) for one in partitions])
            if loose:
                notes.append(
                    f"{len(loose):,} files that no manifest names, such as {store.shown(loose[0])}: a run stopped "
                    f"while writing them; they do not count, and the next run of that partition writes them again"
                )
    common.warn(*notes)
    if topics and not found:
        raise ArchiveError(f"nothing of {', '.join(topics)} is in {', '.join(url.partition('?')[0] for url in urls)}")
    print_archives(found, output, verified=verify)
    return any(one.problems for _url, one in found)


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
        str | None, option("--from-cluster", metavar="ID", help="Restore records of this cluster.")
    ] = None
    topic_id: Annotated[
        str | None,
        option("--topic-id", metavar="ID", help="Choose one of several topics with that name."),
    ] = None
    archive_key: KeysOption = None
    append: Annotated[bool, option("--append", help="Write to a topic that is not empty.")] = False


_GROUPS = "Groups (default: none)"


@dataclass(frozen=True, slots=True)
class Consumers(OptionGroup):
    """Which groups to reset in the target."""

    groups: Annotated[
        bool, option("--groups", of="restore", panel=_GROUPS, help="Move all archived groups to the target.")
    ] = False
    group: Annotated[
        list[str] | None,
        option(
            "--group", of="restore", panel=_GROUPS, metavar="NAME", help="Move this group to the target. Repeatable."
        ),
    ] = None
    positions_at: Annotated[
        int | None,
        option(
            "--positions-at",
            panel=_GROUPS,
            metavar="TIME",
            parser=time_ms,
            help="Use positions as of this time. Default: newest.",
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
            raise UsageError("--groups means all groups: omit --group")
        if not (self.groups or self.group):
            if self.overwrite or self.positions_at is not None:
                raise UsageError("--overwrite and --positions-at need --groups or --group")
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

    Records get new offsets. If restore is killed, run it again: it resumes without duplicates. While it runs, a group
    protects the target from trims. --groups moves archived groups to their next record in the target.

    Examples:
      kretain restore orders --from s3://backup/kafka --to orders-restored -b localhost:9092 --dry-run

      kretain restore orders -p policy.yaml --to orders-november --since 2026-11-01T00:00:00Z --yes

      kretain restore orders -p policy.yaml --to orders --groups
    """
    from kretain.render.archive import groups_parts, groups_question, print_restored, question
    from kretain.render.output import print_parts
    from retention_cli.archive.layout import ArchiveError
    from retention_cli.archive.restore import RestoreRefusedError, Wanted, end, planned, prepare, restore as run_restore
    from retention_cli.archive.restore_groups import choose, mapped, reset
    from retention_cli.brokers.errors import BrokerError
    from retention_cli.brokers.republisher import GroupResetter
    from retention_cli.reports.ledger import NotRememberedError, forget

    settings = resolve(common)
    url = archive_url(which.from_) if which.from_ is not None else in_policy(settings, topic)[0]
    kind = settings.load_or_default().state
    since, until = times.bounds(now_ms())
    groups = consumers.wanted()
    wanted = Wanted(
        topic,
        to,
        which.from_cluster,
        which.topic_id,
        tuple(sorted(set(which.partition or ()))),
        since,
        until,
        which.append,
        groups,
    )
    store = opened(url, which.archive_key, settings)
    with settings.reader() as reader:
        with common.progress() as progress:
            job = prepare(reader, store, wanted, now_ms(), progress)
            plan = None if groups is None else choose(reader, store, job, groups)
            if plan is not None and how.dry_run and job.there:
                plan = mapped(reader, store, job, plan, progress)
        warn(*job.warnings)
        if how.dry_run:
            print_restored(planned(job), output, plan, dry_run=True)
            return Exit.DONE
        if not job.there:
            must_confirm(
                lambda: question(job, reader.settings.bootstrap), "restore", "nothing was written", yes=how.yes
            )
        # Where the target is not empty nothing was written before a refusal.
        resumable = (ArchiveError, BrokerError) if job.there else (ArchiveError, BrokerError, RestoreRefusedError)
        try:
            with common.progress() as progress:
                done = run_restore(reader, store, job, progress)
                if plan is not None and done.finished:
                    plan = mapped(reader, store, job, plan, progress)
            if plan is not None and done.finished:
                must_confirm(
                    partial(groups_question, plan, job),
                    "reset groups",
                    "no group was reset",
                    yes=how.yes,
                    show=partial(print_parts, groups_parts(plan)),
                )
                reset(reader, GroupResetter(reader.pinned_settings, to, reader.timeout_s), job, plan)
                end(reader, job)
        except resumable as error:
            warn(f"{error}; fix that and run the same command again: it resumes where it stopped")
            return Exit.PARTIAL
        if done.finished:  # a plan may have recorded the group meanwhile, which would continue to hold (F6)
            with contextlib.suppress(NotRememberedError):
                forget(settings.memories(reader, kind).ledger(reader.metadata([]).cluster_id), [job.group])
    print_restored(done, output, plan)
    return Exit.INTERRUPTED if done.interrupted else Exit.DONE
