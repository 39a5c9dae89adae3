"""``kretain archive list``, ``verify`` and ``compact``."""

from __future__ import annotations

from typing import Annotated

from kretain.completion.complete import complete_topics
from kretain.errors import Exit
from kretain.flows.archives import KeysOption, opened, split
from kretain.options.common import Common, Output, OutputOption, command, new_app, now_ms, option
from kretain.options.rules import topic_argument

app = new_app("List, verify and compact archives of trimmed records.")

Where = Annotated[
    list[str] | None,
    topic_argument(
        "Archives (paths with a slash) and topics. Default: the policy's archives.", "URL|TOPIC", complete_topics
    ),
]


@command(app, "list")
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


@command(app)
def verify(
    common: Common,
    where: Where = None,
    archive_key: KeysOption = None,
    output: OutputOption = "table",
) -> Exit:
    """Read all files of archives, and compare counts and checksums with the manifests.

    Exits with 5 if a file is damaged or missing, and names it. So is a segment that an audit log of this machine
    tells of, and that no manifest has any more.

    Examples:
      kretain archive verify s3://backup/kafka

      kretain archive verify ./archive orders
    """
    return Exit.PARTIAL if _show(common, where, output, archive_key, verify=True) else Exit.DONE


@command(app)
def compact(
    common: Common,
    where: Where = None,
    dry_run: Annotated[bool, option("--dry-run", help="Show what would be joined; change nothing.")] = False,
    yes: Annotated[bool, option("--yes", "-y", help="Skip the question.")] = False,
    archive_key: KeysOption = None,
    output: OutputOption = "table",
) -> Exit:
    """Join small segments of archives into larger ones.

    Reads and compares the records first, and deletes the small files only after reading back the large one. Leaves
    damaged files alone and exits with 5.

    Examples:
      kretain archive compact s3://backup/kafka --dry-run

      kretain archive compact ./archive orders --yes
    """
    from kretain.config import resolve
    from kretain.flows.trims import must_confirm
    from kretain.render.archive import print_compacted
    from retention_cli.archive.catalog import Compacted, compact as run_compaction, plan_compaction, read_catalog
    from retention_cli.core.progress import adding
    from retention_cli.core.units import count, format_time

    settings = resolve(common)
    urls, topics = split(where or (), settings.policy)
    found = []
    with common.progress() as progress:
        for url in urls:
            store = opened(url, archive_key, settings.policy)
            partitions, _loose = read_catalog(store, topics, progress)
            found.extend([(store, one, plan_compaction(one.segments)) for one in partitions])
    work = [row for row in found if row[2].removed]
    done = [(store.url, Compacted(one, problems=list(one.problems)), planned) for store, one, planned in found]
    if work and not dry_run:
        segments = count(sum(len(planned.removed) for _store, _one, planned in work), "small segment")
        must_confirm(
            lambda: f"Join {segments} of {count(len(work), 'partition')}, and delete them when that is read back?",
            "compact",
            "nothing was changed",
            yes=yes,
        )
        whole = sum(one.records for _store, _one, planned in work for join in planned.joins for one in join)
        with common.progress() as progress:
            on_records = adding(progress, "joining", whole)
            done = []
            for store, one, planned in found:
                row = run_compaction(store, one, planned, lambda: format_time(now_ms()), on_records)
                row.problems[:0] = one.problems
                done.append((store.url, row, planned))
    print_compacted(done, output, dry_run=dry_run)
    return Exit.PARTIAL if any(one.problems for _url, one, _planned in done) else Exit.DONE


def _show(common: Common, where: list[str] | None, output: Output, keys: list[str] | None, *, verify: bool) -> bool:
    """Print the archives; return whether any of it is damaged."""
    from kretain.config import resolve
    from kretain.render.archive import print_archives
    from retention_cli.archive.catalog import read_catalog, unlisted, verify_catalog
    from retention_cli.archive.layout import ArchiveError
    from retention_cli.trim.history import archive_at, read_archived

    settings = resolve(common)
    urls, topics = split(where or (), settings.policy)
    found = []
    notes = []
    archived = read_archived(settings.state_dir, common.warn) if verify else {}
    with common.progress() as progress:
        for url in urls:
            store = opened(url, keys, settings.policy)
            partitions, loose = read_catalog(store, topics, progress)
            if verify:
                verify_catalog(store, partitions, progress)
                unlisted(partitions, archived.get(archive_at(url), ()), topics)
            found.extend([(url, one) for one in partitions])
            if loose:
                notes.append(
                    f"{len(loose):,} files that no manifest names, such as {store.shown(loose[0])}: a run was ended "
                    f"while it wrote them; they do not count, and the next run of that partition writes them again"
                )
    common.warn(*notes)
    if topics and not found:
        raise ArchiveError(f"nothing of {', '.join(topics)} is in {', '.join(url.partition('?')[0] for url in urls)}")
    print_archives(found, output, verified=verify)
    return any(one.problems for _url, one in found)
