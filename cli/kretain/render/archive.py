"""Archives' contents, what joining their segments did, and the results of a restore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from typing import Any, Final

from kretain.render.output import BLANK, Column, Line, Part, Table, heading, moment, number, show, size
from retention_cli.archive.catalog import ArchivedPartition, Compacted, Work
from retention_cli.archive.layout import Source
from retention_cli.archive.restore import Job, Restored
from retention_cli.archive.restore_groups import GroupPlan
from retention_cli.core.printable import name_in_text
from retention_cli.core.units import count, timestamp

_SOURCE: Final = ("url", "cluster", "topic", "topic_id", "partition")
_COMPACTED: Final = ("segments", "files", "joined", "into")


def _source(url: str, source: Source) -> dict[str, Any]:
    return dict(zip(_SOURCE, (url, source.cluster_id, source.topic, source.topic_id, source.partition), strict=True))


def _place(source: Source) -> str:
    return f"{source.topic}-{source.partition}"


def print_archives(found: Sequence[tuple[str, ArchivedPartition]], output: str, *, verified: bool) -> None:
    """Print a row per archived partition. ``verified``: its files were read, too, not only its manifests."""
    rows = [
        {
            **_source(url, one.source),
            "from": one.start,
            "to": one.end,
            "records": one.records,
            "bytes": one.size_bytes,
            "files": one.files,
            "segments": len(one.segments),
            "min_timestamp": one.times[0],
            "max_timestamp": one.times[1],
            "gaps": [[start, end] for start, end in one.gaps],
            "problems": one.problems,
        }
        for url, one in found
    ]
    show(
        output,
        {
            "format": "kretain.archives/v1",
            "verified": verified,
            "damaged": sum(bool(one.problems) for _url, one in found),
        },
        "partitions",
        rows,
        lambda: _archives(found, verified=verified),
        (
            *(*_SOURCE, "from", "to", "records", "bytes", "files", "segments", "min_timestamp", "max_timestamp"),
            *("gaps", "problems"),
        ),
        [{**row, "gaps": [f"{start}-{end}" for start, end in row["gaps"]]} for row in rows],
    )


def _archives(found: Sequence[tuple[str, ArchivedPartition]], *, verified: bool) -> list[Part]:
    if not found:
        return [Line("No archived partitions. A trim writes them if the policy sets archive for a topic.", "bold")]
    gaps = [(one, gap) for _url, one in found for gap in one.gaps]
    return [
        _contents([one for _url, one in found], verified=verified),
        BLANK,
        Line(
            f"{count(len(found), 'partition')}, {count(sum(one.records for _url, one in found), 'record')} "
            f"in {', '.join(dict.fromkeys(url.partition('?')[0] for url, _one in found)) or 'no archive'}.",
            "bold",
        ),
        heading("Gaps between archived offsets") if gaps else None,
        *(Line(f"{_place(one.source)}: offsets {start:,} to {end:,}", indent=2) for one, (start, end) in gaps),
        *_damaged([(one.source, problem) for _url, one in found for problem in one.problems]),
    ]


def _contents(found: Sequence[ArchivedPartition], *, verified: bool) -> Table:
    """Return a row per partition, with its cluster and topic id if several topics have the same name."""
    lives = {(one.source.topic, one.source.cluster_id, one.source.topic_id) for one in found}
    several = len({topic for topic, _cluster, _id in lives}) < len(lives)
    return Table(
        (
            Column("partition"),
            *(Column(title, "right") for title in ("from", "to", "records", "bytes")),
            Column("files", "right", spare=True),
            Column("first stamp", spare=True),
            *(Column(title) for title in ("last stamp", "state")),
        ),
        [
            (
                _place(one.source) + (f" ({one.source.cluster_id}, {one.source.topic_id})" if several else ""),
                *map(number, (one.start, one.end, one.records)),
                size(one.size_bytes),
                number(one.files),
                *(moment(ms, "—") for ms in one.times),
                "DAMAGED" if one.problems else "complete" if verified else "not read",
            )
            for one in found
        ],
        ["bold red" if one.problems else None for one in found],
    )


def _damaged(problems: Sequence[tuple[Source, str]]) -> list[Part]:
    return [
        heading("Damaged") if problems else None,
        *(Line(f"{_place(source)}: {problem}", "bold red", 2) for source, problem in problems),
    ]


def print_compacted(done: Sequence[tuple[str, Compacted, Work]], output: str, *, dry_run: bool) -> None:
    """Print a row per partition whose segments were joined, or would be, or are damaged."""
    rows: list[dict[str, Any]] = [
        {
            **_source(url, one.partition.source),
            "segments": len(one.partition.segments),
            "files": one.partition.files,
            "joined": len(work.removed if dry_run else one.deleted),
            "into": len(work.joins if dry_run else one.written),
            "problems": one.problems,
        }
        for url, one, work in done
    ]
    show(
        output,
        {"format": "kretain.compaction/v1", "dry_run": dry_run},
        "partitions",
        rows,
        lambda: [
            *_compacted(rows, dry_run=dry_run),
            *_damaged([(one.partition.source, problem) for _url, one, _work in done for problem in one.problems]),
        ],
        (*_SOURCE, *_COMPACTED, "problems"),
    )


def _compacted(rows: Sequence[Mapping[str, Any]], *, dry_run: bool) -> list[Part]:
    shown = [row for row in rows if row["joined"] or row["problems"]]
    joined, into = sum(row["joined"] for row in rows), sum(row["into"] for row in rows)
    titles = ("segments", "files", "to join" if dry_run else "joined", "into")
    return [
        Table(
            (Column("partition"), *(Column(title, "right") for title in titles)),
            [(f"{row['topic']}-{row['partition']}", *(number(row[key]) for key in _COMPACTED)) for row in shown],
            ["bold red" if row["problems"] else None for row in shown],
        ),
        BLANK if shown else None,
        Line(
            f"{count(joined, 'small segment')} {'would become' if dry_run else 'became'} {into:,}."
            if joined
            else "Nothing to merge.",
            "bold",
        ),
    ]


def groups_parts(plan: GroupPlan) -> list[Part]:
    """Return where groups would continue."""
    return [
        heading(f"Groups, at their positions of {timestamp(plan.positions.read_ms)}"),
        Table(
            (
                *(Column(title) for title in ("group", "partition")),
                *(Column(title, "right") for title in ("archived position", "continues at")),
                Column("note"),
            ),
            [
                (
                    name_in_text(row.group),
                    f"{plan.positions.topic}-{row.partition}",
                    "—" if row.archived is None else number(row.archived),
                    "after the records" if row.offset is None else number(row.offset),
                    row.note,
                )
                for row in plan.rows
            ],
        ),
        *(Line(f"Not reset: {name_in_text(name)} {why}", indent=2) for name, why in sorted(plan.left.items())),
        plan.positions.unlisted is not None
        and Line(f"The archive may not name all groups: {plan.positions.unlisted}", "bold"),
    ]


def groups_question(plan: GroupPlan, job: Job) -> str:
    """Return the question to ask before groups are reset."""
    return f"Reset {count(len(plan.chosen), 'group')} to these offsets on topic {job.wanted.target}?"


def print_restored(done: Restored, output: str, plan: GroupPlan | None = None, *, dry_run: bool = False) -> None:
    """Print a row per partition that was restored, or would be (records: at most); then the groups in ``plan``."""
    job = done.job
    columns = ("partition", "records", "from", "to", "resumed_at")
    records = sum(one.records for one in done.partitions)
    head = {
        "format": "kretain.restore/v1",
        "source": {"cluster": job.source.cluster_id, "topic": job.wanted.topic, "topic_id": job.source.topic_id},
        "target": {"topic": job.wanted.target, "topic_id": job.target_id},
        "dry_run": dry_run,
        "finished": done.finished,
        "interrupted": done.interrupted,
        "totals": {"partitions": len(done.partitions), "records": records},
    }
    if plan is not None:
        head["groups"] = {
            "positions_at": timestamp(plan.positions.read_ms),
            "reset": not dry_run and done.finished,
            "rows": [asdict(row) for row in plan.rows],
            "left": dict(plan.left),
        }
    show(
        output,
        head,
        "partitions",
        [dict(zip(columns, astuple(one), strict=True)) for one in done.partitions],
        lambda: [
            Table(
                (
                    Column("partition"),
                    *(Column(title, "right") for title in ("archived from", "to", "records", "begun before at")),
                ),
                [
                    (
                        f"{job.wanted.target}-{one.partition}",
                        *map(number, (one.start, one.end, one.records, one.resumed_at)),
                    )
                    for one in done.partitions
                ],
            ),
            BLANK,
            Line(
                f"Up to {count(records, 'record')} would be restored to {job.wanted.target}."
                if dry_run
                else f"{count(records, 'record')} restored to {job.wanted.target}.",
                "bold",
            ),
            done.interrupted and Line("Interrupted: the same command resumes where it stopped.", "bold red"),
            *(groups_parts(plan) if plan is not None else ()),
            plan is not None
            and done.finished
            and not dry_run
            and Line(f"{count(len(plan.chosen), 'group')} reset on {job.wanted.target}.", "bold"),
        ],
        columns,
    )


def question(job: Job, bootstrap: str) -> str:
    """Return the question to ask before anything is written."""
    return (
        f"{'Resume restoring' if job.resumes else 'Restore'} {count(job.records, 'record')} of {job.wanted.topic} "
        f"(topic id {job.source.topic_id}) to topic {job.wanted.target} at {bootstrap}?"
    )
