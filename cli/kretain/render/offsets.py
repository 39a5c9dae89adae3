"""Print consumers' positions, on the screen and for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.reasons import MOST, print_reasons
from kretain.render.kit.screen import Column
from kretain.render.kit.text import count, number, size
from kretain.render.plan import SHOWN
from retention_cli.core.model import TopicPartition
from retention_cli.core.printable import name_in_text
from retention_cli.core.units import format_time, timestamp
from retention_cli.reports import unread
from retention_cli.reports.offsets import Positions, Row, has_no_floor, reasons_of

FORMAT = "kretain.offsets/v1"
COLUMNS = (
    "topic",
    "partition",
    "log_start",
    "high_watermark",
    "last_stable_offset",
    "min_commit",
    "min_commit_by",
    "lag",
    "reasons",
)
GROUP_COLUMNS = ("topic", "partition", "group", "committed", "lag")


def print_floors(positions: Positions, output: Output, *, every_row: bool) -> None:
    """Print one row per partition."""
    floors = positions.floors
    if _for_scripts(positions, output, COLUMNS, floors):
        return
    shown = _shorten(floors, every_row=every_row)
    screen.print_table(
        (
            Column("partition"),
            Column("log start", "right"),
            Column("high watermark", "right"),
            Column("floor", "right"),
            Column("lag", "right"),
            Column("set by"),
        ),
        [
            (
                f"{row['topic']}-{row['partition']}",
                number(row["log_start"]),
                number(row["high_watermark"]),
                number(row["min_commit"]),
                number(row["lag"]),
                name_in_text(row["min_commit_by"].removeprefix("group:")) if row["min_commit_by"] else _codes(row),
            )
            for row in shown
        ],
        ["magenta" if has_no_floor(row) else None for row in shown],
    )
    _print_unknown(floors)


def print_groups(positions: Positions, output: Output, *, every_row: bool) -> None:
    """Print one row per partition and group."""
    rows = positions.groups
    if _for_scripts(positions, output, GROUP_COLUMNS, rows):
        return
    shown = _furthest(rows, "lag", every_row=every_row)
    if len(shown) < len(rows):
        screen.say(f"The {len(shown)} of {len(rows):,} positions that lag most (all of them: --all, or -o csv):")
        screen.say()
    screen.print_table(
        (Column("partition"), Column("group"), Column("committed", "right"), Column("lag", "right")),
        [
            (
                f"{row['topic']}-{row['partition']}",
                name_in_text(row["group"]),
                number(row["committed"]),
                number(row["lag"]),
            )
            for row in shown
        ],
    )
    _print_unknown(positions.floors)


def print_unread(positions: Positions, output: Output, each: unread.Rows, *, every_row: bool) -> None:
    """Print what each consumer has yet to read: a row per consumer, and topic or partition."""
    rows = positions.groups
    columns = unread.BY_TOPIC if each == "topics" else unread.BY_PARTITION
    if _for_scripts(positions, output, columns, map(_unread_row, rows), each):
        return
    shown = _furthest(rows, "records", every_row=every_row)
    if len(shown) < len(rows):
        screen.say(f"The {len(shown)} of {len(rows):,} that have most to read (all of them: --all, or -o csv):")
        screen.say()
    screen.print_table(
        (
            Column("topic" if each == "topics" else "partition"),
            Column("consumer"),
            *((Column("partitions", "right", spare=True),) if each == "topics" else (Column("position", "right"),)),
            Column("unread", "right"),
            Column("bytes", "right"),
            Column("unread since"),
        ),
        [
            (
                _place(row),
                name_in_text(row["group"]),
                number(row["partitions" if each == "topics" else "committed"]),
                number(row["records"]),
                size(row["bytes"]) if row["records"] else "",
                _since(row),
            )
            for row in shown
        ],
        ["magenta" if row["records"] is None else "dim" if row["records"] == 0 else None for row in shown],
    )
    notes = []
    if any(row["records"] is None for row in shown):
        notes.append("—: unknown; kretain groups and the reasons below say why.")
    if any(row["remembered"] for row in shown):
        notes.append("Some consumers are gone, and count where they stood: kretain groups names them.")
    if notes:
        screen.say()
    for note in notes:
        screen.say(note)
    _print_unknown(positions.floors)


def _place(row: Row) -> str:
    topic = row["topic"] or "any topic"
    return f"{topic}-{row['partition']}" if row.get("partition") is not None else topic


def _since(row: Row) -> str:
    if row["unread_since"] is not None:
        return format_time(row["unread_since"] // 1000 * 1000)
    return "?" if row["records"] else ""


def _unread_row(row: Row) -> Row:
    since = row["unread_since"]
    return {**row, "unread_since": None if since is None else timestamp(since)}


def _for_scripts(
    positions: Positions, output: Output, columns: Sequence[str], rows: Iterable[Row], key: str = "partitions"
) -> bool:
    head: Mapping[str, Any] = {
        "format": FORMAT,
        "cluster": {"id": positions.cluster_id, "bootstrap": positions.bootstrap},
    }
    match output:
        case Output.json:
            data.print_json(head, key, rows)
        case Output.yaml:
            data.print_yaml({**head, key: list(rows)})
        case Output.csv:
            data.print_csv(columns, rows)
        case Output.table:
            return False
    return True


def _furthest(rows: Sequence[Row], by: str, *, every_row: bool) -> Sequence[Row]:
    """Return the rows, or, of many, those that are furthest behind; equal ones keep their order."""
    if every_row or len(rows) <= SHOWN:
        return rows
    return sorted(rows, key=lambda row: -(row[by] or 0))[:MOST]


def _shorten(floors: Sequence[Row], *, every_row: bool) -> Sequence[Row]:
    shown = _furthest(floors, "lag", every_row=every_row)
    if len(shown) < len(floors):
        screen.say(f"The {len(shown)} of {len(floors):,} partitions that lag most (all of them: --all, or -o csv):")
        screen.say()
    return sorted(shown, key=lambda row: (row["topic"], row["partition"]))


def _codes(row: Row) -> str:
    return ", ".join(dict.fromkeys(one["code"] for one in row["reasons"])) if has_no_floor(row) else ""


def _print_unknown(floors: Sequence[Row]) -> None:
    unknown = [row for row in floors if has_no_floor(row)]
    with_floor = sum(row["min_commit"] is not None for row in floors)
    screen.say()
    told = f"{count(len(floors), 'partition')}: {with_floor:,} with a floor, {len(unknown):,} unknown."
    screen.say(told, "bold")
    print_reasons(
        "Unknown", ((TopicPartition(row["topic"], row["partition"]), reasons_of(row)) for row in unknown), "magenta"
    )
