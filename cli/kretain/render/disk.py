"""Disks, on the screen and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.screen import Column
from kretain.render.kit.text import about, count, size
from retention_cli.core.model import Maybe, Unknown
from retention_cli.disks.solve.outcome import DiskOutcome, largest_topics, outcome_as_json
from retention_cli.disks.solve.room import ceiling_bytes
from retention_cli.memory.disk import Growth

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
    "doubtful_bytes",
    "level_ms",
    "growth_bytes_per_day",
    "growth_over_ms",
    "full_in_ms",
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
    grows = one.growth if isinstance(one.growth, Growth) else None
    row = outcome_as_json(one) | {
        "growth_bytes_per_day": None if grows is None else grows.bytes_per_day,
        "growth_over_ms": None if grows is None else grows.over_ms,
        "full_in_ms": None if grows is None else grows.full_in_ms,
    }
    top = [{"topic": name, "bytes": held} for name, held in largest_topics([one.disk], TOPICS)]
    return {key: top if key == "largest_topics" else row[key] for key in COLUMNS}


def _print_table(outcomes: Sequence[DiskOutcome]) -> None:
    ceilings = any(one.percent is not None for one in outcomes)
    width = screen.console().width if screen.is_terminal() else None
    columns = _columns(width, ceilings=ceilings)
    length = WIDTH if width is None or width >= 140 else WIDTH * 2 // 3 if width >= _NARROW else WIDTH // 3
    screen.print_table(
        columns,
        [[cells[column.title] for column in columns] for cells in (_cells(one, length) for one in outcomes)],
        ["red" if one.short_bytes else "magenta" if one.unknown is not None else None for one in outcomes],
    )
    top = largest_topics([one.disk for one in outcomes], TOPICS)
    if top:
        screen.heading("Topics that take most, on all disks")
        for name, held in top:
            screen.bullet(f"{name}: {size(held)}")
    screen.say()
    unknown = (one.growth.reasons for one in outcomes if isinstance(one.growth, Unknown))
    for text in dict.fromkeys(reason.text for reasons in unknown for reason in reasons):
        screen.say(f"Growth: {text}.", "dim")
    full = sum(one.excess_bytes > 0 for one in outcomes)
    said = f", {full:,} above the ceiling" if ceilings else ""
    key = "█ Kafka  ▒ others  · free" + ("  | the ceiling" if ceilings else "")
    screen.say(f"{count(len(outcomes), 'disk')}{said}.  {key}", "bold")


_NARROW = 110
"""In a terminal with fewer columns than this, numbers that the bar shows, too, are left out."""


def _columns(width: int | None, *, ceilings: bool) -> list[Column]:
    """Return the columns for a terminal of this width, or for a pipe."""
    names = ["disk", "usage", "used", "Kafka", "others", "size", "growth"]
    if ceilings:
        names += ["ceiling", "after the plan", "short by"]
        if width is not None and width < _NARROW:
            names = [name for name in names if name not in ("Kafka", "others", "ceiling")]
    kinds = {"disk": Column("disk"), "usage": Column("usage", whole=True), "growth": Column("growth")}
    return [kinds.get(name) or Column(name, "right") for name in names]


def _cells(one: DiskOutcome, length: int) -> dict[str, str]:
    """Return a disk's cells by column; a question mark means unknown."""
    room = one.disk.room
    cells = dict.fromkeys((column.title for column in _columns(None, ceilings=True)), "?")
    cells |= {"disk": one.disk.name, "Kafka": size(sum(one.disk.replicas.values()))}
    if isinstance(room, Unknown):
        return cells
    cells |= {
        "usage": f"{bar(one, length)} {room.percent:5.1f} %",
        "used": size(room.used_bytes),
        "others": size(max(0, room.used_bytes - room.kafka_bytes)),
        "size": size(room.total_bytes),
        "growth": _growth(one.growth),
        "ceiling": "—" if one.percent is None else f"{one.percent:g} %",
    }
    if one.unknown is None:
        about_to_go = "about " if one.estimated and one.going_bytes else ""
        after = 100 * (room.used_bytes - one.going_bytes) / room.total_bytes
        cells |= {
            "after the plan": f"{about_to_go}{after:.1f} %",
            "short by": size(one.short_bytes) if one.short_bytes else "—",
        }
    return cells


def _growth(grows: Maybe[Growth] | None) -> str:
    """Return how much a disk grows per day, and when it will be full."""
    if not isinstance(grows, Growth):
        return "?"
    if grows.full_in_ms == 0:
        return "full"
    amount = grows.bytes_per_day
    sign = "+" if amount > 0 else "−" if amount < 0 else ""
    full = "" if grows.full_in_ms is None else f", full in {about(grows.full_in_ms)}"
    return f"{sign}{size(abs(amount))} a day{full}"


def bar(one: DiskOutcome, width: int = WIDTH) -> str:
    """Return a disk as a bar: the bytes that Kafka uses, that others use, and that are free, and the ceiling."""
    room = one.disk.room
    if isinstance(room, Unknown):
        return ""
    used = min(width, round(width * room.used_bytes / room.total_bytes))
    kafka = min(used, round(width * room.kafka_bytes / room.total_bytes))
    cells = list("█" * kafka + "▒" * (used - kafka) + "·" * (width - used))
    if one.percent is not None:
        cells.insert(min(width, round(width * ceiling_bytes(room, one.percent) / room.total_bytes)), "|")
    return "".join(cells)
