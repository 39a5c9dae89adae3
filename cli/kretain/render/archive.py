"""Print archives' contents, and the results of a restore, on the screen and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.screen import Column
from kretain.render.kit.text import count, number, size
from retention_cli.archive.catalog import ArchivedPartition
from retention_cli.archive.compact import Compacted, Work
from retention_cli.archive.restore import Job, Restored
from retention_cli.core.units import format_time

FORMAT = "kretain.archives/v1"
COLUMNS = (
    "url",
    "cluster",
    "topic",
    "topic_id",
    "partition",
    "from",
    "to",
    "records",
    "bytes",
    "files",
    "segments",
    "min_timestamp",
    "max_timestamp",
    "gaps",
    "problems",
)
COMPACTION_FORMAT = "kretain.compaction/v1"
COMPACTION_COLUMNS = (
    "url",
    "cluster",
    "topic",
    "topic_id",
    "partition",
    "segments",
    "files",
    "joined",
    "into",
    "problems",
)
RESTORE_FORMAT = "kretain.restore/v1"
RESTORE_COLUMNS = ("partition", "records", "from", "to", "resumed_at")


def print_archives(found: Sequence[tuple[str, ArchivedPartition]], output: Output, *, verified: bool) -> None:
    """Print a row per archived partition. ``verified``: its files were read, too, not only its manifests."""
    rows = [_row(url, one) for url, one in found]
    head = {"format": FORMAT, "verified": verified, "damaged": sum(bool(one.problems) for _url, one in found)}
    match output:
        case Output.json:
            data.print_json(head, "partitions", rows)
        case Output.yaml:
            data.print_yaml({**head, "partitions": rows})
        case Output.csv:
            gaps = [[f"{start}-{end}" for start, end in one.gaps] for _url, one in found]
            data.print_csv(COLUMNS, [{**row, "gaps": told} for row, told in zip(rows, gaps, strict=True)])
        case Output.table:
            _print_table(found, verified=verified)


def _print_table(found: Sequence[tuple[str, ArchivedPartition]], *, verified: bool) -> None:
    lives = {(one.source.topic, one.source.cluster_id, one.source.topic_id) for _url, one in found}
    several = len({topic for topic, _cluster, _id in lives}) < len(lives)
    screen.print_table(
        (
            Column("partition"),
            Column("from", "right"),
            Column("to", "right"),
            Column("records", "right"),
            Column("bytes", "right"),
            Column("files", "right"),
            Column("first stamp"),
            Column("last stamp"),
            Column("state"),
        ),
        [
            (
                f"{one.source.topic}-{one.source.partition}"
                + (f" ({one.source.cluster_id}, {one.source.topic_id})" if several else ""),
                number(one.start),
                number(one.end),
                number(one.records),
                size(one.size_bytes),
                number(one.files),
                _time(one.times[0]),
                _time(one.times[1]),
                _state(one, verified=verified),
            )
            for _url, one in found
        ],
        ["bold red" if one.problems else None for _url, one in found],
    )
    screen.say()
    urls = ", ".join(dict.fromkeys(url.partition("?")[0] for url, _one in found))
    records = sum(one.records for _url, one in found)
    screen.say(f"{count(len(found), 'partition')}, {count(records, 'record')} in {urls or 'no archive'}.", "bold")
    gaps = [(one, gap) for _url, one in found for gap in one.gaps]
    if gaps:
        screen.heading("Not archived, between what is")
        for one, (start, end) in gaps:
            screen.bullet(f"{one.source.topic}-{one.source.partition}: offsets {start:,} to {end:,}")
    if any(one.problems for _url, one in found):
        screen.heading("Damaged")
        for _url, one in found:
            for problem in one.problems:
                screen.bullet(f"{one.source.topic}-{one.source.partition}: {problem}", "bold red")


def print_compacted(done: Sequence[tuple[str, Compacted, Work]], output: Output, *, dry_run: bool) -> None:
    """Print a row per partition whose segments were joined, or would be, or are damaged."""
    rows: list[dict[str, Any]] = [
        {
            "url": url,
            "cluster": one.partition.source.cluster_id,
            "topic": one.partition.source.topic,
            "topic_id": one.partition.source.topic_id,
            "partition": one.partition.source.partition,
            "segments": len(one.partition.segments),
            "files": one.partition.files,
            "joined": len(work.removed) if dry_run else len(one.deleted),
            "into": len(work.joins) if dry_run else len(one.written),
            "problems": one.problems,
        }
        for url, one, work in done
    ]
    match output:
        case Output.json:
            data.print_json({"format": COMPACTION_FORMAT, "dry_run": dry_run}, "partitions", rows)
        case Output.yaml:
            data.print_yaml({"format": COMPACTION_FORMAT, "dry_run": dry_run, "partitions": rows})
        case Output.csv:
            data.print_csv(COMPACTION_COLUMNS, rows)
        case Output.table:
            shown = [row for row in rows if row["joined"] or row["problems"]]
            if shown:
                screen.print_table(
                    (
                        Column("partition"),
                        Column("segments", "right"),
                        Column("files", "right"),
                        Column("to join" if dry_run else "joined", "right"),
                        Column("into", "right"),
                    ),
                    [
                        (
                            f"{row['topic']}-{row['partition']}",
                            number(row["segments"]),
                            number(row["files"]),
                            number(row["joined"]),
                            number(row["into"]),
                        )
                        for row in shown
                    ],
                    ["bold red" if row["problems"] else None for row in shown],
                )
                screen.say()
            joined, into = sum(row["joined"] for row in rows), sum(row["into"] for row in rows)
            if not joined:
                screen.say("Nothing to join.", "bold")
            else:
                said = "would become" if dry_run else "became"
                screen.say(f"{count(joined, 'small segment')} {said} {into:,}.", "bold")
            problems = [(row, problem) for row in rows for problem in row["problems"]]
            if problems:
                screen.heading("Damaged")
                for row, problem in problems:
                    screen.bullet(f"{row['topic']}-{row['partition']}: {problem}", "bold red")


def print_restored(done: Restored, output: Output) -> None:
    """Print a row per partition that was restored."""
    job = done.job
    rows = [
        {
            "partition": one.partition,
            "records": one.records,
            "from": one.start,
            "to": one.end,
            "resumed_at": one.resumed_at,
        }
        for one in done.partitions
    ]
    head = {
        "format": RESTORE_FORMAT,
        "source": {"cluster": job.cluster_id, "topic": job.wanted.topic, "topic_id": job.topic_id},
        "target": {"topic": job.wanted.target, "topic_id": job.target_id},
        "finished": done.finished,
        "interrupted": done.interrupted,
        "totals": {"partitions": len(rows), "records": sum(one.records for one in done.partitions)},
    }
    match output:
        case Output.json:
            data.print_json(head, "partitions", rows)
        case Output.yaml:
            data.print_yaml({**head, "partitions": rows})
        case Output.csv:
            data.print_csv(RESTORE_COLUMNS, rows)
        case Output.table:
            screen.print_table(
                (
                    Column("partition"),
                    Column("archived from", "right"),
                    Column("to", "right"),
                    Column("records", "right"),
                    Column("begun before at", "right"),
                ),
                [
                    (
                        f"{job.wanted.target}-{one.partition}",
                        number(one.start),
                        number(one.end),
                        number(one.records),
                        number(one.resumed_at),
                    )
                    for one in done.partitions
                ],
            )
            screen.say()
            records = sum(one.records for one in done.partitions)
            screen.say(f"{count(records, 'record')} restored to {job.wanted.target}.", "bold")
            if done.interrupted:
                screen.say("Interrupted: the same command goes on where it stopped.", "bold red")


def question(job: Job, bootstrap: str) -> str:
    """Return the question to ask before anything is written."""
    what = "Go on with restoring" if job.resumes else "Restore"
    return (
        f"{what} {count(job.records, 'record')} of {job.wanted.topic} (topic id {job.topic_id}) to topic "
        f"{job.wanted.target} at {bootstrap}?"
    )


def _row(url: str, one: ArchivedPartition) -> dict[str, Any]:
    earliest, latest = one.times
    return {
        "url": url,
        "cluster": one.source.cluster_id,
        "topic": one.source.topic,
        "topic_id": one.source.topic_id,
        "partition": one.source.partition,
        "from": one.start,
        "to": one.end,
        "records": one.records,
        "bytes": one.size_bytes,
        "files": one.files,
        "segments": len(one.segments),
        "min_timestamp": earliest,
        "max_timestamp": latest,
        "gaps": [[start, end] for start, end in one.gaps],
        "problems": one.problems,
    }


def _time(ms: int | None) -> str:
    return "—" if ms is None else format_time(ms // 1000 * 1000)


def _state(one: ArchivedPartition, *, verified: bool) -> str:
    if one.problems:
        return "DAMAGED"
    return "whole" if verified else "not read"
