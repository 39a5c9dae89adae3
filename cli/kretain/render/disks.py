"""Disks, scans of log dirs, and inventories' contents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from kretain.render.output import (
    BLANK,
    MOST,
    Column,
    Line,
    Part,
    Table,
    about,
    cluster_head,
    console,
    heading,
    is_terminal,
    joined,
    moment,
    number,
    show,
    signed,
    size,
)
from retention_cli.core.model import Maybe, Unknown
from retention_cli.core.units import count, format_duration, timestamp
from retention_cli.disks.disk import DiskOutcome, Room, ceiling_bytes, largest_topics, outcome_as_json
from retention_cli.disks.inventory.format import Inventory
from retention_cli.disks.inventory.read import by_dir, by_topic
from retention_cli.disks.inventory.scan import ScanReport
from retention_cli.memory.disk import Growth

WIDTH: Final = 30
TOPICS: Final = 5
_NARROW: Final = 110
"""In a terminal with fewer columns than this, numbers that the bar shows, too, are left out."""
_DISK_COLUMNS: Final = (
    *("broker", "dirs", "total_bytes", "used_bytes", "kafka_bytes", "ceiling_bytes", "excess_bytes", "dead_bytes"),
    *("other_rules_bytes", "freed_bytes", "short_bytes", "estimated", "doubtful_bytes", "level_ms"),
    *("growth_bytes_per_day", "growth_over_ms", "full_in_ms", "largest_topics", "in_the_way", "reasons", "cordoned"),
)


def print_disks(cluster_id: str, bootstrap: str, outcomes: Sequence[DiskOutcome], output: str) -> None:
    """Print a row per disk, and the topics that take most."""
    show(
        output,
        cluster_head("kretain.disk/v1", cluster_id, bootstrap),
        "disks",
        [_disk_row(one) for one in outcomes],
        lambda: _disks(outcomes),
        _DISK_COLUMNS,
    )


def _disk_row(one: DiskOutcome) -> dict[str, Any]:
    growth = one.growth if isinstance(one.growth, Growth) else (None, None, None)
    row = {
        **outcome_as_json(one),
        **dict(zip(("growth_bytes_per_day", "growth_over_ms", "full_in_ms"), growth, strict=True)),
        "largest_topics": [{"topic": name, "bytes": held} for name, held in largest_topics([one.disk], TOPICS)],
    }
    return {key: row[key] for key in _DISK_COLUMNS}


def _disks(outcomes: Sequence[DiskOutcome]) -> list[Part]:
    ceilings = any(one.percent is not None for one in outcomes)
    top = largest_topics([one.disk for one in outcomes], TOPICS)
    return [
        _usage(outcomes, ceilings=ceilings),
        heading("Largest topics, on all disks") if top else None,
        *(Line(f"{name}: {size(held)}", indent=2) for name, held in top),
        BLANK,
        *(
            Line(f"{text[0].upper()}{text[1:]}.", "dim")
            for text in dict.fromkeys(
                reason.text for one in outcomes if isinstance(one.growth, Unknown) for reason in one.growth.reasons
            )
        ),
        Line(
            joined(
                count(len(outcomes), "disk"),
                ceilings and f", {sum(one.excess_bytes > 0 for one in outcomes):,} above the ceiling",
                ".  █ Kafka  ▒ others  · free",
                any(one.disk.cordoned for one in outcomes) and "  × cordoned",
                ceilings and "  | the ceiling",
            ),
            "bold",
        ),
    ]


def _usage(outcomes: Sequence[DiskOutcome], *, ceilings: bool) -> Table:
    """Return a row per disk. A narrow terminal has shorter bars, and beside ceilings fewer numbers."""
    width = console().width if is_terminal() else math.inf
    length = WIDTH if width >= 140 else WIDTH * 2 // 3 if width >= _NARROW else WIDTH // 3
    usage = ("disk", "usage", "used", "Kafka", "others", "size", "growth")
    names = [
        name
        for name in (*usage, *(("ceiling", "after the plan", "short by") if ceilings else ()))
        if not ceilings or width >= _NARROW or name not in ("Kafka", "others", "ceiling")
    ]
    return Table(
        [
            Column(name, "left" if name in ("disk", "usage", "growth") else "right", unbroken=name == "usage")
            for name in names
        ],
        [[cells.get(name, "?") for name in names] for cells in (_disk_cells(one, length) for one in outcomes)],
        ["red" if one.short_bytes else "magenta" if one.unknown is not None else None for one in outcomes],
    )


def _disk_cells(one: DiskOutcome, length: int) -> dict[str, str]:
    """Return a disk's cells by column; what is unknown has none."""
    room = one.disk.room
    cells = {"disk": one.disk.name, "Kafka": size(sum(one.disk.replicas.values()))}
    if isinstance(room, Unknown):
        return cells
    cells |= {
        "usage": f"{bar(one, room, length)} {room.percent:5.1f} %",
        "used": size(room.used_bytes),
        "others": size(max(0, room.used_bytes - room.kafka_bytes)),
        "size": size(room.total_bytes),
        "growth": _growth(one.growth),
        "ceiling": "—" if one.percent is None else f"{one.percent:g} %",
    }
    if one.unknown is None:
        guess = "about " if one.estimated and one.going_bytes else ""
        cells |= {
            "after the plan": f"{guess}{100 * (room.used_bytes - one.going_bytes) / room.total_bytes:.1f} %",
            "short by": size(one.short_bytes) if one.short_bytes else "—",
        }
    return cells


def _growth(grows: Maybe[Growth] | None) -> str:
    if not isinstance(grows, Growth) or grows.full_in_ms == 0:
        return "full" if isinstance(grows, Growth) else "?"
    return joined(
        f"{signed(grows.bytes_per_day)} a day",
        grows.full_in_ms is not None and f", full in {about(grows.full_in_ms)}",
    )


def bar(one: DiskOutcome, room: Room, width: int) -> str:
    """Return a disk as a bar: the bytes that Kafka and others use, that are free or cordoned, and the ceiling."""
    used = min(width, round(width * room.used_bytes / room.total_bytes))
    kafka = min(used, round(width * room.kafka_bytes / room.total_bytes))
    cells = list("█" * kafka + "▒" * (used - kafka) + ("×" if one.disk.cordoned else "·") * (width - used))
    if one.percent is not None:
        cells.insert(min(width, round(width * ceiling_bytes(room, one.percent) / room.total_bytes)), "|")
    return "".join(cells)


def print_scan(report: ScanReport, output: str, out: str | None) -> None:
    """Print a row per log dir."""
    head = report.as_json() | {"format": "kretain.segments-scan/v1", "seconds": round(report.seconds, 3), "out": out}
    dirs = head.pop("dirs")
    show(output, head, "dirs", dirs, lambda: _scan(report, out), tuple(dirs[0]) if dirs else ())


def scan_notes(report: ScanReport) -> list[str]:
    """Return a scan's problems and oddities."""
    more = report.notes - len(report.noted)
    return [
        *_problems([f"{one.dir}/{one.topic}-{one.partition}: {one.problem}" for one in report.incomplete]),
        *(f"{one.dir}/{one.topic}-{one.partition}: {one.problem} (its facts are known)" for one in report.noted),
        *([f"and {count(more, 'more partition')} with flaws that did not stop the scan"] if more > 0 else []),
        *(
            f"{one.path} holds "
            + count(one.ignored, "file or folder that is not Kafka's", "files or folders that are not Kafka's")
            for one in report.dirs
            if one.ignored
        ),
        *(
            [f"{count(report.vanished, 'partition')} disappeared during the scan, and have no rows"]
            if report.vanished
            else []
        ),
    ]


def inventory_notes(inventory: Inventory) -> list[str]:
    """Return an inventory's problems."""
    return _problems(
        [
            f"{topic}-{number} of broker {broker}: {why}"
            for (broker, topic, number), why in sorted(inventory.incomplete.items())
        ]
    )


def _problems(found: Sequence[str]) -> list[str]:
    more = f"and {count(len(found) - MOST, 'more partition')} with problems: -o json lists them all"
    return [*found[:MOST], *([more] if len(found) > MOST else [])]


def _scan(report: ScanReport, out: str | None) -> list[Part]:
    rate = report.total("segments") / max(report.seconds, 0.001)
    totals = (
        count(report.topics, "topic"),
        count(report.total("partitions"), "partition"),
        count(report.total("segments"), "segment"),
        size(report.total("bytes")),
        count(len(report.incomplete), "problem"),
    )
    return [
        Table(
            (
                Column("dir"),
                *(
                    Column(title, "right")
                    for title in ("topics", "partitions", "segments", "bytes", "to be deleted", "on the device")
                ),
                Column("device", unbroken=True),
            ),
            [
                (
                    one.path,
                    number(one.topics),
                    number(one.partitions),
                    number(one.segments),
                    size(one.bytes),
                    size(one.pending_bytes),
                    f"{size(one.total_bytes - one.usable_bytes)} of {size(one.total_bytes)}",
                    one.device,
                )
                for one in report.dirs
            ],
        ),
        BLANK,
        Line(
            f"Broker {report.broker}: {', '.join(totals)}, in {report.seconds:,.1f} s ({rate:,.0f} segments/s).", "bold"
        ),
        f"Written to {out}." if out is not None else "Nothing was written: --out FILE keeps the inventory.",
    ]


def print_inventory(inventory: Inventory, output: str, now_ms: int) -> None:
    """Print a row per log dir, and the largest topics."""
    topics, dirs = by_topic(inventory), by_dir(inventory)
    total = {key: sum(row[key] for row in dirs) for key in ("partitions", "segments", "bytes")}
    show(
        output,
        {
            "format": "kretain.segments-show/v1",
            "cluster": {"id": inventory.cluster_id},
            "brokers": sorted(inventory.brokers),
            "scanned_at": timestamp(min(one.scanned_at_ms for one in inventory.files)),
            "totals": {"topics": len(topics), **total},
            "incomplete": [
                {"broker": broker, "topic": topic, "partition": partition, "problem": problem}
                for (broker, topic, partition), problem in sorted(inventory.incomplete.items())
            ],
            "dirs": dirs,
        },
        "topics",
        topics,
        lambda: [
            Table(
                (
                    Column("broker", "right"),
                    Column("dir"),
                    *(Column(title, "right") for title in ("topics", "partitions", "segments", "bytes")),
                    Column("scanned", unbroken=True),
                ),
                [
                    (
                        str(row["broker"]),
                        row["dir"],
                        *(number(row[key]) for key in ("topics", "partitions", "segments")),
                        size(row["bytes"]),
                        moment(row["scanned_at_ms"]),
                    )
                    for row in dirs
                ],
            ),
            heading("The largest topics"),
            Table(
                (Column("topic"), *(Column(one, "right") for one in ("replicas", "segments", "bytes", "log files"))),
                [
                    (
                        row["topic"],
                        *(number(row[key]) for key in ("replicas", "segments")),
                        *(size(row[key]) for key in ("bytes", "log_bytes")),
                    )
                    for row in topics[:MOST]
                ],
            ),
            BLANK,
            Line(
                f"{count(len(inventory.brokers), 'broker')}, {count(len(topics), 'topic')}, "
                f"{count(total['segments'], 'segment')}, {size(total['bytes'])}; "
                f"the oldest scan is {format_duration(inventory.age_ms(now_ms) // 1000 * 1000)} old.",
                "bold",
            ),
        ],
        ("topic", "replicas", "segments", "bytes", "log_bytes"),
    )
