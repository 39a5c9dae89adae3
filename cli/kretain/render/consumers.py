"""Consumers: their groups, where they stand, what they have yet to read, and what the ledger remembers of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kretain.render.output import (
    BLANK,
    NAMED,
    Column,
    Document,
    Line,
    Part,
    Table,
    cluster_head,
    hinted,
    joined,
    moment,
    number,
    reasons,
    shortened,
    show,
    size,
    that_matter_most,
)
from retention_cli.core.consumers import NO_GROUP
from retention_cli.core.model import Sample, TopicPartition
from retention_cli.core.printable import name_in_text
from retention_cli.core.units import count, format_time, some_of, timestamp
from retention_cli.policy.settings import SOURCE_KINDS
from retention_cli.reports import offsets
from retention_cli.reports.groups import GroupList, GroupSummary
from retention_cli.reports.ledger import Held, LedgerView, Seen
from retention_cli.reports.offsets import Positions, Row, has_no_floor, reasons_of

OFFSETS_FORMAT: Final = "kretain.offsets/v1"
FLOOR_COLUMNS: Final = (
    *("topic", "partition", "log_start", "high_watermark", "last_stable_offset"),
    *("min_commit", "min_commit_by", "lag", "lost", "reasons"),
)
POSITION_COLUMNS: Final = ("topic", "partition", "group", "committed", "lag", "lost")
GROUPS_FORMAT: Final = "kretain.groups/v1"
GROUP_COLUMNS: Final = (
    *("group", "type", "protocol_type", "state", "counts", "topics", "partitions"),
    *("lag", "lag_bytes", "alone_bytes", "unread_since", "unmoved_since"),
)
_IS_FIRST: Final = (
    "kretain has not seen this cluster before: it does not know groups whose offsets have already expired "
    "(offsets.retention.minutes), so they protect nothing. Each plan remembers the groups it sees (F6)."
)
_LONG_MS: Final = 86_400_000


def print_positions(
    positions: Positions, output: str, each: offsets.Rows | None, *, of_groups: bool, every_row: bool
) -> None:
    """Print a row per partition, with its floor; ``of_groups`` per partition and group.

    With ``each`` print what each consumer has yet to read: a row per consumer, and topic or partition.
    """
    show(
        output,
        *positions_document(positions, each, of_groups=of_groups),
        lambda: _positions(positions, each, of_groups=of_groups, every_row=every_row),
        {
            "topics": offsets.BY_TOPIC,
            "partitions": offsets.BY_PARTITION,
            None: POSITION_COLUMNS if of_groups else FLOOR_COLUMNS,
        }[each],
    )


def positions_document(positions: Positions, each: offsets.Rows | None, *, of_groups: bool) -> Document:
    """Return what JSON has; see :func:`print_positions`."""
    head = cluster_head(OFFSETS_FORMAT, positions.cluster_id, positions.bootstrap)
    if each is None:
        return head, "partitions", positions.groups if of_groups else positions.floors
    return head, each, [{**row, "unread_since": _timestamp(row["unread_since"])} for row in positions.groups]


def _positions(positions: Positions, each: offsets.Rows | None, *, of_groups: bool, every_row: bool) -> list[Part]:
    rows = positions.groups if of_groups else positions.floors
    unknown = [row for row in positions.floors if has_no_floor(row)]
    if of_groups and not rows and all(reasons_of(row) == (NO_GROUP,) for row in unknown):
        none = "No committed offset" if each is None else "No consumer's position"
        return [Line(f"{none} found on these partitions. kretain groups lists all groups.", "bold")]
    by, what = ("records", "") if each else ("lag", "positions " if of_groups else "partitions ")
    shown = shortened(rows, lambda row: -(row[by] or 0), every_row=every_row)  # those that are furthest behind
    return [
        *that_matter_most(shown, len(rows), "that have the most to read" if each else f"{what}that lag the most"),
        *(_unread(shown, by_topic=each == "topics") if each else [_lags(shown, of_groups=of_groups)]),
        bool(rows) and BLANK,
        Line(
            f"{count(len(positions.floors), 'partition')}: "
            f"{sum(row['min_commit'] is not None for row in positions.floors):,} with a floor, "
            f"{len(unknown):,} unknown.",
            "bold",
        ),
        *hinted(
            reasons(
                "Unknown",
                ((TopicPartition(row["topic"], row["partition"]), reasons_of(row)) for row in unknown),
                "magenta",
            )
        ),
    ]


def _lags(rows: Sequence[Row], *, of_groups: bool) -> Table:
    amounts = ("lag", "lost") if any(row["lost"] for row in rows) else ("lag",)
    if of_groups:
        columns = ("committed", *amounts)
        return Table(
            (Column("partition"), Column("group"), *(Column(title, "right") for title in columns)),
            [(_place(row), name_in_text(row["group"]), *(number(row[key]) for key in columns)) for row in rows],
        )
    shown = sorted(rows, key=lambda row: (row["topic"], row["partition"]))
    return Table(
        (
            Column("partition"),
            *(Column(title, "right") for title in ("log start", "high watermark", "floor", *amounts)),
            Column("set by"),
        ),
        [
            (
                _place(row),
                *(number(row[key]) for key in ("log_start", "high_watermark", "min_commit", *amounts)),
                name_in_text(row["min_commit_by"].removeprefix("group:"))
                if row["min_commit_by"]
                else ", ".join(dict.fromkeys(one["code"] for one in row["reasons"] if has_no_floor(row))),
            )
            for row in shown
        ],
        ["magenta" if has_no_floor(row) else None for row in shown],
    )


def _unread(shown: Sequence[Row], *, by_topic: bool) -> list[Part]:
    unknown = any(row["records"] is None for row in shown)
    gone = any(row["remembered"] for row in shown)
    return [
        Table(
            (
                Column("topic" if by_topic else "partition"),
                Column("consumer"),
                Column("partitions", "right", spare=True) if by_topic else Column("position", "right"),
                Column("unread", "right"),
                Column("bytes", "right"),
                Column("unread since"),
            ),
            [
                (
                    _place(row),
                    name_in_text(row["group"]),
                    number(row["partitions" if by_topic else "committed"]),
                    number(row["records"]),
                    size(row["bytes"]) if row["records"] else "",
                    moment(row["unread_since"], "?" if row["records"] else ""),
                )
                for row in shown
            ],
            ["magenta" if row["records"] is None else "dim" if row["records"] == 0 else None for row in shown],
        ),
        BLANK if unknown or gone else None,
        unknown and "—: unknown; kretain groups and the reasons below say why.",
        gone and "Some consumers no longer exist but still count at their last offsets; kretain groups names them.",
    ]


def _place(row: Row) -> str:
    return (row["topic"] or "any topic") + ("" if row.get("partition") is None else f"-{row['partition']}")


def _timestamp(ms: int | None) -> str | None:
    return None if ms is None else timestamp(ms)


def print_groups(found: GroupList, output: str, now_ms: int, *, is_first: bool) -> None:
    """Print a row per group. ``is_first``: nothing is remembered of this cluster yet."""
    show(output, *groups_document(found), lambda: _groups(found, now_ms, is_first=is_first), GROUP_COLUMNS)


def groups_document(found: GroupList) -> Document:
    """Return what JSON has: a row per group."""
    return (
        cluster_head(GROUPS_FORMAT, found.cluster_id, found.bootstrap) | {"complete": found.incomplete is None},
        "groups",
        (
            {
                "group": one.name,
                "type": one.kind,
                "protocol_type": one.protocol_type,
                "state": one.state,
                "counts": one.counts,
                "topics": one.topics,
                "partitions": one.partitions,
                "lag": one.lag,
                "lag_bytes": one.lag_bytes,
                "alone_bytes": one.alone_bytes,
                "unread_since": _timestamp(one.unread_since_ms),
                "unmoved_since": _timestamp(one.unmoved_since_ms),
            }
            for one in found.groups
        ),
    )


def _groups(found: GroupList, now_ms: int, *, is_first: bool) -> list[Part]:
    if not found.groups and found.incomplete is None:
        return [
            Line("No group found.", "bold"),
            "A group appears here once it has members or commits an offset.",
            Line(_IS_FIRST, "dim") if is_first else None,
        ]
    holding = sorted((-one.alone_bytes, one.name) for one in found.groups if one.alone_bytes)[:NAMED]
    most = ", ".join(f"{size(-held)} by {name_in_text(name)}" for held, name in holding)
    standing = sorted(
        (one.unmoved_since_ms, one.name)
        for one in found.groups
        if one.unmoved_since_ms is not None
        and one.sets_floors
        and one.lag
        and now_ms - one.unmoved_since_ms >= _LONG_MS
    )
    still = some_of([f"{name} since {moment(since_ms)}" for since_ms, name in standing], NAMED)
    return [
        _summaries(found.groups),
        BLANK,
        Line(f"Groups that count: {sum(one.sets_floors for one in found.groups):,} of {len(found.groups):,}.", "bold"),
        most and f"Held back by one group alone, most first: {most}.",
        still and f"Idle for a day or longer, with records to read: {still}.",
        is_first and Line(_IS_FIRST, "dim"),
    ]


def _summaries(groups: Sequence[GroupSummary]) -> Table:
    return Table(
        (
            *(Column(title) for title in ("group", "type", "state")),
            *(Column(title, "right", spare=True) for title in ("topics", "partitions")),
            *(Column(title, "right") for title in ("lag", "behind", "alone")),
            *(Column(title, spare=True) for title in ("unread since", "unmoved since")),
            Column("counts?"),
        ),
        [
            (
                name_in_text(one.name),
                one.kind,
                one.state or ("" if one.kind in SOURCE_KINDS else "?"),
                number(len(one.topics)),
                number(one.partitions),
                number(one.lag),
                "" if one.lag_bytes is None else size(one.lag_bytes),
                "" if one.alone_bytes is None else size(one.alone_bytes),
                moment(one.unread_since_ms),
                moment(one.unmoved_since_ms),
                one.counts,
            )
            for one in groups
        ],
        [None if one.sets_floors else "dim" for one in groups],
    )


def print_ledger(view: LedgerView, output: str) -> None:
    """Print a row per partition."""
    rows: list[dict[str, Any]] = [
        {
            "topic": view.topic,
            "topic_id": one.topic_id,
            "partition": one.partition,
            "samples": one.samples,
            "oldest_sample": one.oldest and timestamp(one.oldest.wall_ms),
            "oldest_high_watermark": one.oldest and one.oldest.high_watermark,
            "newest_sample": one.newest and timestamp(one.newest.wall_ms),
            "newest_high_watermark": one.newest and one.newest.high_watermark,
            "max_event_time": one.event_max and one.event_max.time_ms,
            "max_event_offset": one.event_max and one.event_max.offset,
            "scan_source": one.source,
            "scanned_to": one.scanned_to,
            "groups": [
                {"group": seen.group, "offset": seen.offset, "seen": timestamp(seen.seen_ms), "gone": seen.gone}
                for seen in one.groups
            ],
        }
        for one in view.partitions
    ]
    show(
        output,
        {
            "format": "kretain.ledger/v1",
            "cluster": {"id": view.cluster_id},
            "state": view.state,
            "since": _timestamp(view.since_ms),
            "topic": view.topic,
        },
        "partitions",
        rows,
        lambda: _ledger(view),
        (
            *("topic", "topic_id", "partition", "samples", "oldest_sample", "oldest_high_watermark", "newest_sample"),
            *("newest_high_watermark", "max_event_time", "max_event_offset", "scan_source", "scanned_to", "groups"),
        ),
        [
            {**row, "groups": [f"{seen.group} {seen.offset}{_gone(seen)}" for seen in one.groups]}
            for row, one in zip(rows, view.partitions, strict=True)
        ],
    )


def _ledger(view: LedgerView) -> list[Part]:
    several = len({one.topic_id for one in view.partitions}) > 1
    where = joined(
        "_kretain_state, shared by all" if view.state == "cluster" else "this machine's state directory",
        view.since_ms is not None and f", begun {moment(view.since_ms)}",
    )
    return [
        Table(
            (
                Column("partition"),
                Column("samples", "right", spare=True),
                Column("oldest", spare=True),
                Column("newest"),
                Column("newest event time"),
                Column("scanned to", "right"),
                Column("groups"),
            ),
            [
                (
                    f"{view.topic}-{one.partition}" + (f" ({one.topic_id})" if several else ""),
                    number(one.samples),
                    _sample(one.oldest),
                    _sample(one.newest),
                    "—" if one.event_max is None else format_time(one.event_max.time_ms),
                    "" if one.scanned_to is None else f"{one.scanned_to:,} ({one.source})",
                    ", ".join(f"{seen.group} {seen.offset:,}{_gone(seen)}" for seen in one.groups),
                )
                for one in view.partitions
            ],
        ),
        BLANK,
        Line(f"Remembered in {where}. A sample is a time and the high watermark at that time.", "dim"),
    ]


def _sample(one: Sample | None) -> str:
    return "—" if one is None else f"{moment(one.wall_ms)} {one.high_watermark:,}"


def _gone(seen: Seen) -> str:
    return f" (gone since {moment(seen.seen_ms)})" if seen.gone else ""


def print_pruned(cluster_id: str, topics: int, groups: int, output: str, *, dry_run: bool) -> None:
    """Print how many topics that are gone, and groups, were forgotten, or would be."""
    row = {"topics": topics, "groups": groups, "dry_run": dry_run}
    text = f"{'Would be forgotten' if dry_run else 'Forgotten'}: {count(topics, 'topic')} and {count(groups, 'group')}."
    head = {"format": "kretain.pruned/v1", "cluster": {"id": cluster_id}, **row}
    show(output, head, "", [head], lambda: [text], tuple(row))


def print_forgotten(cluster_id: str, held: Sequence[Held], output: str, *, dry_run: bool) -> None:
    """Print the groups that were forgotten, or would be with what they hold."""
    show(
        output,
        {"format": "kretain.forgotten/v1", "cluster": {"id": cluster_id}},
        "groups",
        [
            {"group": one.name, "partitions": one.partitions, "topics": list(one.topics), "dry_run": dry_run}
            for one in held
        ],
        lambda: [
            f"Would be forgotten: {holding(one)}" if dry_run else f"Forgotten: {name_in_text(one.name)}" for one in held
        ],
        ("group", "partitions", "topics", "dry_run"),
    )


def holding(held: Held) -> str:
    """Return a group's name, and where it holds."""
    if not held.topics:
        return f"{name_in_text(held.name)}, which holds nothing"
    topics = some_of(held.topics, NAMED, "topic")
    return f"{name_in_text(held.name)}, on {count(held.partitions, 'partition')} of {topics}"
