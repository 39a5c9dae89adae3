"""Protected settings: what is raised, for whom, and how long it lasts (docs/protect.md)."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

from kretain.render.output import Column, Line, Table, cluster_head, joined, reason_line, show, size
from retention_cli.core.model import Reason
from retention_cli.core.units import count, format_bytes, format_duration
from retention_cli.protect.decision import Decision, Protection

COLUMNS: Final = (
    *("topic", "setting", "action", "group", "partition", "left_ms", "old", "new", "original", "extra_bytes"),
    *("outcome", "problem", "reasons"),
)
_STYLES: Final = {"raise": "green", "lower": "yellow", "release": "red", "none": "dim"}
_ACTIONS: Final = {"none": "", "keep": "raised", "release": "left alone"}


def print_protection(made: Protection, output: str) -> None:
    """Print a row per setting."""
    rows: list[dict[str, Any]] = [
        {
            "topic": row.topic,
            "topic_id": row.topic_id,
            **{name: getattr(row, name) for name in COLUMNS[1:12]},
            "reasons": [*map(asdict, row.reasons)],
        }
        for row in made.rows
    ]
    show(
        output,
        cluster_head("kretain.protect/v1", made.cluster_id, made.bootstrap) | {"notes": [*map(asdict, made.notes)]},
        "settings",
        rows,
        lambda: [
            Table(
                (
                    Column("topic"),
                    Column("setting", unbroken=True),
                    Column("group"),
                    *(Column(title, "right") for title in ("time to loss", "now", "new", "may keep")),
                    Column("", unbroken=True),
                ),
                [_cells(row) for row in made.rows],
                ["bold red" if row.outcome == "failed" else _STYLES.get(row.action) for row in made.rows],
            ),
            Line(f"{count(len(made.changes), 'change')}, {count(made.raised, 'raised setting')}.", "bold"),
            *(
                reason_line(Reason("protect", f"{row.topic}: {row.setting} was not changed: {row.problem}"))
                for row in made.rows
                if row.problem is not None
            ),
            *(reason_line(Reason(one.code, f"{row.topic}: {one.text}")) for row in made.rows for one in row.reasons),
            *map(reason_line, made.notes),
        ],
        COLUMNS,
        [{**row, "reasons": json.dumps(row["reasons"])} for row in rows],
    )


def question(made: Protection) -> str:
    """Return what a run asks before it changes settings."""
    topics = count(len({row.topic for row in made.changes}), "topic")
    return f"Change {count(len(made.changes), 'setting')} of {topics} in cluster {made.cluster_id}?"


def change_line(one: Decision) -> str:
    """Return a change as a line of the log: ``orders: retention.ms raised from 7d to 8d for group billing``."""
    if one.action == "release":
        return f"{one.topic}: {one.setting} is left alone: {one.reasons[0].text}"
    done = {"raise": "raised", "lower": "lowered", "restore": "restored"}[one.action]
    return joined(
        f"{one.topic}: {one.setting} {done if one.outcome == 'done' else f'not {done} ({one.problem})'} ",
        f"from {shown(one, one.old)} to {shown(one, one.new)}",
        one.group and one.action != "restore" and f" for group {one.group}",
    )


def shown(one: Decision, limit: int | None) -> str:
    """Return a limit of a decision's setting for people."""
    if limit is None:
        return "none"
    return format_duration(limit) if one.setting == "retention.ms" else format_bytes(limit)


def _cells(one: Decision) -> tuple[str, ...]:
    changed = "" if one.new == one.old else shown(one, one.new)
    return (
        one.topic,
        one.setting,
        one.group or "",
        "" if one.left_ms is None else format_duration(one.left_ms // 1000 * 1000),
        shown(one, one.old),
        changed,
        size(one.extra_bytes) if changed else "",
        "failed" if one.outcome == "failed" else _ACTIONS.get(one.action, one.action),
    )
