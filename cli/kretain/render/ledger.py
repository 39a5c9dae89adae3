"""Print the ledger's records of a topic, on the screen and for scripts."""

from __future__ import annotations

from typing import Any

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.screen import Column
from kretain.render.kit.text import number
from retention_cli.core.model import Sample
from retention_cli.core.units import format_time, timestamp
from retention_cli.reports.ledger import LedgerView, PartitionView, Seen

FORMAT = "kretain.ledger/v1"
COLUMNS = (
    "topic",
    "topic_id",
    "partition",
    "samples",
    "oldest_sample",
    "oldest_high_watermark",
    "newest_sample",
    "newest_high_watermark",
    "max_event_time",
    "max_event_offset",
    "scan_source",
    "scanned_to",
    "groups",
)


def print_ledger(view: LedgerView, output: Output) -> None:
    """Print a row per partition."""
    head = {
        "format": FORMAT,
        "cluster": {"id": view.cluster_id},
        "state": view.state,
        "since": None if view.since_ms is None else timestamp(view.since_ms),
        "topic": view.topic,
    }
    rows = [_row(view.topic, one) for one in view.partitions]
    match output:
        case Output.json:
            data.print_json(head, "partitions", rows)
        case Output.yaml:
            data.print_yaml({**head, "partitions": rows})
        case Output.csv:
            named = [[_named(seen) for seen in one.groups] for one in view.partitions]
            data.print_csv(COLUMNS, [{**row, "groups": groups} for row, groups in zip(rows, named, strict=True)])
        case Output.table:
            _print_table(view)


def _print_table(view: LedgerView) -> None:
    several = len({one.topic_id for one in view.partitions}) > 1
    screen.print_table(
        (
            Column("partition"),
            Column("samples", "right"),
            Column("oldest"),
            Column("newest"),
            Column("largest event time"),
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
                ", ".join(_named(seen) for seen in one.groups),
            )
            for one in view.partitions
        ],
    )
    where = "_kretain_state, shared by all" if view.state == "cluster" else "this machine's state directory"
    since = "" if view.since_ms is None else f", begun {format_time(view.since_ms // 1000 * 1000)}"
    screen.say()
    screen.say(f"Remembered in {where}{since}. A sample is a time, and the high watermark at that time.", "dim")


def _sample(one: Sample | None) -> str:
    return "—" if one is None else f"{format_time(one.wall_ms // 1000 * 1000)} {one.high_watermark:,}"


def _named(seen: Seen) -> str:
    gone = f" (gone since {format_time(seen.seen_ms // 1000 * 1000)})" if seen.gone else ""
    return f"{seen.group} {seen.offset:,}{gone}"


def _row(topic: str, one: PartitionView) -> dict[str, Any]:
    return {
        "topic": topic,
        "topic_id": one.topic_id,
        "partition": one.partition,
        "samples": one.samples,
        "oldest_sample": None if one.oldest is None else timestamp(one.oldest.wall_ms),
        "oldest_high_watermark": None if one.oldest is None else one.oldest.high_watermark,
        "newest_sample": None if one.newest is None else timestamp(one.newest.wall_ms),
        "newest_high_watermark": None if one.newest is None else one.newest.high_watermark,
        "max_event_time": None if one.event_max is None else one.event_max.time_ms,
        "max_event_offset": None if one.event_max is None else one.event_max.offset,
        "scan_source": one.source,
        "scanned_to": one.scanned_to,
        "groups": [
            {"group": seen.group, "offset": seen.offset, "seen": timestamp(seen.seen_ms), "gone": seen.gone}
            for seen in one.groups
        ],
    }
