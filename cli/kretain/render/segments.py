"""Print the results of a scan of log dirs, and inventories' contents, on the screen and for scripts."""

from __future__ import annotations

from typing import Any

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.screen import Column
from kretain.render.kit.text import count, number, size
from retention_cli.core.units import format_bytes, format_duration, format_time, timestamp
from retention_cli.disks.inventory.inventory import Inventory, by_dir, by_topic
from retention_cli.disks.inventory.scan import ScanReport

SCAN_FORMAT = "kretain.segments-scan/v1"
SHOW_FORMAT = "kretain.segments-show/v1"
TOPIC_COLUMNS = ("topic", "replicas", "segments", "bytes", "log_bytes")
_SHOWN = 20


def print_scan(report: ScanReport, output: Output, out: str | None, *, quiet: bool) -> None:
    """Print a row per log dir; print problems and oddities to stderr."""
    about = {**report.as_json(), "format": SCAN_FORMAT, "seconds": round(report.seconds, 3), "out": out}
    dirs = about.pop("dirs")
    match output:
        case Output.json:
            data.print_json(about, "dirs", dirs)
        case Output.yaml:
            data.print_yaml({**about, "dirs": dirs})
        case Output.csv:
            data.print_csv(tuple(dirs[0]), dirs)
        case Output.table:
            _print_dirs(report)
            rate = report.total("segments") / max(report.seconds, 0.001)
            screen.say()
            screen.say(
                f"Broker {report.broker}: {_totals(report)}, in {report.seconds:,.1f} s ({rate:,.0f} segments/s).",
                "bold",
            )
            screen.say(
                f"Written to {out}." if out is not None else "Nothing was written: --out FILE keeps the inventory."
            )
    if not quiet:
        _warn(report)


def _totals(report: ScanReport) -> str:
    return ", ".join(
        (
            count(report.topics, "topic"),
            count(report.total("partitions"), "partition"),
            count(report.total("segments"), "segment"),
            size(report.total("bytes")),
            count(len(report.incomplete), "problem"),
        )
    )


def _print_dirs(report: ScanReport) -> None:
    titles = ("topics", "partitions", "segments", "bytes", "to be deleted", "on the device")
    screen.print_table(
        (Column("dir"), *(Column(title, "right") for title in titles), Column("device", whole=True)),
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
    )


def _warn(report: ScanReport) -> None:
    for one in report.incomplete[:_SHOWN]:
        screen.warn(f"{one.dir}/{one.topic}-{one.partition}: {one.problem}")
    if (more := len(report.incomplete) - _SHOWN) > 0:
        screen.warn(f"and {count(more, 'more partition')} with problems: -o json lists them all")
    for note in report.noted:
        screen.warn(f"{note.dir}/{note.topic}-{note.partition}: {note.problem} (told nevertheless)")
    if (more := report.notes - len(report.noted)) > 0:
        screen.warn(f"and {count(more, 'more partition')} with oddities that did not stop the scan")
    for folder in report.dirs:
        if folder.ignored:
            foreign = count(folder.ignored, "thing that is not Kafka's", "things that are not Kafka's")
            screen.warn(f"{folder.path} holds {foreign}")
    if report.vanished:
        screen.warn(f"{count(report.vanished, 'partition')} went away meanwhile, and have no rows")


def print_inventory(inventory: Inventory, output: Output, now_ms: int, *, quiet: bool) -> None:
    """Print a row per log dir, and the largest topics."""
    topics = by_topic(inventory)
    dirs = by_dir(inventory)
    total = {key: sum(row[key] for row in dirs) for key in ("partitions", "segments", "bytes")}
    head: dict[str, Any] = {
        "format": SHOW_FORMAT,
        "cluster": {"id": inventory.cluster_id},
        "brokers": sorted(inventory.brokers),
        "scanned_at": timestamp(min(one.scanned_at_ms for one in inventory.files)),
        "totals": {"topics": len(topics), **total},
        "incomplete": [
            {"broker": broker, "topic": topic, "partition": partition, "problem": problem}
            for (broker, topic, partition), problem in sorted(inventory.incomplete.items())
        ],
        "dirs": dirs,
    }
    match output:
        case Output.json:
            data.print_json(head, "topics", topics)
        case Output.yaml:
            data.print_yaml({**head, "topics": topics})
        case Output.csv:
            data.print_csv(TOPIC_COLUMNS, topics)
        case Output.table:
            _print_inventory(inventory, dirs, topics, total, now_ms)
    if not quiet:
        for (broker, topic, partition), problem in sorted(inventory.incomplete.items())[:_SHOWN]:
            screen.warn(f"{topic}-{partition} of broker {broker}: {problem}")
        if (more := len(inventory.incomplete) - _SHOWN) > 0:
            screen.warn(f"and {count(more, 'more partition')} with problems: -o json lists them all")


def _print_inventory(
    inventory: Inventory, dirs: list[dict[str, Any]], topics: list[dict[str, Any]], total: dict[str, int], now_ms: int
) -> None:
    screen.print_table(
        (
            Column("broker", "right"),
            Column("dir"),
            *(Column(title, "right") for title in ("topics", "partitions", "segments", "bytes")),
            Column("scanned", whole=True),
        ),
        [
            (
                str(row["broker"]),
                row["dir"],
                *(number(row[key]) for key in ("topics", "partitions", "segments")),
                size(row["bytes"]),
                format_time(row["scanned_at_ms"] // 1000 * 1000),
            )
            for row in dirs
        ],
    )
    screen.heading("The topics that take most")
    screen.print_table(
        (Column("topic"), *(Column(title, "right") for title in ("replicas", "segments", "bytes", "log files"))),
        [
            (row["topic"], number(row["replicas"]), number(row["segments"]), size(row["bytes"]), size(row["log_bytes"]))
            for row in topics[:_SHOWN]
        ],
    )
    age = inventory.age_ms(now_ms) // 1000 * 1000
    screen.say()
    screen.say(
        f"{count(len(inventory.brokers), 'broker')}, {count(len(topics), 'topic')}, "
        f"{count(total['segments'], 'segment')}, {format_bytes(total['bytes'])}; "
        f"the oldest scan is {format_duration(age)} old.",
        "bold",
    )
