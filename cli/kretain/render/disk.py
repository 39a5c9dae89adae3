"""Disks, on the screen and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kretain.options import Output
from kretain.render import data, screen
from kretain.render.screen import Column
from kretain.render.words import count, size
from retention_cli.disks.outcome import DiskOutcome, largest_topics, outcome_as_json
from retention_cli.disks.room import ceiling_bytes
from retention_cli.model import Unknown

FORMAT = "kretain.disk/v1"
WIDTH = 30
TOPICS = 5
COLUMNS = (
    "broker",
    "dirs",
    "total_bytes",
    "used_bytes",
    "kafka_bytes",
    "ceiling_bytes",
    "excess_bytes",
    "dead_bytes",
    "other_rules_bytes",
    "freed_bytes",
    "short_bytes",
    "estimated",
    "level_ms",
    "largest_topics",
    "in_the_way",
    "reasons",
)


def print_disks(cluster_id: str, bootstrap: str, outcomes: Sequence[DiskOutcome], output: Output) -> None:
    """Print a row per disk, and the topics that take most."""
    rows = [_row(one) for one in outcomes]
    head = {"format": FORMAT, "cluster": {"id": cluster_id, "bootstrap": bootstrap}}
    match output:
        case Output.json:
            data.print_json(head, "disks", rows)
        case Output.yaml:
            data.print_yaml({**head, "disks": rows})
        case Output.csv:
            data.print_csv(COLUMNS, rows)
        case Output.table:
            _print_table(outcomes)


def _row(one: DiskOutcome) -> dict[str, Any]:
    row = outcome_as_json(one)
    top = [{"topic": name, "bytes": held} for name, held in largest_topics([one.disk], TOPICS)]
    return {key: top if key == "largest_topics" else row[key] for key in COLUMNS}


def _print_table(outcomes: Sequence[DiskOutcome]) -> None:
    ceilings = any(one.percent is not None for one in outcomes)
    columns = [
        Column("disk"),
        Column("usage", whole=True),
        Column("used", "right"),
        Column("Kafka", "right"),
        Column("others", "right"),
        Column("size", "right"),
    ]
    if ceilings:
        columns += [Column("ceiling", "right"), Column("after the plan", "right"), Column("short by", "right")]
    screen.print_table(
        columns,
        [_cells(one, ceilings=ceilings) for one in outcomes],
        ["red" if one.short_bytes else "magenta" if one.unknown is not None else None for one in outcomes],
    )
    top = largest_topics([one.disk for one in outcomes], TOPICS)
    if top:
        screen.heading("Topics that take most, on all disks")
        for name, held in top:
            screen.bullet(f"{name}: {size(held)}")
    screen.say()
    full = sum(one.excess_bytes > 0 for one in outcomes)
    said = f", {full:,} above the ceiling" if ceilings else ""
    screen.say(f"{count(len(outcomes), 'disk')}{said}.  {_KEY if not ceilings else _KEY + '  | its ceiling'}", "bold")


_KEY = "█ Kafka  ▒ others  · free"


def _cells(one: DiskOutcome, *, ceilings: bool) -> list[str]:
    room = one.disk.room
    if isinstance(room, Unknown):
        return [
            one.disk.name,
            "?",
            "?",
            size(sum(one.disk.replicas.values())),
            "?",
            "?",
            *(["?"] * 3 if ceilings else []),
        ]
    cells = [
        one.disk.name,
        f"{bar(one)} {room.percent:5.1f} %",
        size(room.used_bytes),
        size(room.kafka_bytes),
        size(max(0, room.used_bytes - room.kafka_bytes)),
        size(room.total_bytes),
    ]
    if ceilings:
        known = one.unknown is None
        after = f"{100 * (room.used_bytes - one.going_bytes) / room.total_bytes:.1f} %" if known else "?"
        short = "—" if known and not one.short_bytes else size(one.short_bytes if known else None)
        cells += ["—" if one.percent is None else f"{one.percent:g} %", after, short]
    return cells


def bar(one: DiskOutcome, width: int = WIDTH) -> str:
    """Return a disk as a bar: what Kafka takes, what others do, what is free, and where the ceiling is."""
    room = one.disk.room
    if isinstance(room, Unknown):
        return ""
    used = min(width, round(width * room.used_bytes / room.total_bytes))
    kafka = min(used, round(width * room.kafka_bytes / room.total_bytes))
    cells = list("█" * kafka + "▒" * (used - kafka) + "·" * (width - used))
    if one.percent is not None:
        cells.insert(min(width, round(width * ceiling_bytes(room, one.percent) / room.total_bytes)), "|")
    return "".join(cells)
