"""Consumer groups, on the screen and for scripts."""

from __future__ import annotations

from typing import Any

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.screen import Column
from kretain.render.kit.text import count, number
from retention_cli.core.printable import name_in_text
from retention_cli.core.units import format_bytes, format_time, timestamp
from retention_cli.policy.settings import SOURCE_KINDS
from retention_cli.reports.groups import GroupList, GroupSummary

FORMAT = "kretain.groups/v1"
COLUMNS = (
    *("group", "type", "protocol_type", "state", "counts", "topics", "partitions"),
    *("lag", "lag_bytes", "alone_bytes", "unread_since", "unmoved_since"),
)
_FIRST_LOOK = (
    "Nothing is remembered of this cluster yet: groups whose offsets had expired (offsets.retention.minutes) are "
    "unknown, and protect nothing. Each kretain plan remembers what it sees (F6)."
)
NAMED = 3
"""How many of the groups that hold the most, or stand still the longest, are named."""
_LONG_MS = 86_400_000


def print_groups(found: GroupList, output: Output, now_ms: int, *, first_look: bool) -> None:
    """Print a row per group. ``first_look``: nothing is remembered of this cluster yet."""
    rows = [_row(one) for one in found.groups]
    head = {
        "format": FORMAT,
        "cluster": {"id": found.cluster_id, "bootstrap": found.bootstrap},
        "complete": found.incomplete is None,
    }
    match output:
        case Output.json:
            data.print_json(head, "groups", rows)
        case Output.yaml:
            data.print_yaml({**head, "groups": rows})
        case Output.csv:
            data.print_csv(COLUMNS, rows)
        case Output.table:
            screen.print_table(
                (
                    Column("group"),
                    Column("type"),
                    Column("state"),
                    Column("topics", "right", spare=True),
                    Column("partitions", "right", spare=True),
                    Column("lag", "right"),
                    Column("behind", "right"),
                    Column("alone", "right"),
                    Column("unread since", spare=True),
                    Column("unmoved since", spare=True),
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
                        _bytes(one.lag_bytes),
                        _bytes(one.alone_bytes),
                        _time(one.unread_since_ms),
                        _time(one.unmoved_since_ms),
                        one.counts,
                    )
                    for one in found.groups
                ],
                [None if one.sets_floors else "dim" for one in found.groups],
            )
            screen.say()
            counting = sum(one.sets_floors for one in found.groups)
            screen.say(f"{count(len(rows), 'group')}, {counting:,} of them count.", "bold")
            if most := _most(found):
                screen.say(f"Held back alone, most first: {most}.")
            if still := _still(found, now_ms):
                screen.say(f"Not moved for a day or longer, with records to read: {still}.")
            if first_look:
                screen.say(_FIRST_LOOK, "dim")


def _row(one: GroupSummary) -> dict[str, Any]:
    return {
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
        "unread_since": None if one.unread_since_ms is None else timestamp(one.unread_since_ms),
        "unmoved_since": None if one.unmoved_since_ms is None else timestamp(one.unmoved_since_ms),
    }


def _time(time_ms: int | None) -> str:
    return "" if time_ms is None else format_time(time_ms // 1000 * 1000)


def _bytes(size: int | None) -> str:
    return "" if size is None else format_bytes(size)


def _most(found: GroupList) -> str:
    """Return a text that names the groups that hold the most records which no other group has yet to read."""
    holding = sorted((-one.alone_bytes, one.name) for one in found.groups if one.alone_bytes)
    return ", ".join(f"{format_bytes(-size)} by {name_in_text(name)}" for size, name in holding[:NAMED])


def _still(found: GroupList, now_ms: int) -> str:
    """Return a text that names the groups that count, have records to read, and have not moved for the longest."""
    standing = sorted(
        (one.unmoved_since_ms, one.name)
        for one in found.groups
        if one.sets_floors
        and one.lag
        and one.unmoved_since_ms is not None
        and now_ms - one.unmoved_since_ms >= _LONG_MS
    )
    more = f", and {len(standing) - NAMED:,} more" if len(standing) > NAMED else ""
    return ", ".join(f"{name} since {_time(since_ms)}" for since_ms, name in standing[:NAMED]) + more
